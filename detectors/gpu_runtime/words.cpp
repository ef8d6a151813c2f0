// SPDX-License-Identifier: Apache-2.0
//
// See words.h.

#include "detectors/gpu_runtime/words.h"

#include "shim/base/spinlock.h"
#include "shim/runtime/memory.h"

namespace resil::gpu_runtime {

namespace {

constexpr unsigned kSlots = 1024, kArenas = 64;
constexpr unsigned kPortableMapped = 1 | 2;  // CU_MEMHOSTREGISTER_PORTABLE | _DEVICEMAP; hip's are the same numbers
constexpr int kCaptureModeRelaxed = 2;

struct alignas(64) Line {
  uint64_t word[2];
};

}  // namespace

struct Arena {
  SpinLock lock;
  void* context;
  Api api;
  std::atomic<bool> ready;  // registered
  std::atomic<bool> filling;  // stream memory operations were refused
  std::atomic<bool> proved;
  std::atomic<bool> registering;
  unsigned refusals;  // registrations that failed
  Line* lines;
  unsigned cursor;
  uint64_t ticket[kSlots][2];
  bool used[kSlots];
  void* scratch;  // device memory for enqueue_kernel
};

namespace {

constinit Arena* arenas;  // kArenas of them, mapped with the first
constinit std::atomic<unsigned> arena_count;
constinit SpinLock table_lock;
constinit std::atomic<uint64_t> tickets, written_words;

Arena* find(Api api, void* context) {
  const unsigned n = arena_count.load(std::memory_order_acquire);
  for (unsigned i = 0; i < n; ++i)
    if (arenas[i].context == context && arenas[i].api == api) return &arenas[i];
  return nullptr;
}

Arena* make(Api api, void* context) {
  // Mapped outside the lock: what a thread that lost the race has mapped is given back.
  auto* table = arena_count.load() == 0 ? memory::map_array<Arena>(kArenas) : nullptr;
  auto* lines = memory::map_array<Line>(kSlots);
  Arena* arena = nullptr;
  {
    SpinGuard guard(table_lock);
    const unsigned n = arena_count.load();
    if (arenas == nullptr) arenas = table, table = nullptr;
    arena = arenas != nullptr ? find(api, context) : nullptr;
    if (arena == nullptr && arenas != nullptr && lines != nullptr && n < kArenas) {
      arena = &arenas[n];
      arena->context = context, arena->api = api, arena->lines = lines, lines = nullptr;
      arena_count.store(n + 1, std::memory_order_release);
    }
  }
  memory::unmap_array(table, kArenas);
  memory::unmap_array(lines, kSlots);
  return arena;
}

/// A driver refuses some calls in a thread while a stream is being captured; in relaxed mode they leave the capture
/// alone.
class Relaxed {
 public:
  explicit Relaxed(const Driver& driver) : driver_(driver) {
    changed_ = driver.exchange_capture_mode != nullptr && driver.exchange_capture_mode(&mode_) == kSuccess;
  }
  ~Relaxed() {
    if (changed_) driver_.exchange_capture_mode(&mode_);
  }
  Relaxed(const Relaxed&) = delete;

