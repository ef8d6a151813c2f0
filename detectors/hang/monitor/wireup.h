// SPDX-License-Identifier: Apache-2.0
//
// Who is on which node, who watches it, and how the nodes reach each other: agreed once, inside MPI_Init, over the
// private communicator. Application's thread.
#pragma once

#include <cstdint>

#include "detectors/hang/overlay/overlay.h"
#include "detectors/hang/reader/snapshot.h"

namespace resil::hang {

struct Wiring {
  bool alone;  ///< no private communicator: only the ranks of this node whose slots are found
  uint32_t node_count, own_node;
  uint32_t rank_count;  ///< of this node
  uint32_t unwatched;  ///< ranks of this node beyond kMaxWatched
  int32_t ranks[kMaxWatched];
  int32_t leader, standby;  ///< world ranks, -1: none
  NodeEntry* nodes;  ///< node_count of them; null with one node
  bool several_switches;  ///< by NodeEntry::network
  uint8_t key[16];
  int listener;  ///< of the leader and the standby; -1: none
};

/// Every rank of the job calls it, or none. False: this rank, which can give no slots (`usable`) or has no memory,
/// takes no part; the others know, and watch their own nodes.
bool wire_up(Wiring& wiring, bool usable);

}  // namespace resil::hang
