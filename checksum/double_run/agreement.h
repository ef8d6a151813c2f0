// SPDX-License-Identifier: Apache-2.0
//
// What all ranks of MPI_COMM_WORLD found, known to all: up and down a binomial tree of messages on the private
// communicator. A program's step ends for all ranks or for none.
#pragma once

#include <cstdint>

namespace resil {
struct Thread;
}

namespace resil::double_run {

struct Verdict {
  uint32_t different;  ///< ranks on which two runs of the step differ
  uint32_t unsettled;  ///< ranks on which no two runs agree yet
  uint32_t unchecked;  ///< ranks that could not save their state
  int32_t first;  ///< lowest rank that differs; -1: none
};

/// Can the ranks talk? Else each is on its own.
bool agreement_possible();
/// Sum over all ranks. Called by every rank, in the same order; waits as long as the others take, like a collective of
/// the program's own. On the application's thread, outside of MPI calls.
Verdict agree(Thread& thread, Verdict own);

}  // namespace resil::double_run
