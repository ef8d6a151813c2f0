// SPDX-License-Identifier: Apache-2.0
//
// RESIL_HANG=abort: how a node's ranks leave. Not by MPI_Abort, which may hang with the rest: a real-time signal whose
// handler does nothing but _exit(92), SIGKILL after two seconds for those that stay, and the helper's own process last.
// Under Slurm's PMIx and PRRTE, which make 143, 137 or 14 of ranks that leave one after the other, PMIx_Abort tells the
// status (PMI-1's abort under hydra, which makes 9 of it), and the handler waits until the launcher has ended all, at
// most 1.5 s. Under ORTE (Open MPI 3 and 4), whose mpirun hangs or crashes in PMIx_server_finalize when several ranks
// leave at once while another is in MPI_Finalize, the root's rank leaves and the others wait likewise.
#pragma once

#include "detectors/hang/reader/watch.h"

namespace resil::hang {

constexpr int kExitHang = 92;

/// In MPI_Init, with RESIL_HANG=abort: installs the handler on a real-time signal that nobody uses. Returns it; 0:
/// none.
int action_install();

/// Helper thread of the root, once, before the ranks are told: where the launcher wants the job's status from us, it
/// gets it, and where one rank has to leave before the others, action_step() makes this one leave.
void action_tell_launcher(bool several_nodes);
/// Helper thread: sends the signal to all ranks of the node but this one.
void action_begin(Watch& watch);
/// -1: nothing is under way; 0: the others are gone (or were killed) and this process may go; else seconds to wait.
double action_step(Watch& watch, double now);
/// This process goes. Does not return.
[[noreturn]] void action_end();

}  // namespace resil::hang
