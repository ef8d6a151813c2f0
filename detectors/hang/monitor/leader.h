// SPDX-License-Identifier: Apache-2.0
//
// Who watches a node. Its lowest rank has the one helper thread ("resil-hang"); its second rank has a thread that
// sleeps and takes over when the first is dead or stopped; then the next MPI call in a third rank starts the next
// standby. A rank wedged in MPI cannot start a thread, so the standby must be there before it is needed.
#pragma once

#include <cstdint>

#include "detectors/hang/monitor/wireup.h"

namespace resil::hang {

/// The node's control, in a rank that may still offer itself as standby; null in all others.
extern ControlBlock* offer_control;

/// In MPI_Init: keeps the wiring, starts this rank's thread if it has a part. Application's thread.
void leader_start(const Wiring& wiring);

/// Nobody sleeps beside the leader of this node: this rank offers itself. Inside an MPI call, any thread; once a rank.
void leader_offer();
/// For the call path: one load of a line that hardly ever changes.
inline bool standby_wanted() {
  return offer_control != nullptr && __atomic_load_n(&offer_control->standby, __ATOMIC_RELAXED) == 0;
}

/// After MPI_Finalize: the unmatched messages of this node, then this rank's thread goes, and the other one takes over
/// if ranks are left. Waits `seconds` at most.
void leader_end(double seconds);

/// The job is about to be ended: has the calls of all ranks compared once more, and what differs said. Waits until
/// that is done, `seconds` at most. Application's thread, inside a call, also in a signal handler.
void leader_last_look(bool by_library, double seconds);

/// Of the helper thread, for the report.
struct LeaderReport {
  uint32_t role;  ///< 0 none, 1 leader, 2 standby
  uint64_t turns, takeovers;
  double cpu_seconds;  ///< of the helper thread
};
LeaderReport leader_report();

}  // namespace resil::hang
