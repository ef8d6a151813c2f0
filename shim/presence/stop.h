// SPDX-License-Identifier: Apache-2.0
//
// The end of a job whose configuration cannot be used.
#pragma once

#include "shim/presence/identity.h"

namespace resil {

/// Ends this process with exit status 93. `one_line` (without newline) is printed once for the job as far as that can
/// be known: by `printing_rank`, at once; the other ranks wait up to 2 seconds for the launcher to end them, then
/// leave silently. `printing_rank` -1: not known whether any other rank has this problem. Rank 0 then prints at once,
/// the others after those 2 seconds. A process that does not know its rank prints at once. Application's thread, before
/// or straight after PMPI_Init; runs no exit handlers (those of the MPI library might wait for ranks that are gone).
[[noreturn]] void stop_configuration(const LaunchIdentity& identity, const char* one_line, int printing_rank);

}  // namespace resil
