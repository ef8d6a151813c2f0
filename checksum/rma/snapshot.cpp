// SPDX-License-Identifier: Apache-2.0
//
// RESIL_BLAME=full: what a window held when an epoch began, so that an operation that has written nothing is told from
// one that has written something wrong. Copied while nobody may access the window: in MPI_Win_post before the real
// call, in a fence that nothing precedes likewise, in other fences before the barrier that keeps everybody inside.

#include <cstring>

#include "checksum/rma/wire.h"
#include "shim/runtime/accelerators/host_memory.h"
#include "shim/runtime/memory.h"

namespace resil::rma {

namespace {

constexpr uint64_t kMostBytes = 64u << 20;  // of one window
constexpr uint64_t kMostOfAll = 512u << 20;  // of all, each window's three copies counted
uint64_t mapped;

bool make_room(Window& w, uint64_t bytes) {
  if (w.snapshot_bytes >= bytes) return true;
  snapshot_drop(w);
  if (__atomic_add_fetch(&mapped, 3 * bytes, __ATOMIC_RELAXED) > kMostOfAll) {
    __atomic_sub_fetch(&mapped, 3 * bytes, __ATOMIC_RELAXED);
    return false;
  }
  auto* memory = memory::map_array<char>(3 * bytes);
  if (memory == nullptr) {
    __atomic_sub_fetch(&mapped, 3 * bytes, __ATOMIC_RELAXED);
    return false;
  }
  w.snapshots[0] = memory;
  w.snapshots[1] = memory + bytes;
  w.snapshots[2] = memory + 2 * bytes;
  w.snapshot_bytes = bytes;
  return true;
}

}  // namespace

void snapshot_take(Window& w, bool next) {
  bool& good = next ? w.snapshot_next : w.snapshot_good;
  good = false;
  if (!next) w.snapshot_entered = false;
  const auto bytes = static_cast<uint64_t>(w.bytes);
  if (!ledger::full_blame() || w.why != Reason::kNone || w.off.load(std::memory_order_relaxed) || w.bytes <= 0 ||
      bytes > kMostBytes || w.flavor == WindowFlavor::kDynamic || !host_memory(w.base, bytes) || !make_room(w, bytes))
    return;
  memcpy(w.snapshots[next ? 1 - w.snapshot : w.snapshot], w.base, bytes);
  good = true;
}

void snapshot_enter(Window& w) {
  w.snapshot_entered = w.snapshot_good && w.snapshot_bytes >= static_cast<uint64_t>(w.bytes);
  if (w.snapshot_entered) memcpy(w.snapshots[2], w.base, static_cast<size_t>(w.bytes));
}

void snapshot_turn(Window& w) {
  w.snapshot_good = w.snapshot_next;
  w.snapshot_next = w.snapshot_entered = false;
  w.snapshot = 1 - w.snapshot;
}

void snapshot_drop(Window& w) {
  if (w.snapshot_bytes != 0) {
    memory::unmap(w.snapshots[0], 3 * w.snapshot_bytes);
    __atomic_sub_fetch(&mapped, 3 * w.snapshot_bytes, __ATOMIC_RELAXED);
  }
  w.snapshot_bytes = 0;
  w.snapshot = 0;
  w.snapshot_good = w.snapshot_next = w.snapshot_entered = false;
}

const char* snapshot_of(const Window& w) { return w.snapshot_good ? w.snapshots[w.snapshot] : nullptr; }

}  // namespace resil::rma
