// SPDX-License-Identifier: Apache-2.0
//
// Memory of one judgement: fresh mappings, so that a job of a few ranks touches a few pages and the helper keeps none
// of it between two judgements.
#pragma once

#include <cstddef>
#include <cstdint>

#include "shim/runtime/arena.h"

namespace resil::hang::graph {

using Arena = memory::Arena<size_t{4} << 20>;

/// For open addressing, at most half full.
inline size_t power_of_two_above(size_t count) {
  size_t power = 16;
  while (power < 2 * count) power *= 2;
  return power;
}

}  // namespace resil::hang::graph
