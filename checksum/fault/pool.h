// SPDX-License-Identifier: Apache-2.0
//
// Memory for copies of packets: mapped when needed, used again, never returned to the system (a communication library
// may have registered it). Any thread inside an MPI wrapper; short lock.
#pragma once

#include <cstdint>

namespace resil::fault {

/// At least `bytes`, aligned to 64; null: no memory.
char* lend(uint64_t bytes);
void give_back(char* memory);  ///< null is allowed

}  // namespace resil::fault
