// SPDX-License-Identifier: Apache-2.0
//
// See held.h.

#include "shim/tables/held.h"

#include "shim/abi/backend.h"
#include "shim/base/spinlock.h"
#include "shim/tables/freed.h"

namespace resil {

uint32_t held_count;

namespace {

struct Held {
  uint64_t handle;
  uint32_t users;  ///< 0: free entry
  HeldKind kind;
  bool freed;  ///< by the program
};
constexpr uint32_t kMost = 1024;
Held table[kMost];
uint32_t used;  ///< entries from here on have never been taken
SpinLock lock;

Held* find(HeldKind kind, uint64_t handle) {
  for (uint32_t i = 0; i < used; ++i)
    if (table[i].users != 0 && table[i].handle == handle && table[i].kind == kind) return &table[i];
  return nullptr;
}

}  // namespace

bool hold(HeldKind kind, uint64_t handle) {
  SpinGuard guard(lock);
  if (Held* held = find(kind, handle); held != nullptr) {
    ++held->users;
    return true;
  }
  uint32_t place = 0;
  while (place < used && table[place].users != 0) ++place;
  if (place == kMost) return false;
  used = place == used ? used + 1 : used;
  table[place] = {handle, 1, kind, false};
  __atomic_fetch_add(&held_count, 1, __ATOMIC_RELAXED);
  return true;
}

void let_go(HeldKind kind, uint64_t handle) {
  bool free_now = false;
  {
    SpinGuard guard(lock);
    Held* held = find(kind, handle);
    if (held == nullptr || --held->users != 0) return;
    free_now = held->freed;
    __atomic_fetch_sub(&held_count, 1, __ATOMIC_RELAXED);
  }
  if (!free_now) return;
  handle_freed(kind == HeldKind::kOp ? HandleKind::kOp : HandleKind::kType, handle);
  if (kind == HeldKind::kOp) backend->collectives->op_free(handle);
  else backend->types->release(handle);
}

bool free_later(HeldKind kind, uint64_t handle) {
  SpinGuard guard(lock);
  Held* held = find(kind, handle);
  if (held == nullptr) return false;
  held->freed = true;
  return true;
}

}  // namespace resil
