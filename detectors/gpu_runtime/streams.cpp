// SPDX-License-Identifier: Apache-2.0
//
// See streams.h.

#include "detectors/gpu_runtime/streams.h"

#include <sched.h>

#include "shim/base/spinlock.h"
#include "shim/runtime/memory.h"

namespace resil::gpu_runtime {

namespace {

constexpr unsigned kEntries = 1024;

constinit StreamEntry* table;
constinit SpinLock lock;
constinit unsigned used;  // entries ever used
constinit std::atomic<bool> seen[3], per_thread[3];  // by Api

/// Room is had on first use; a process without a device has none.
bool room() {
  if (__atomic_load_n(&table, __ATOMIC_ACQUIRE) != nullptr) return true;
  auto* made = memory::map_array<StreamEntry>(kEntries);
  if (made == nullptr) return false;
  StreamEntry* expected = nullptr;
  if (!__atomic_compare_exchange_n(&table, &expected, made, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
    memory::unmap_array(made, kEntries);
  return true;
}

bool taken(const StreamEntry& entry) { return entry.context != nullptr; }

/// Under the lock. The few special handles (default streams) exist once a context.
StreamEntry* find(Api api, void* context, void* handle) {
  const bool special = reinterpret_cast<uintptr_t>(handle) <= 2;
  for (unsigned i = 0; i < used; ++i) {
    StreamEntry& entry = table[i];
    if (entry.handle == handle && taken(entry) && entry.api == api && (!special || entry.context == context))
      return &entry;
  }
  return nullptr;
}

StreamEntry* add(Api api, void* context, void* handle) {
  StreamEntry* entry = nullptr;
  for (unsigned i = 0; i < used && entry == nullptr; ++i)
    if (!taken(table[i]) && table[i].users.load(std::memory_order_acquire) == 0) entry = &table[i];
  if (entry == nullptr) {
    if (used == kEntries) return nullptr;
    entry = &table[used++];
  }
  entry->handle = handle, entry->context = context, entry->api = api, entry->made = false;
  entry->blocking = true, entry->word = {}, entry->consumed = false;
  return entry;
}

void forget(StreamEntry& entry) {
  slot_release(entry.slot);
  entry.word = {};
  entry.context = nullptr, entry.handle = nullptr;
}

}  // namespace

void stream_made(Api api, void* context, void* handle, unsigned flags) {
  if (context == nullptr || !room()) return;
  SpinGuard guard(lock);
  StreamEntry* entry = find(api, context, handle);
  if (entry != nullptr && entry->users.load() == 0) forget(*entry);  // its end was not seen
  entry = add(api, context, handle);
  if (entry != nullptr) entry->made = true, entry->blocking = (flags & 1) == 0;
}

void stream_gone(Api api, void* handle) {
  if (__atomic_load_n(&table, __ATOMIC_ACQUIRE) == nullptr) return;
  StreamEntry* entry;
  {
    SpinGuard guard(lock);
    entry = find(api, nullptr, handle);
    if (entry == nullptr) return;
    entry->handle = reinterpret_cast<void*>(~uintptr_t{0});  // nobody takes it up from here
  }
  while (entry->users.load(std::memory_order_acquire) != 0) sched_yield();
  SpinGuard guard(lock);
  forget(*entry);
}

StreamEntry* stream_hold(Api api, void* context, void* handle) {
  if (context == nullptr || !room()) return nullptr;
  SpinGuard guard(lock);
  StreamEntry* entry = find(api, context, handle);
  if (entry == nullptr) entry = add(api, context, handle);
  if (entry != nullptr) entry->users.fetch_add(1, std::memory_order_acq_rel);
  return entry;
}

void stream_release(StreamEntry* entry) { entry->users.fetch_sub(1, std::memory_order_release); }

unsigned streams_hold(Api api, void* context, StreamEntry** entries, unsigned capacity, bool* more) {
  unsigned n = 0;
  *more = false;
  if (__atomic_load_n(&table, __ATOMIC_ACQUIRE) == nullptr) return 0;
  SpinGuard guard(lock);
  for (unsigned i = 0; i < used; ++i) {
    StreamEntry& entry = table[i];
    if (!entry.made || entry.context != context || entry.api != api ||
        entry.handle == reinterpret_cast<void*>(~uintptr_t{0}))
      continue;
    if (n == capacity) {
      *more = true;
      break;
    }
    entry.users.fetch_add(1, std::memory_order_acq_rel);
    entries[n++] = &entry;
  }
  return n;
}

bool default_stream_safe(const Driver& driver, void* context) {
  constexpr unsigned kMost = 64;
  StreamEntry* entries[kMost];
  bool more = false, idle = true;
  if (!streams_known(driver.api) || per_thread[static_cast<unsigned>(driver.api)].load(std::memory_order_relaxed))
    return false;
  const unsigned n = streams_hold(driver.api, context, entries, kMost, &more);
  for (unsigned i = 0; i < n; ++i) {
    idle = idle && (!entries[i]->blocking || driver.stream_query(entries[i]->handle) == kSuccess);
    stream_release(entries[i]);
  }
  return idle && !more;
}

void stream_per_thread_seen(Api api) { per_thread[static_cast<unsigned>(api)].store(true, std::memory_order_relaxed); }

void streams_all_seen(Api api) { seen[static_cast<unsigned>(api)].store(true); }
bool streams_known(Api api) { return seen[static_cast<unsigned>(api)].load(); }

}  // namespace resil::gpu_runtime
