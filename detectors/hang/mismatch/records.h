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

}  // namespace resil::hang
