// SPDX-License-Identifier: Apache-2.0
//
// The programs that the checker runs, a function for each protocol of docs/MEMORY-ORDER.md.
#pragma once

#include <vector>

#include "tests/litmus/model.h"

namespace litmus {

std::vector<Program> basics();  ///< of the checker itself
std::vector<Program> wrong_basics();  ///< each must fail
std::vector<Program> ring_programs();
std::vector<Program> stream_programs();
std::vector<Program> cell_programs();
std::vector<Program> table_programs();
std::vector<Program> request_programs();
std::vector<Program> handover_programs();

}  // namespace litmus
