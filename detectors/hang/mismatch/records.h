// SPDX-License-Identifier: Apache-2.0
//
// What a rank's flight records say of its collectives: where in the program they were called, and which ones they were,
// further back than its history remembers one by one.
#pragma once

#include "detectors/hang/mismatch/tree.h"
#include "detectors/hang/reader/snapshot.h"

namespace resil::hang {

/// Looks for the calls of `read` in the rank's flight records and leaves their sites with the claims that have none.
/// `index` is the communicator's in section "comms". A record that does not fit ends the search: no site is better than
/// a wrong one.
void add_sites(Tree& tree, const Watched& rank, uint32_t index, const HistoryRead& read);

constexpr uint32_t kMaxEarlier = 16;  ///< calls that add_earlier adds

/// Adds the rank's calls `from`..`from` + kMaxEarlier - 2, and the hash before them, where its history has forgotten
/// them and its flight records have not. `read`: as read from that history, and in the tree. What is added is true like
/// any other claim: the records between two check points must carry the hash from one to the other. Room:
/// kMaxEarlier claims.
void add_earlier(Tree& tree, const Watched& rank, uint32_t index, const HistoryRead& read, uint64_t from);

/// A rank of this node, and what was read of its history.
struct Side {
  const Watched* rank;
  uint32_t index;
  const HistoryRead* read;
};

/// The first call in which the two ranks are not alike, out of their flight records; 0: these do not reach back so far.
/// Calls 1..`after` are known to be the same, and 1..`before` not to be. `room`: kRecordsPerTrace numbers.
uint64_t first_difference(const Side& one, const Side& other, uint64_t after, uint64_t before, uint64_t* room);

}  // namespace resil::hang
