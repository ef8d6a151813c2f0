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
constexpr RingShape kShape = {0, 64, 64, 16, 2, 48, 64 + 2 * 64};
alignas(64) char memory[3][64 + 4 * 64];
char* bases[3] = {memory[0], memory[1], memory[2]};
Rings rings[3];

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

void write(int rank) {
  memset(rings[rank].own(), static_cast<int>(rings[rank].next()), 8);
  rings[rank].show(8);
}

/// The number that lies there is this step's.
void expect(int rank, uint64_t what, const char* data) {
  char expected[8];
  memset(expected, static_cast<int>(rings[rank].next()), sizeof expected);
  LITMUS_EXPECT(what == 8);
  LITMUS_EXPECT(memcmp(data, expected, sizeof expected) == 0);
}

/// Ranks 0 and 1 are a group. Rank 0 has still to read step 5, the others are in step 6.
void begin_groups() {
  memset(memory, 0, sizeof memory);
  for (int rank = 0; rank < 3; ++rank) rings[rank].open(kShape, bases, 3, rank, kFirst);
  for (int rank = 0; rank < 3; ++rank) write(rank);
  for (int rank = 1; rank < 3; ++rank) {
    rings[rank].finish(true);
    write(rank);
  }
}
void read_and_go_on() {
  expect(0, rings[0].what(2), rings[0].data(2));
  rings[0].finish(true);
  write(0);
}
void show_fold() {
  if (!rings[1].shown(0)) return;
  expect(1, rings[1].what(0), rings[1].data(0));
  memcpy(rings[1].own_fold(), rings[1].data(0), 8);
  rings[1].show_fold(8);
}
/// It reads the fold only, and writes again the cell that rank 0 has read.
void read_fold_and_write() {
  if (!rings[2].fold_shown(1)) return;
  expect(2, rings[2].fold_what(1), rings[2].fold(1));
  rings[2].finish(true);
  int behind = 0;
  if (rings[2].writable(&behind)) write(2);
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
      {"cells: the fold of a group vouches for its ranks",
       "cells",
       [] { begin_groups(); },
       {[] { read_and_go_on(); }, [] { show_fold(); }, [] { read_fold_and_write(); }},
       [] {},
       4},
  };
}

}  // namespace litmus
