// SPDX-License-Identifier: Apache-2.0
//
// The writing side of Section::windows: numbers of the calls that are collective over a window. A window is used by one
// thread at a time in such calls; slots are given and taken under a lock.

#include "detectors/hang/writer_internal.h"
#include "shim/hash.h"
#include "shim/spinlock.h"

namespace resil::hang {

namespace {

SpinLock lock;

WindowSlot* find(uint64_t handle) {
  const int index = window_index(handle);
  return index >= 0 ? &writer.section->windows[index] : nullptr;
}

}  // namespace

int window_index(uint64_t handle) {
  for (uint32_t i = 0; i < kWindows; ++i)
    if (const WindowSlot& slot = writer.section->windows[i]; __atomic_load_n(&slot.id, __ATOMIC_ACQUIRE) != 0 && slot.handle == handle)
      return static_cast<int>(i);
  return -1;
}

void window_made(Event& e, uint64_t sequence) {
  if (sequence == 0 || !can_be_counted(e.comm) || e.comm->remote_size >= 0 || backend->windows == nullptr)
    return;
  const uint64_t handle = backend->windows->handle_at(e.message);
  SpinGuard guard(lock);
  for (WindowSlot& slot : writer.section->windows) {
    if (slot.id != 0)
      continue;
    slot.handle = handle;
    __atomic_store_n(&slot.ordered, 0, __ATOMIC_RELAXED);
    slot.rank = e.comm->rank;
    slot.size = e.comm->size;
    slot.comm = e.comm->index;
    epochs_begin(static_cast<uint32_t>(&slot - writer.section->windows), *e.comm);
    __atomic_store_n(&slot.id, hash_combine(hash_combine(0x77696e646f77, e.comm->ring->id), sequence), __ATOMIC_RELEASE);
    return;
  }
}

void window_enter(Event& e, Wait& wait) {
  WindowSlot* slot = find(e.object);
  wait.peer = ring::kNoPeer;
  wait.sequence = slot != nullptr ? bump(slot->ordered) : 0;
  wait.keys[0] = slot != nullptr ? slot->id : 0;
  // With MPI_MODE_NOPRECEDE the fence ends no epoch and need not wait (MPI 4.0, 12.5.1).
  wait.flags = e.id == CallId::kMPI_Win_fence && (backend->windows == nullptr || backend->windows->no_precede(e.assertion))
                   ? kEmptyHere
                   : 0;
}

void window_freed(const Event& e) {
  SpinGuard guard(lock);
  if (WindowSlot* slot = find(e.object); slot != nullptr)
    __atomic_store_n(&slot->id, 0, __ATOMIC_RELEASE);
}

}  // namespace resil::hang
