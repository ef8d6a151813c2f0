// SPDX-License-Identifier: Apache-2.0
//
// MPI_Allreduce of 1 double to 1 Mi doubles, and MPI_Reduce, Scan, Exscan, Iallreduce and Reduce_scatter_block of two
// sizes: for each the best of several batches, as the slowest rank saw it.  reduce [PER_CENT [MOST_DOUBLES [BATCHES]]]
#include <mpi.h>
#include <stdint.h>
#include <stdlib.h>

#include "timing.h"

static double *in, *out;
static int count, batches = 5;

static void allreduce(void) { MPI_Allreduce(in, out, count, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD); }
static void reduce(void) { MPI_Reduce(in, out, count, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD); }
static void scan(void) { MPI_Scan(in, out, count, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD); }
static void exscan(void) { MPI_Exscan(in, out, count, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD); }
static void scatter(void) {
  int ranks;
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  MPI_Reduce_scatter_block(in, out, (count + ranks - 1) / ranks, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
}
static void started(void) {
  MPI_Request request;
  MPI_Iallreduce(in, out, count, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD, &request);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
}

static void measure(const char* name, int doubles, void (*call)(void), int per_cent) {
  int rank;
  double best = 1e30;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  count = doubles;
  int calls = (doubles < 1000 ? 4000 : doubles < 30000 ? 600 : doubles < 300000 ? 60 : 12) * per_cent / 100;
  calls = calls < 2 ? 2 : calls;
  for (int batch = 0; batch <= batches; batch++) {
    MPI_Barrier(MPI_COMM_WORLD);
    const double start = now_ns();
    for (int i = 0; i < calls; i++) call();
    double mine = (now_ns() - start) / calls, slowest = 0;
    MPI_Allreduce(&mine, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    if (batch > 0 && slowest < best) best = slowest;  // the first one warms up
  }
  if (rank == 0) printf("%s_%d %.1f ns\n", name, doubles, best);
}

int main(int argc, char** argv) {
  const int most = 1 << 20, per_cent = argc > 1 ? atoi(argv[1]) : 100, wanted = argc > 2 ? atoi(argv[2]) : most;
  if (argc > 3) batches = atoi(argv[3]);
  MPI_Init(&argc, &argv);
  int rank;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  in = malloc((most + 64) * sizeof(double));
  out = malloc((most + 64) * sizeof(double));
  for (int i = 0; i < most + 64; i++) in[i] = out[i] = (i % 1000 + 1) / (3.0 + rank);
  for (int doubles = 1; doubles <= wanted; doubles *= doubles < 64 ? 8 : 4)
    measure("allreduce", doubles, allreduce, per_cent);
  const int sizes[] = {1, 65536};
  for (int i = 0; i < 2 && sizes[i] <= wanted; i++) {
    measure("reduce", sizes[i], reduce, per_cent);
    measure("scan", sizes[i], scan, per_cent);
    measure("exscan", sizes[i], exscan, per_cent);
    measure("reduce_scatter", sizes[i], scatter, per_cent);
    measure("iallreduce", sizes[i], started, per_cent);
  }
  MPI_Finalize();
  return 0;
}
