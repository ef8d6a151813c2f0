// SPDX-License-Identifier: Apache-2.0
//
// Blocking reductions by messages on resil's own communicator, along the canonical tree: no collective of the MPI
// library takes part, and every hop is a step in the flight recorder. docs/REDUCTIONS.md says when.
#pragma once

#include "pipeline/reduction/call.h"

namespace resil::reduction {

/// Names of the hops; once, when the ring is there.
void messages_prepare();
/// Can this reduction go that way? The same answer on all ranks.
bool messages_serve(const Call& call);
/// Should it, although nobody asked for it? With many ranks a tree takes fewer steps than an exchange of blocks.
bool messages_better(const Call& call);
constexpr int kTreeRanks = 64;  ///< from here on for vectors that are not gathered by everyone
constexpr int kFlatRanks = 1024;  ///< above for all that are short
constexpr int64_t kTreeBytes = 65536;  ///< of one contribution
int intercept_by_messages(const Call& call, uint64_t sequence, Thread& thread, Arena& arena);

}  // namespace resil::reduction
