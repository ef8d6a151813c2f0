// SPDX-License-Identifier: Apache-2.0
//
// The pool of pinned host memory. All that moves between host and device passes through it: only page-locked memory can
// be copied asynchronously, and page-locking takes milliseconds, so it is had up front and kept. Visible to all
// devices.
//
// Bounded: RESIL_STAGE_MEMORY bytes for a rank. It grows by doubling from its first slab until there, when nothing
// fits; never shrinks. Application's threads; locks for a few instructions, never across a runtime's call that may
// wait, but for growing.
#pragma once

#include <cstddef>
#include <cstdint>

#include "pipeline/gpu/gpu.h"

namespace resil::gpu {

/// Makes the first slab, when the first device buffer is seen; more is had when needed. `limit` bytes at most.
/// False: the runtime would not give any.
bool pinned_prepare(Device& device, size_t limit);

/// 256-byte aligned; null: out of pinned memory now (blocks that are given back may make room), or more than the limit.
void* pinned_acquire(Device& device, size_t bytes);
void pinned_release(void* block);

struct PinnedUse {
  uint64_t bytes, limit, most_used, used, slabs, refused;  ///< refused: acquisitions that found no room
};
PinnedUse pinned_use();

}  // namespace resil::gpu
