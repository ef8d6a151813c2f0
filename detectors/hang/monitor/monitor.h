// SPDX-License-Identifier: Apache-2.0
//
// The work of a node's leader: samples its ranks, answers the root's rounds, and is the root itself on node 0. All
// functions on the helper thread, but monitor_wake (any thread).
#pragma once

#include <cstdint>

#include "detectors/hang/mismatch/mismatch.h"
#include "detectors/hang/monitor/rounds.h"
#include "detectors/hang/monitor/wireup.h"

namespace resil::hang {

/// Maps the rings of the node's ranks for a later monitor_begin: those of ranks that are gone by then cannot be told
/// from the remains of an earlier job. True: nothing is left to do.
bool monitor_stand_by(const Wiring& wiring);
/// False: no memory; this node is then not watched. `control` is the node's.
bool monitor_begin(Wiring& wiring, ControlBlock& control);
/// Does what is due; returns seconds until something is due again.
double monitor_step(double now);
/// monitor_step waits on the overlay's sockets itself.
bool monitor_waits();
void monitor_wake();
/// After MPI_Finalize: what was sent and never received, if the counters of all ranks can be had.
void monitor_unmatched();
/// What the comparison of collectives covered, for the report; also after monitor_end.
MismatchCoverage monitor_compared();
void monitor_end();

}  // namespace resil::hang
