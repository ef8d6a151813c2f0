// SPDX-License-Identifier: Apache-2.0
//
// See deferred_free.h.

#include "shim/tables/deferred_free.h"

#include "shim/abi/backend.h"
#include "shim/base/spinlock.h"
#include "shim/tables/freed.h"

namespace resil {

uint32_t deferred_free_count;

namespace {

struct DeferredFree {
  uint64_t handle;
  uint32_t users;  ///< 0: free entry
  FreedKind kind;
  bool freed;  ///< by the program
};
constexpr uint32_t kMost = 1024;
DeferredFree table[kMost];
uint32_t used;  ///< entries from here on have never been taken
SpinLock lock;

DeferredFree* find(FreedKind kind, uint64_t handle) {
  for (uint32_t i = 0; i < used; ++i)
    if (table[i].users != 0 && table[i].handle == handle && table[i].kind == kind) return &table[i];
  return nullptr;
}

}  // namespace

bool keep_handle(FreedKind kind, uint64_t handle) {
  SpinGuard guard(lock);
  if (DeferredFree* held = find(kind, handle); held != nullptr) {
    ++held->users;
    return true;
  }
  uint32_t place = 0;
  while (place < used && table[place].users != 0) ++place;
  if (place == kMost) return false;
  used = place == used ? used + 1 : used;
  table[place] = {handle, 1, kind, false};
  __atomic_fetch_add(&deferred_free_count, 1, __ATOMIC_RELAXED);
  return true;
}

void release_handle(FreedKind kind, uint64_t handle) {
  bool free_now = false;
  {
    SpinGuard guard(lock);
    DeferredFree* held = find(kind, handle);
    if (held == nullptr || --held->users != 0) return;
    free_now = held->freed;
    __atomic_fetch_sub(&deferred_free_count, 1, __ATOMIC_RELAXED);
  }
  if (!free_now) return;
  handle_freed(kind == FreedKind::kOp ? HandleKind::kOp : HandleKind::kType, handle);
  if (kind == FreedKind::kOp) backend->collectives->op_free(handle);
  else backend->types->release(handle);
}

bool defer_handle_free(FreedKind kind, uint64_t handle) {
  SpinGuard guard(lock);
  DeferredFree* held = find(kind, handle);
  if (held == nullptr) return false;
  held->freed = true;
  return true;
}

}  // namespace resil
