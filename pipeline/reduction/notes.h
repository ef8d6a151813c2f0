// SPDX-License-Identifier: Apache-2.0
//
// What the ordered reductions say. See shim/report/message.h.
#pragma once

#include "shim/report/message.h"

namespace resil::messages::reduction {

RESIL_MESSAGE(native, note, "reductions: MPI reduces some calls itself, in an order of its choice: %s",
              "RESIL_REDUCE does not hold for these calls: their results may differ from run to run.",
              "docs/REDUCTIONS.md lists what is not carried out by resil.");
RESIL_PHRASE(some_without, "some rank of the job runs without resil");
RESIL_PHRASE(other_world, "the communicator has members in another world");
RESIL_PHRASE(too_large, "the data is too large to be gathered");
RESIL_PHRASE(no_persistent, "this MPI has no persistent collective to build on");
RESIL_MESSAGE(too_many_pending, log,
              "nonblocking reductions use more than 1024 operators and datatypes at a time: the job ends",
              "The table of operators and datatypes in use is full.",
              "Complete reductions before starting more, or set RESIL_REDUCE=native.");
RESIL_MESSAGE(no_memory, log, "no memory for a reduction (%zu bytes): the job ends. RESIL_REDUCE=native needs none.",
              "Contributions are gathered before they are added.",
              "Set RESIL_REDUCE=native, or use fewer ranks a node.");

}  // namespace resil::messages::reduction
