// SPDX-License-Identifier: Apache-2.0
//
// Reductions through node-local memory: each rank writes its ring and reads the others'.
#include <cstring>

#include "pipeline/reduction/rings.h"
#include "tests/litmus/programs.h"

namespace litmus {
namespace {

using resil::reduction::Rings;
using resil::reduction::RingShape;

constexpr uint64_t kFirst = 5;
constexpr RingShape kShape = {0, 64, 64, 16, 2, 48};
alignas(64) char memory[2][64 + 2 * 64];
char* bases[2] = {memory[0], memory[1]};
Rings rings[2];

void begin(uint64_t steps) {
  memset(memory, 0, sizeof memory);
  for (int rank = 0; rank < 2; ++rank) rings[rank].open(kShape, bases, 2, rank, kFirst);
  for (uint64_t step = 0; step < steps; ++step)
    for (int rank = 0; rank < 2; ++rank) {
      memset(rings[rank].own(), static_cast<int>(kFirst + step), 8);
      rings[rank].show(8);
      rings[rank].finish(false);
    }
}

/// One step of that rank, as far as it can go on: shows its contribution, and reads the other's if it wants that.
bool step(int rank, bool reads) {
  Rings& mine = rings[rank];
  int behind = 0;
  if (!mine.writable(&behind)) return false;
  memset(mine.own(), static_cast<int>(mine.next()), 8);
  mine.show(8);
  if (reads) {
    if (!mine.shown(1 - rank)) return false;
    char expected[8];
    memset(expected, static_cast<int>(mine.next()), sizeof expected);
    LITMUS_EXPECT(mine.what(1 - rank) == 8);
    LITMUS_EXPECT(memcmp(mine.data(1 - rank), expected, sizeof expected) == 0);
  }
  mine.finish(reads);
  return true;
}

}  // namespace

std::vector<Program> cell_programs() {
  return {
      {"cells: show and read", "cells", [] { begin(0); }, {[] { step(0, true); }, [] { step(1, true); }}, [] {}, 2},
      {"cells: one writes again what the other reads",
       "cells",
       [] { begin(0); },
       {[] { step(0, false) && step(0, false) && step(0, false); }, [] { step(1, true) && step(1, true); }},
       [] {},
       2},
      {"cells: all have seen all, and write again",
       "cells",
       [] { begin(2); },
       {[] { step(0, true) && step(0, true); }, [] { step(1, true) && step(1, true); }},
       [] {},
       2},
  };
}

}  // namespace litmus
