// SPDX-License-Identifier: Apache-2.0
//
// The request table's second level (request_overflow.h). Three tables, each eight times the one before and mapped when
// that one is three quarters full, so that memory and page faults grow with what is pending. In a table a key may lie
// in any of 16 buckets, walked with a stride of its own: full neighbours do not pile up. As in the first level a place
// is claimed by compare-and-swap on its key, shown by the state that is stored last, and taken away by the one thread
// that brings that state to 0.

#include "shim/tables/request_overflow.h"

#include "shim/runtime/memory.h"

namespace resil {

namespace {

constexpr uint32_t kPlaces = 8;  // in a bucket: keys in one cache line
constexpr uint32_t kReach = 16;
constexpr uint32_t kLevels = 3;

struct alignas(64) Bucket {
  uint64_t keys[kPlaces];  // 0: free
  OverflowEntry entries[kPlaces];
};
static_assert(sizeof(Bucket) == 448);

struct Level {
  uint32_t buckets;  // a power of two
  uint32_t limit;  // requests that it takes
  Bucket* table;  // null: not mapped yet
  uint32_t in_use;
};
// The last one holds what the bound leaves for it, whatever the other two hold.
constinit Level levels[kLevels] = {{1u << 11, (1u << 14) / 4 * 3, nullptr, 0},
                                   {1u << 14, (1u << 17) / 4 * 3, nullptr, 0},
                                   {1u << 17, 1u << 20, nullptr, 0}};

size_t table_bytes(const Level& level) { return level.buckets * (sizeof(Bucket) + sizeof(uint32_t)); }

Bucket* table_of(const Level& level) { return __atomic_load_n(&level.table, __ATOMIC_ACQUIRE); }

/// By bucket: live keys that found it full and went on.
uint32_t* spilled(const Level& level, Bucket* table) { return reinterpret_cast<uint32_t*>(table + level.buckets); }

template <class T>
bool swap(T& word, T expected, T wanted) {
  return __atomic_compare_exchange_n(&word, &expected, wanted, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
}

/// Maps the table; of two threads that do so one keeps the other's. Null: refused.
Bucket* map(Level& level) {
  auto* made = static_cast<Bucket*>(memory::map(table_bytes(level)));
  if (made == nullptr || swap(level.table, static_cast<Bucket*>(nullptr), made)) return made;
  memory::unmap(made, table_bytes(level));
  return table_of(level);
}

template <class T>
void add(T& counter, T value, bool concurrent) {
  if (concurrent) __atomic_fetch_add(&counter, value, __ATOMIC_RELAXED);
  else __atomic_store_n(&counter, static_cast<T>(counter + value), __ATOMIC_RELAXED);
}

/// The buckets that a key may lie in: `next` from `home` on.
struct Walk {
  uint32_t mask, home, stride, bucket;

  Walk(uint64_t key, const Level& level) : mask(level.buckets - 1) {
    uint64_t mixed = key * 0x9e3779b97f4a7c15;
    mixed ^= mixed >> 32;
    mixed *= 0xd6e8feb86659fd93;  // the first level has used the product's upper half
    home = bucket = static_cast<uint32_t>(mixed >> 32) & mask;
    stride = static_cast<uint32_t>(mixed) | 1;
  }
  void next() { bucket = (bucket + stride) & mask; }
};

uint32_t in_use_of(const Level& level) { return __atomic_load_n(&level.in_use, __ATOMIC_RELAXED); }

}  // namespace

constinit uint32_t overflow_in_use;

bool overflow_preferred(const OverflowState& a, const OverflowState& b, RequestAsker asker) {
  const auto own = [&](const OverflowState& state) {
    return ((state.trace ^ asker.trace) & OverflowState::kTraces) == 0;
  };
  return asker.prefers(a.serial, own(a), b.serial, own(b));
}

void overflow_reset() {
  for (Level& level : levels) {
    memory::unmap(level.table, table_bytes(level));
    level.table = nullptr;
    level.in_use = 0;
  }
  overflow_in_use = 0;
}

OverflowEntry* overflow_claim(uint64_t key, bool concurrent) {
  if (__atomic_load_n(&overflow_in_use, __ATOMIC_RELAXED) >= kMaxOverflow) return nullptr;
  for (Level& level : levels) {
    if (in_use_of(level) >= level.limit) continue;
    Bucket* table = table_of(level);
    if (table == nullptr && (table = map(level)) == nullptr) continue;
    Walk walk(key, level);
    for (uint32_t step = 0; step < kReach; ++step, walk.next()) {
      Bucket& bucket = table[walk.bucket];
      for (uint32_t i = 0; i < kPlaces; ++i) {
        if (__atomic_load_n(&bucket.keys[i], __ATOMIC_RELAXED) != 0) continue;
        if (!concurrent) __atomic_store_n(&bucket.keys[i], key, __ATOMIC_RELEASE);
        else if (!swap(bucket.keys[i], uint64_t{0}, key)) continue;
        if (step != 0) add<uint32_t>(spilled(level, table)[walk.home], 1, concurrent);
        add<uint32_t>(level.in_use, 1, concurrent);
        add<uint32_t>(overflow_in_use, 1, concurrent);
        return &bucket.entries[i];
      }
    }
  }
  return nullptr;
}

OverflowEntry* overflow_find(uint64_t key, RequestAsker asker, bool concurrent, OverflowState* state) {
  OverflowEntry* best = nullptr;
  for (uint32_t number = kLevels; number-- > 0;) {  // the largest first: most are there
    const Level& level = levels[number];
    Bucket* table = table_of(level);
    if (table == nullptr || in_use_of(level) == 0) continue;
    Walk walk(key, level);
    for (uint32_t step = 0; step < kReach; ++step, walk.next()) {
      Bucket& bucket = table[walk.bucket];
      for (uint32_t i = 0; i < kPlaces; ++i) {
        if (__atomic_load_n(&bucket.keys[i], __ATOMIC_ACQUIRE) != key) continue;
        const uint64_t word = __atomic_load_n(&bucket.entries[i].state, __ATOMIC_ACQUIRE);
        if (word == 0) continue;  // being filled in: nobody but its own thread can know that operation
        const OverflowState found = OverflowState::of(word);
        if (best != nullptr && !overflow_preferred(found, *state, asker)) continue;
        best = &bucket.entries[i];
        *state = found;
        if (!concurrent) return best;  // a handle is reused only after its completion was seen here
      }
      if (step == 0 && __atomic_load_n(&spilled(level, table)[walk.home], __ATOMIC_RELAXED) == 0) break;
    }
  }
  return best;
}

bool overflow_set_flags(OverflowEntry* entry, OverflowState state, uint8_t flags) {
  const uint64_t shown = state.word();
  state.flags = flags;
  return swap(entry->state, shown, state.word());
}

bool overflow_release(OverflowEntry* entry, uint64_t key, OverflowState state, bool concurrent, uint64_t* cookies) {
  if (!concurrent) __atomic_store_n(&entry->state, 0, __ATOMIC_RELAXED);
  else if (!swap(entry->state, state.word(), uint64_t{0})) return false;
  for (unsigned i = 0; i < kRequestWords; ++i) cookies[i] = entry->cookies[i];  // nobody else's until the place is free
  for (Level& level : levels) {
    Bucket* table = table_of(level);
    const size_t offset =
        reinterpret_cast<uint64_t>(entry) - reinterpret_cast<uint64_t>(table);  // huge if it is before
    if (table == nullptr || offset >= level.buckets * sizeof(Bucket)) continue;
    const size_t number = offset / sizeof(Bucket);
    const uint32_t home = Walk(key, level).home;
    if (number != home) add<uint32_t>(spilled(level, table)[home], ~0u, concurrent);
    add<uint32_t>(level.in_use, ~0u, concurrent);
    add<uint32_t>(overflow_in_use, ~0u, concurrent);
    __atomic_store_n(&table[number].keys[entry - table[number].entries], 0, __ATOMIC_RELEASE);
    return true;
  }
  return true;
}

}  // namespace resil
