// SPDX-License-Identifier: Apache-2.0
//
// The arithmetic of a nonblocking or persistent reduction whose contributions lie in deposits (deposits.h). By then all
// are there; what is left needs no other rank: blocks of the vector are folded by whoever comes first, each once.
#pragma once

#include "pipeline/reduction/by_node.h"
#include "pipeline/reduction/deposits.h"

namespace resil::reduction {

/// One such reduction, as it was started. The communicator may have been freed since.
struct Deposited {
  Wanted want;
  DepositPlace places[kNodeRanks];  ///< by rank: what the library has gathered
  int ranks[kNodeRanks];  ///< in the world
};

/// Copies this rank's contribution, before the library tells the others its place.
void deposit(const Call& call, DepositPlace* mine);
/// When all places are known: folds, and puts the result into the program's buffer. MPI's code.
int finish_deposits(const Call& call, const Deposited& deposited, Arena& arena);

}  // namespace resil::reduction
