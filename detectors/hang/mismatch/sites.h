// SPDX-License-Identifier: Apache-2.0
//
// Where in the program a collective was called: from the flight records of its rank.
#pragma once

#include "detectors/hang/mismatch/tree.h"
#include "detectors/hang/reader/snapshot.h"

namespace resil::hang {

/// Looks for the calls of `read` in the rank's flight records and leaves their sites with the claims that have none.
/// `index` is the communicator's in section "comms". A record that does not fit ends the search: no site is better than
/// a wrong one.
void add_sites(Tree& tree, const Watched& rank, uint32_t index, const HistoryRead& read);

}  // namespace resil::hang
