// SPDX-License-Identifier: Apache-2.0
//
// What state dumps say. See shim/report/message.h. scripts/resil knows the words "does not dump state" and "could not
// be taken back".
#pragma once

#include "shim/report/message.h"

namespace resil::messages::dump {

RESIL_MESSAGE(no_memory, note, "no state dumps: no memory for them", "The workspace of dumps could not be mapped.",
              "Look at the memory limit of the job (ulimit -v).");
RESIL_MESSAGE(no_stacks, note, "state dumps without stacks: memory cannot be tested for being readable here",
              "A sandbox forbids the system calls that read memory safely.", "Nothing.");
RESIL_MESSAGE(reset, note, "%s does not dump state: the program has reset it to its default action",
              "The program changed the signal's action after MPI_Init.", "Choose another signal with RESIL_SIGNAL.");
RESIL_MESSAGE(ignored, note, "%s does not dump state: the program ignores it", "As dump.reset.", "As there.");
RESIL_MESSAGE(taken, note, "%s does not dump state: a handler was installed after MPI_Init, by %s", "As dump.reset.",
              "As there.");
RESIL_MESSAGE(taken_by_mpi, note, "%s does not dump state: MPI_Init installed a handler of %s",
              "The MPI library, or a plug-in of its, uses the signal.", "Choose another signal with RESIL_SIGNAL.");
RESIL_MESSAGE(not_caught, note, "%s cannot be caught: no state dumps on it", "The system refused the handler.",
              "Choose another signal with RESIL_SIGNAL.");
RESIL_MESSAGE(not_taken_back, note, "%s could not be taken back from %s", "UCX installed its handler over resil's.",
              "Set UCX_HANDLE_ERRORS=none, or choose another signal with RESIL_SIGNAL.");

}  // namespace resil::messages::dump
