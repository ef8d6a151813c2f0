// SPDX-License-Identifier: Apache-2.0
//
// Blocking reductions by collectives that move data. Each returns MPI's code; scratch is the calling thread's.
#pragma once

#include "pipeline/reduction/call.h"

namespace resil::reduction {

int intercept_blocking(const Call& call, Arena& arena);

/// Up to this many bytes of all contributions together are gathered by everyone; above, blocks are exchanged. The same
/// on all ranks.
constexpr int64_t kGathered = int64_t{64} << 10;
/// Bytes of a vector that are reduced at a time.
constexpr int64_t kSegment = int64_t{4} << 20;

}  // namespace resil::reduction
