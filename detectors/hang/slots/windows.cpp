// SPDX-License-Identifier: Apache-2.0
//
// The writing side of Section::windows and files: numbers of the calls that are collective over one. It is used by one
// thread at a time in such calls; slots are given and taken under a lock.

#include <atomic>

#include "detectors/hang/slots/writer_internal.h"
#include "shim/base/hash.h"
#include "shim/base/spinlock.h"

namespace resil::hang {

namespace {

SpinLock lock;

WindowSlot* find(uint64_t handle) {
  const int index = window_index(handle);
  return index >= 0 ? &writer.section->windows[index] : nullptr;
}

}  // namespace

namespace {

/// Where a handle was found last, by a hash of it: looked at first, whatever has become of it.
constinit std::atomic<uint8_t> last_places[256];
static_assert(kWindows <= 256);
/// Windows that have no slot, by a hash of them: made when there was none, so that they never get one.
constinit std::atomic<uint64_t> without[1024];

uint64_t hash_of(uint64_t handle) { return handle * 0x9e3779b97f4a7c15; }
std::atomic<uint64_t>& without_place(uint64_t handle) { return without[hash_of(handle) >> 54]; }

bool is_there(uint32_t place, uint64_t handle) {
  const WindowSlot& slot = writer.section->windows[place];
  return __atomic_load_n(&slot.id, __ATOMIC_ACQUIRE) != 0 && slot.handle == handle;
}

}  // namespace

int window_index(uint64_t handle) {
  if (is_there(0, handle)) return 0;  // most programs have one
  auto& last = last_places[hash_of(handle) >> 56];
  if (const uint32_t place = last.load(std::memory_order_relaxed); place < kWindows && is_there(place, handle))
      [[likely]]
    return static_cast<int>(place);
  auto& none = without_place(handle);
  if (none.load(std::memory_order_relaxed) == handle && handle != 0) return -1;
  for (uint32_t place = 0; place < kWindows; ++place)
    if (is_there(place, handle)) {
      last.store(static_cast<uint8_t>(place), std::memory_order_relaxed);
      return static_cast<int>(place);
    }
  none.store(handle, std::memory_order_relaxed);
  return -1;
}

namespace {

/// A free slot for what was made by collective number `sequence` of the communicator; null: none, or it cannot be
/// numbered.
template <uint32_t count>
WindowSlot* take(WindowSlot (&slots)[count], Event& e, uint64_t sequence, uint64_t handle, uint64_t salt,
                 uint64_t* id) {
  if (sequence == 0 || !can_be_counted(e.comm) || e.comm->remote_size >= 0 || e.comm->ring->flags != 0) return nullptr;
  for (WindowSlot& slot : slots) {
    if (slot.id != 0) continue;
    slot.handle = handle;
    __atomic_store_n(&slot.ordered, 0, __ATOMIC_RELAXED);
    slot.rank = e.comm->rank;
    slot.size = e.comm->size;
    slot.comm = e.comm->index;
    slot.site = e.site;
    *id = hash_combine(hash_combine(salt, e.comm->ring->id), sequence);
    return &slot;
  }
  return nullptr;
}

WindowSlot* find_file(uint64_t handle) {
  for (WindowSlot& slot : writer.section->files)
    if (__atomic_load_n(&slot.id, __ATOMIC_ACQUIRE) != 0 && slot.handle == handle) return &slot;
  return nullptr;
}

}  // namespace

void window_made(Event& e, uint64_t sequence) {
  if (backend->windows == nullptr) return;
  SpinGuard guard(lock);
  uint64_t id = 0;
  const uint64_t handle = backend->windows->handle_at(e.new_window);
  WindowSlot* slot = take(writer.section->windows, e, sequence, handle, 0x77696e646f77, &id);
  if (auto& none = without_place(handle); none.load(std::memory_order_relaxed) == handle)
    none.store(0, std::memory_order_relaxed);  // that was of a window that is gone
  if (slot == nullptr) return;
  epochs_begin(static_cast<uint32_t>(slot - writer.section->windows), *e.comm);
  __atomic_store_n(&slot->id, id, __ATOMIC_RELEASE);
}

void file_made(Event& e, uint64_t sequence) {
  if (backend->windows == nullptr) return;
  SpinGuard guard(lock);
  uint64_t id = 0;
  WindowSlot* slot = take(writer.section->files, e, sequence, backend->windows->file_at(e.new_file), 0x66696c65, &id);
  if (slot != nullptr) __atomic_store_n(&slot->id, id, __ATOMIC_RELEASE);
}

void file_enter(Event& e, Wait& wait) {
  WindowSlot* slot = find_file(e.object);
  wait.peer = ring::kNoPeer;
  wait.sequence = slot != nullptr ? bump(slot->ordered) : 0;
  wait.keys[0] = slot != nullptr ? slot->id : 0;
  wait.flags = (e.attributes & kCallHasData) != 0 && e.bytes == 0 ? kEmptyHere : 0;
}

void file_closing(const Event& e) {
  SpinGuard guard(lock);
  if (WindowSlot* slot = find_file(e.object); slot != nullptr) slot->handle = 0;
}

void file_forget(uint64_t id) {
  SpinGuard guard(lock);
  for (WindowSlot& slot : writer.section->files)
    if (id != 0 && slot.id == id) __atomic_store_n(&slot.id, 0, __ATOMIC_RELEASE);
}

void file_freed(const Event& e, uint64_t id) {
  SpinGuard guard(lock);
  for (const WindowSlot& slot : writer.section->files)
    if (id != 0 && slot.id == id) object_freed(e, slot, false);
}

void window_enter(Event& e, Wait& wait) {
  WindowSlot* slot = find(e.object);
  wait.peer = ring::kNoPeer;
  wait.sequence = slot != nullptr ? bump(slot->ordered) : 0;
  wait.keys[0] = slot != nullptr ? slot->id : 0;
  // With MPI_MODE_NOPRECEDE the fence ends no epoch and need not wait (MPI 4.0, 12.5.1).
  wait.flags = call_info(e.id).window == WindowCall::kFence &&
                       (backend->windows == nullptr || backend->windows->no_precede(e.assertion))
                   ? kEmptyHere
                   : 0;
}

void window_freed(const Event& e) {
  SpinGuard guard(lock);
  WindowSlot* slot = find(e.object);
  if (slot == nullptr) return;
  const bool uncounted = epochs_end(static_cast<uint32_t>(slot - writer.section->windows));
  object_freed(e, *slot, uncounted);
  __atomic_store_n(&slot->id, 0, __ATOMIC_RELEASE);
}

}  // namespace resil::hang
