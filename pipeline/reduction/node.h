// SPDX-License-Identifier: Apache-2.0
//
// Which communicators reduce through node-local memory, and where in it. A rank's memory has bays; a communicator
// whose ranks all share a node takes one in each rank's. Whether it does is settled in its first blocking reduction, by
// one MPI_Allgather in which every rank names its bay or says that it has none, and is tied to the communicator as an
// attribute: so all its ranks know the same, whatever their tables have room for.
//
// Context: application's thread, in MPI_Init or inside a reduction.
#pragma once

#include <atomic>

#include "pipeline/reduction/call.h"
#include "pipeline/reduction/rings.h"

namespace resil::reduction {

/// Ranks of a communicator at most. Each reads what all others have written.
constexpr int kNodeRanks = 128;
/// Bytes of a vector that go through node-local memory at a time.
constexpr size_t kNodeSegment = 128 << 10;
/// Bytes of a vector at most that folds by groups.
constexpr size_t kNodeMostFolded = 1408 - sizeof(CellHead);

/// What is known of one communicator.
struct NodeGroup {
  bool shared;  ///< through node-local memory
  bool asked_large, large;  ///< so that segments and results may be used
  int32_t bay;  ///< of this rank's memory; -1: none
  char** bases;  ///< by rank: its bay
  Rings tiny, small, segments, results;
  std::atomic<bool> gone;  ///< the communicator has been freed
};

/// Before MPI_Init: makes this rank's memory, if it is not alone on its node. After it: is it the right rank's?
void node_prepare();
void node_connect();

/// Null: this communicator does not reduce that way. The same on all ranks.
NodeGroup* node_group(const Call& call);
/// Whether vectors beyond the smallest may: asks all ranks once.
bool node_group_large(const Call& call, NodeGroup& group);
/// More ranks on this node than processors that they may run on: who waits gives its own away at once.
bool node_is_crowded();

}  // namespace resil::reduction
