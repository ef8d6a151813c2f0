// SPDX-License-Identifier: Apache-2.0
//
// One-sided traffic between fences: each rank puts some packets into its right neighbour's window, which looks at them
// after the fence; or gets some of its right neighbour's. Counts the packets that arrive wrong.
//
// puts ROUNDS [SEED [LARGEST]]
#include "traffic.h"

enum { kPuts = 4 };

static char *buffers[kPuts], *memory;
static int me, ranks;

static uint64_t number(uint64_t seed, uint64_t kind, int rank, uint64_t round, int k) {
  return (seed << 52) ^ (kind << 50) ^ ((uint64_t)rank << 44) ^ (round << 8) ^ (uint64_t)k;
}
static char* place(int k) { return memory + k * (kLargest / 2); }

static void put_some(MPI_Win window, uint64_t seed, uint64_t round, const Type* t, int count) {
  const int to = (me + 1) % ranks, from = (me + ranks - 1) % ranks;
  for (int k = 0; k < kPuts; k++) {
    clear(number(seed, 3, me, round, k), t, count, place(k));
    fill(number(seed, 1, me, round, k), t, count, buffers[k]);
  }
  MUST(MPI_Win_fence(0, window));
  for (int k = 0; k < kPuts; k++)
    MUST(MPI_Put(buffers[k], count, t->type, to, (MPI_Aint)k * (kLargest / 2), count, t->type, window));
  MUST(MPI_Win_fence(0, window));
  for (int k = 0; k < kPuts; k++) look(number(seed, 1, from, round, k), t, count, place(k));
}

static void get_some(MPI_Win window, uint64_t seed, uint64_t round, const Type* t, int count) {
  const int from = (me + 1) % ranks;
  for (int k = 0; k < kPuts; k++) {
    fill(number(seed, 2, me, round, k), t, count, place(k));
    clear(number(seed, 3, me, round, k), t, count, buffers[k]);
  }
  MUST(MPI_Win_fence(0, window));
  for (int k = 0; k < kPuts; k++)
    MUST(MPI_Get(buffers[k], count, t->type, from, (MPI_Aint)k * (kLargest / 2), count, t->type, window));
  MUST(MPI_Win_fence(0, window));
  for (int k = 0; k < kPuts; k++) look(number(seed, 2, from, round, k), t, count, buffers[k]);
}

int main(int argc, char** argv) {
  MUST(MPI_Init(&argc, &argv));
  MPI_Comm_rank(MPI_COMM_WORLD, &me);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const unsigned long rounds = argc > 1 ? strtoul(argv[1], NULL, 10) : 100;
  const uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
  const size_t largest = argc > 3 ? strtoul(argv[3], NULL, 10) : 1 << 16;
  MPI_Win window;
  scratch = malloc(kRoom);
  for (int k = 0; k < kPuts; k++) buffers[k] = malloc(kRoom);
  MUST(MPI_Alloc_mem(kPuts * kLargest, MPI_INFO_NULL, &memory));
  MUST(MPI_Win_create(memory, kPuts * kLargest, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window));
  make_types();
  for (uint64_t round = 0; round < rounds; round++) {
    const uint64_t draw = mixed(seed * 7919 + round);
    const Type* t = &types[draw % kTypes];
    const size_t most = largest < kLargest / 8 ? largest : kLargest / 8;  // extents are up to twice the data
    const int count = elements(t, some_size(draw / kTypes, most));
    if (mixed(draw) % 2 == 0) put_some(window, seed, round, t, count);
    else get_some(window, seed, round, t, count);
  }
  report_counts("puts", me);
  free_types();
  MUST(MPI_Win_free(&window));
  MUST(MPI_Free_mem(memory));
  MUST(MPI_Finalize());
  return 0;
}
