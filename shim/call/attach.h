// SPDX-License-Identifier: Apache-2.0
//
// The life of the library in a process: not there until the first MPI_Init (any route), attached, finished.
#pragma once

#include <cstddef>
#include <cstdint>

#include "shim/call/runtime.h"

namespace resil {

/// Is any mode on? Read once from RESIL_MODE; an unusable value counts as on and is reported in MPI_Init.
bool mode_is_on();
/// From now on it is off: this MPI's binary interface is not known. Said once a job. Before anything else of this file.
void mode_switch_off(const char* mpi_library);

/// Entering MPI_Init by any route. Reads the configuration (may stop the process with exit status 93), makes the ring,
/// publishes this rank's presence, calls before_init. False: resil stays out (forked child, no memory).
bool attach_begin(bool sessions);
/// After the real one returned `result`.
void attach_end(int result, bool sessions);
/// An MPI that was initialised out of resil's sight: both halves at once, local work only.
bool attach_late();

/// Around the real MPI_Finalize (or the last MPI_Session_finalize).
void finish_begin();
void finish_end();
/// In place of finish_end() in a process that ends right then, inside a call of the program's.
void finish_apart();
/// Before the real MPI_Abort.
void finish_abort(int errorcode);
/// Before resil ends the job itself (stop_job): reports as `stopped` with that exit status.
void finish_stopped(int exit_status);

/// Ends this process with exit status 93 and that line, for modules that cannot do what they are asked for. From
/// before_init or after_init.
[[noreturn]] void stop_unusable(const char* line);

/// One MPI_Session_finalize; true when it was the last and MPI_COMM_WORLD is not in use.
bool session_closed();

bool runtime_attached();
/// Does MPI_COMM_WORLD exist (between MPI_Init's return and MPI_Finalize)?
bool runtime_has_world();

/// Calls of this rank that were recorded.
uint64_t calls_made();

/// What resil itself cost this rank so far: measured in MPI_Init and MPI_Finalize, and for the calls their number times
/// the cost of one, measured in MPI_Init. Without writing the last report and the ring.
double overhead_seconds();

/// The private communicator (handle bits); 0 when there is none: not every rank is known to are preloaded.
uint64_t private_comm();
/// Do all ranks of MPI_COMM_WORLD carry this version of resil with the same modes?
bool all_ranks_present();

}  // namespace resil
