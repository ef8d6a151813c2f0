// SPDX-License-Identifier: Apache-2.0
//
// See events.h.

#include "detectors/gpu_runtime/events.h"

#include "shim/base/spinlock.h"
#include "shim/runtime/memory.h"

namespace resil::gpu_runtime {

namespace {

constexpr unsigned kEntries = 4096, kProbes = 16;

struct Entry {
  void* event;
  Api api;
  bool exported;  // other processes may record it
  bool tainted;  // two threads recorded it at the same time
  uint32_t recorders;  // threads that are recording it
  uint64_t generation;
  Slot slot;
  EventWords words;
};

constinit Entry* table;
constinit SpinLock lock;
constinit std::atomic<bool> graphs;

bool room() {
  if (__atomic_load_n(&table, __ATOMIC_ACQUIRE) != nullptr) return true;
  auto* made = memory::map_array<Entry>(kEntries);
  if (made == nullptr) return false;
  Entry* expected = nullptr;
  if (!__atomic_compare_exchange_n(&table, &expected, made, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
    memory::unmap_array(made, kEntries);
  return true;
}

/// Under the lock. Entries are never moved; one that is free ends no search.
Entry* find(Api api, void* event, bool add) {
  const auto at = reinterpret_cast<uintptr_t>(event);
  const unsigned start = static_cast<unsigned>((at * 0x9E3779B97F4A7C15u) >> 40);
  Entry* free = nullptr;
  for (unsigned i = 0; i < kProbes; ++i) {
    Entry& entry = table[(start + i) % kEntries];
    if (entry.event == event && entry.api == api) return &entry;
    if (entry.event == nullptr && free == nullptr) free = &entry;
  }
  if (!add || free == nullptr) return nullptr;
  free->event = event, free->api = api, free->exported = free->tainted = false, free->recorders = 0, free->words = {};
  return free;
}

}  // namespace

void event_recording(const Driver& driver, void* event, void* stream) {
  if (!room()) return;
  Slot slot;
  {
    SpinGuard guard(lock);
    Entry* entry = find(driver.api, event, true);
    if (entry == nullptr || entry->exported) return;
    entry->tainted = entry->tainted || entry->recorders != 0;
    ++entry->recorders;
    ++entry->generation;
    entry->words = {};
    if (entry->tainted) return;
    slot = entry->slot;
    entry->slot = {};
  }
  Current current(driver, stream);
  Uncovered why = Uncovered::kNone;
  EventWords words;
  words.stream = stream;
  // A word has one write outstanding at most: an event that is recorded anew before its last record is complete gets
  // others.
  if (slot.arena != nullptr && (!slot_idle(slot) || !slot_of(slot, current.context()))) slot_release(slot);
  if (slot.arena == nullptr) slot_acquire(driver, current.context(), &slot, &why);
  if (slot.arena != nullptr) word_append(driver, slot, 0, stream, &words.before, &why);
  SpinGuard guard(lock);
  Entry* entry = find(driver.api, event, false);
  if (entry == nullptr || entry->tainted || entry->recorders == 0) {  // another thread is at this event
    slot_release(slot);
    return;
  }
  entry->slot = slot;
  entry->words = words;
}

void event_recorded(const Driver& driver, void* event, void* stream, bool recorded) {
  if (__atomic_load_n(&table, __ATOMIC_ACQUIRE) == nullptr) return;
  Slot slot;
  Word after;
  {
    SpinGuard guard(lock);
    Entry* entry = find(driver.api, event, false);
    if (entry == nullptr || entry->recorders == 0) return;
    if (recorded && !entry->tainted && entry->words.before.armed()) slot = entry->slot;
  }
  if (slot.arena != nullptr) {
    Uncovered why = Uncovered::kNone;
    Current current(driver, stream);
    if (!slot_of(slot, current.context()) || !word_append(driver, slot, 1, stream, &after, &why)) after = {};
  }
  SpinGuard guard(lock);
  Entry* entry = find(driver.api, event, false);
  if (entry == nullptr || entry->recorders == 0) return;
  // Which of two threads came last is not known: nothing is until the event is recorded again.
  if (!recorded || entry->tainted) entry->words = {};
  else entry->words.after = after;
  if (--entry->recorders == 0) entry->tainted = false;
  entry->words.generation = ++entry->generation;
}

void event_forget(Api api, void* event, bool exported) {
  if (!exported && __atomic_load_n(&table, __ATOMIC_ACQUIRE) == nullptr) return;
  if (exported && !room()) return;
  SpinGuard guard(lock);
  Entry* entry = find(api, event, exported);
  if (entry == nullptr) return;
  slot_release(entry->slot);
  entry->words = {}, entry->exported = exported, entry->recorders = 0, entry->tainted = false;
  ++entry->generation;
  if (!exported) entry->event = nullptr;
}

void events_in_graphs() { graphs.store(true); }

EventWords event_words(Api api, void* event) {
  if (__atomic_load_n(&table, __ATOMIC_ACQUIRE) == nullptr || graphs.load(std::memory_order_relaxed)) return {};
  SpinGuard guard(lock);
  const Entry* entry = find(api, event, false);
  if (entry == nullptr || entry->recorders != 0) return {};
  return entry->words;
}

bool event_unchanged(Api api, void* event, const EventWords& words) {
  if (graphs.load(std::memory_order_relaxed)) return false;
  SpinGuard guard(lock);
  const Entry* entry = find(api, event, false);
  return entry != nullptr && entry->generation == words.generation;
}

}  // namespace resil::gpu_runtime
