// SPDX-License-Identifier: Apache-2.0
//
// Nanoseconds of a collective on all ranks: small all-reduces, a large broadcast whose root changes each time (so that
// nobody runs ahead) and whose data is written and read, all-to-alls of small and of middling blocks.
// Argument: how much of the usual number of batches, in per cent (default 100).
#include <mpi.h>
#include <stdint.h>
#include <stdlib.h>

#include "timing.h"

enum { kLarge = 1 << 20, kBlock = 16 << 10 };

static int me, ranks;
static uint64_t *data, *other, seen;

static void broadcast(void) {
  static int turn;
  const int root = turn++ % ranks;
  if (me == root)
    for (int k = 0; k < kLarge / 8; k++) data[k] = (uint64_t)(turn + k);
  MPI_Bcast(data, kLarge, MPI_BYTE, root, MPI_COMM_WORLD);
  if (me != root)
    for (int k = 0; k < kLarge / 8; k++) seen += data[k];
}

static void all_to_all(int bytes) { MPI_Alltoall(data, bytes, MPI_BYTE, other, bytes, MPI_BYTE, MPI_COMM_WORLD); }

static void report(const char* name, double ns) {
  if (me == 0) printf("%s %.1f ns\n", name, ns);
}

static int share(int number, int per_cent) { return number * per_cent / 100 > 1 ? number * per_cent / 100 : 1; }

int main(int argc, char** argv) {
  double best, value = 1, sum;
  long number = 1, total;
  const int per_cent = argc > 1 ? atoi(argv[1]) : 100, batches = share(30, per_cent);
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &me);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  data = calloc((size_t)ranks, kLarge);
  other = calloc((size_t)ranks, kLarge);
  if (!data || !other) MPI_Abort(MPI_COMM_WORLD, 1);
  MPI_Barrier(MPI_COMM_WORLD);
  BEST_OF(best, batches, 1000, MPI_Allreduce(&value, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD));
  report("allreduce_double_8", best);
  BEST_OF(best, batches, 1000, MPI_Allreduce(&number, &total, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD));
  report("allreduce_integer_8", best);
  MPI_Barrier(MPI_COMM_WORLD);
  BEST_OF(best, batches, 20, broadcast());
  report("bcast_touch_1048576", best);
  MPI_Barrier(MPI_COMM_WORLD);
  BEST_OF(best, batches, 1000, all_to_all(8));
  report("alltoall_8", best);
  BEST_OF(best, batches, 100, all_to_all(kBlock));
  report("alltoall_16384", best);
  if (seen == 1) puts("");  // the sums are wanted
  MPI_Finalize();
  return 0;
}
