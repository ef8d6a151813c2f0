// SPDX-License-Identifier: Apache-2.0
//
// MPI_Allreduce of 1 double to 1 Mi doubles, MPI_Iallreduce of some sizes, MPI_Reduce, Scan, Exscan and
// Reduce_scatter_block of two, and their nonblocking forms: for each the best of several batches, as the slowest
// rank saw it.  reduce [PER_CENT [MOST_DOUBLES [BATCHES [CALL]]]]
#include <mpi.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "timing.h"

static double *in, *out;
static int count, batches = 5;
static const char* only;
static MPI_Request request;

static void allreduce(void) { MPI_Allreduce(in, out, count, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD); }
static void reduce(void) { MPI_Reduce(in, out, count, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD); }
static void scan(void) { MPI_Scan(in, out, count, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD); }
static void exscan(void) { MPI_Exscan(in, out, count, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD); }
static void scatter(void) {
  int ranks;
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  MPI_Reduce_scatter_block(in, out, (count + ranks - 1) / ranks, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
}
static void iallreduce(void) {
  MPI_Iallreduce(in, out, count, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD, &request);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
}
static void ireduce(void) {
  MPI_Ireduce(in, out, count, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD, &request);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
}
static void iscan(void) {
  MPI_Iscan(in, out, count, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD, &request);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
}
static void iscatter(void) {
  int ranks;
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  MPI_Ireduce_scatter_block(in, out, (count + ranks - 1) / ranks, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD, &request);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
}

static void measure(const char* name, int doubles, void (*call)(void), int per_cent) {
  int rank;
  double best = 1e30;
  if (only != NULL && strcmp(only, name) != 0) return;
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
  if (argc > 4) only = argv[4];
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
  }
  const int started[] = {1, 4096, 16384, 65536, 262144, 1048576};
  for (int i = 0; i < 6 && started[i] <= wanted; i++) measure("iallreduce", started[i], iallreduce, per_cent);
  for (int i = 0; i < 2 && sizes[i] <= wanted; i++) {
    measure("ireduce", sizes[i], ireduce, per_cent);
    measure("iscan", sizes[i], iscan, per_cent);
    measure("ireduce_scatter", sizes[i], iscatter, per_cent);
  }
  MPI_Finalize();
  return 0;
}
