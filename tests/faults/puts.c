// SPDX-License-Identifier: Apache-2.0
//
// One-sided traffic between fences: each rank puts some packets into its right neighbour's window, which looks at them
// after the fence. Counts the packets that arrive wrong.
//
// puts ROUNDS [SEED [LARGEST]]
#include "traffic.h"

enum { kPuts = 4 };

int main(int argc, char** argv) {
  int me, ranks;
  MUST(MPI_Init(&argc, &argv));
  MPI_Comm_rank(MPI_COMM_WORLD, &me);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const unsigned long rounds = argc > 1 ? strtoul(argv[1], NULL, 10) : 100;
  const uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
  const size_t largest = argc > 3 ? strtoul(argv[3], NULL, 10) : 1 << 16;
  const int to = (me + 1) % ranks, from = (me + ranks - 1) % ranks;
  char *out[kPuts], *window_memory;
  MPI_Win window;
  scratch = malloc(kRoom);
  for (int k = 0; k < kPuts; k++) out[k] = malloc(kRoom);
  MUST(MPI_Alloc_mem(kPuts * kLargest, MPI_INFO_NULL, &window_memory));
  MUST(MPI_Win_create(window_memory, kPuts * kLargest, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window));
  make_types();
  for (uint64_t round = 0; round < rounds; round++) {
    const uint64_t draw = mixed(seed * 7919 + round);
    const Type* t = &types[draw % kTypes];
    const size_t most = largest < kLargest / 8 ? largest : kLargest / 8;  // extents are up to twice the data
    const int count = elements(t, some_size(draw / kTypes, most));
    for (int k = 0; k < kPuts; k++) {
      clear((seed << 52) ^ (3ULL << 50) ^ (round << 8) ^ (uint64_t)k, t, count, window_memory + k * (kLargest / 2));
      fill((seed << 52) ^ (1ULL << 50) ^ ((uint64_t)me << 44) ^ (round << 8) ^ (uint64_t)k, t, count, out[k]);
    }
    MUST(MPI_Win_fence(0, window));
    for (int k = 0; k < kPuts; k++)
      MUST(MPI_Put(out[k], count, t->type, to, (MPI_Aint)k * (kLargest / 2), count, t->type, window));
    MUST(MPI_Win_fence(0, window));
    for (int k = 0; k < kPuts; k++)
      look((seed << 52) ^ (1ULL << 50) ^ ((uint64_t)from << 44) ^ (round << 8) ^ (uint64_t)k, t, count,
           window_memory + k * (kLargest / 2));
  }
  report_counts("puts", me);
  free_types();
  MUST(MPI_Win_free(&window));
  MUST(MPI_Free_mem(window_memory));
  MUST(MPI_Finalize());
  return 0;
}