 private:
  const Driver& driver_;
  int mode_ = kCaptureModeRelaxed;
  bool changed_;
};

/// Page-locks the lines for the current context: the first time, and when the context has been reset since, which the
/// driver shows by not knowing them. One thread does it, others go without a word meanwhile.
bool registered(const Driver& driver, Arena& arena) {
  void* device = nullptr;
  if (arena.ready.load(std::memory_order_acquire) && driver.device_pointer(&device, arena.lines, 0) == kSuccess)
      [[likely]]
    return true;
  if (arena.refusals >= 3 || arena.registering.exchange(true)) return false;
  bool good = false;
  {
    Relaxed relaxed(driver);
    good = driver.device_pointer(&device, arena.lines, 0) == kSuccess ||
           driver.host_register(arena.lines, kSlots * sizeof(Line), kPortableMapped) == kSuccess;
  }
  if (good) {
    SpinGuard guard(arena.lock);
    if (!arena.ready.load())  // nothing is under way to lines that the device did not know
      for (unsigned i = 0; i < kSlots; ++i)
        for (unsigned k = 0; k < 2; ++k)
          if (!arena.used[i]) arena.ticket[i][k] = arena.lines[i].word[k];
    arena.scratch = nullptr;
    arena.ready.store(true, std::memory_order_release);
  } else {
    ++arena.refusals;
    arena.ready.store(false);
  }
  arena.registering.store(false);
  return good;
}

bool idle(const Arena& arena, unsigned i) {
  for (unsigned k = 0; k < 2; ++k)
    if (static_cast<uint32_t>(__atomic_load_n(&arena.lines[i].word[k], __ATOMIC_ACQUIRE)) !=
        static_cast<uint32_t>(__atomic_load_n(&arena.ticket[i][k], __ATOMIC_ACQUIRE)))
      return false;
  return true;
}

/// Never 0 in its low half: that is what untouched memory holds.
uint64_t next_ticket() {
  uint64_t ticket = tickets.fetch_add(1, std::memory_order_relaxed) + 1;
  return static_cast<uint32_t>(ticket) != 0 ? ticket : tickets.fetch_add(1, std::memory_order_relaxed) + 1;
}

}  // namespace

bool slot_acquire(const Driver& driver, void* context, Slot* slot, Uncovered* why) {
  if (context == nullptr) return *why = Uncovered::kContext, false;
  Arena* arena = find(driver.api, context);
  if (arena == nullptr && (arena = make(driver.api, context)) == nullptr) return *why = Uncovered::kMemory, false;
  if (!registered(driver, *arena)) return *why = Uncovered::kRefused, false;
  SpinGuard guard(arena->lock);
  for (unsigned tried = 0; tried < kSlots; ++tried) {
    const unsigned i = arena->cursor++ % kSlots;
    if (!arena->used[i] && idle(*arena, i)) {
      arena->used[i] = true;
      *slot = {arena, i};
      return true;
    }
  }
  return *why = Uncovered::kMany, false;
}

void slot_release(Slot& slot) {
  if (slot.arena == nullptr) return;
  SpinGuard guard(slot.arena->lock);
  slot.arena->used[slot.index] = false;
  slot.arena->cursor = slot.index;  // the line that is in the cache comes first
  slot.arena = nullptr;
}

bool slot_idle(const Slot& slot) { return slot.arena != nullptr && idle(*slot.arena, slot.index); }

bool slot_of(const Slot& slot, const void* context) { return slot.arena != nullptr && slot.arena->context == context; }

bool word_append(const Driver& driver, const Slot& slot, unsigned which, void* stream, Word* word, Uncovered* why) {
  Arena& arena = *slot.arena;
  int capturing = 0;
  // For the legacy stream this fails while another stream that waits for it is being captured; either way, hands off.
  if (driver.is_capturing != nullptr && (driver.is_capturing(stream, &capturing) != kSuccess || capturing != 0))
    return *why = Uncovered::kCapture, false;
  uint64_t* at = &arena.lines[slot.index].word[which];
  void* device = nullptr;
  if (driver.device_pointer(&device, at, 0) != kSuccess) return *why = Uncovered::kRefused, false;
  const uint64_t ticket = next_ticket();
  const uint64_t before = arena.ticket[slot.index][which];
  __atomic_store_n(&arena.ticket[slot.index][which], ticket, __ATOMIC_RELEASE);
  int error = kNotSupported;
  bool low = false;
  if (driver.write_value != nullptr && !arena.filling.load(std::memory_order_relaxed)) {
    error = driver.write_value(stream, device, ticket, 0);
    if (error == kNotSupported && driver.fill != nullptr) arena.filling.store(true);
  }
  if (error == kNotSupported && driver.fill != nullptr)
    low = true, error = driver.fill(device, static_cast<unsigned>(ticket), 1, stream);
  if (error != kSuccess) {
    __atomic_store_n(&arena.ticket[slot.index][which], before, __ATOMIC_RELEASE);
    return *why = Uncovered::kRefused, false;
  }
  written_words.fetch_add(1, std::memory_order_relaxed);
  *word = {at, ticket, low};
  return true;
}

bool words_proved(const Slot& slot) { return slot.arena->proved.load(std::memory_order_relaxed); }

void word_seen(const Slot& slot) {
  if (slot.arena != nullptr && !slot.arena->proved.load(std::memory_order_relaxed))
    slot.arena->proved.store(true, std::memory_order_relaxed);
}

uint64_t words_written() { return written_words.load(); }
uint64_t arenas_made() { return arena_count.load(); }

uint64_t arenas_filling() {
  uint64_t n = 0;
  for (unsigned i = 0; i < arena_count.load(); ++i) n += arenas[i].filling.load() ? 1 : 0;
  return n;
}

bool enqueue_kernel(const Driver& driver, void* context, void* stream) {
  Slot slot;
  Uncovered why = Uncovered::kNone;
  int capturing = 0;
  if (driver.fill == nullptr || driver.allocate == nullptr || !slot_acquire(driver, context, &slot, &why)) return false;
  Arena& arena = *slot.arena;
  slot_release(slot);
  if (driver.is_capturing != nullptr && (driver.is_capturing(stream, &capturing) != kSuccess || capturing != 0))
    return false;
  void* scratch = __atomic_load_n(&arena.scratch, __ATOMIC_ACQUIRE);
  if (scratch == nullptr) {  // two threads may each allocate a few bytes, once
    Relaxed relaxed(driver);
    if (driver.allocate(&scratch, sizeof(uint32_t)) != kSuccess) return false;
    __atomic_store_n(&arena.scratch, scratch, __ATOMIC_RELEASE);
  }
  return driver.fill(scratch, 0, 1, stream) == kSuccess;
}

}  // namespace resil::gpu_runtime
