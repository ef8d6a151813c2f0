// SPDX-License-Identifier: Apache-2.0
//
// Reductions of ranks that share a node: every length around the borders between the ways, communicators that come and
// go while some ranks lag behind, more of them at once than a rank has bays, a wait that the MPI library's progress is
// needed for, vectors of different lengths. Results are compared with the fold's association, literally.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(what)                                                   \
  do {                                                                \
    if (!(what)) {                                                    \
      fprintf(stderr, "rank %d, line %d: %s\n", me, __LINE__, #what); \
      MPI_Abort(MPI_COMM_WORLD, 3);                                   \
    }                                                                 \
  } while (0)

static int me, ranks;

static double value(int rank, int at) { return (rank * 7 + at % 1001 + 1) / 3.0; }

static double tree(int low, int high, int at) {
  if (high - low == 1) return value(low, at);
  int half = 1;
  while (half * 2 < high - low) half *= 2;
  return tree(low, low + half, at) + tree(low + half, high, at);
}

static void lengths(MPI_Comm comm) {
  static const int counts[] = {1, 5, 6, 7, 13, 14, 15, 173, 174, 175, 4096, 4097, 8192, 16384, 16385, 40000, 100003};
  const int most = 100003;
  double *in = malloc((size_t)most * sizeof(double)), *out = malloc((size_t)most * sizeof(double));
  for (unsigned i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
    const int n = counts[i], root = n % ranks;
    for (int turn = 0; turn < 3; turn++) {
      for (int k = 0; k < n; k++) in[k] = value(me, k);
      memset(out, 0, (size_t)n * sizeof(double));
      MPI_Allreduce(in, out, n, MPI_DOUBLE, MPI_SUM, comm);
      for (int k = 0; k < n; k += 1 + n / 997) CHECK(out[k] == tree(0, ranks, k));
      MPI_Reduce(me == root ? MPI_IN_PLACE : in, me == root ? in : NULL, n, MPI_DOUBLE, MPI_SUM, root, comm);
      if (me == root)
        for (int k = 0; k < n; k += 1 + n / 997) CHECK(in[k] == tree(0, ranks, k));
      for (int k = 0; k < n; k++) in[k] = value(me, k);
      MPI_Scan(in, out, n, MPI_DOUBLE, MPI_SUM, comm);
      for (int k = 0; k < n; k += 1 + n / 997) CHECK(out[k] == tree(0, me + 1, k));
      MPI_Exscan(in, me == 0 ? NULL : out, n, MPI_DOUBLE, MPI_SUM, comm);  // not significant on rank 0
      for (int k = 0; k < n && me != 0; k += 1 + n / 997) CHECK(out[k] == tree(0, me, k));
      MPI_Allreduce(MPI_IN_PLACE, in, n, MPI_DOUBLE, MPI_SUM, comm);
      for (int k = 0; k < n; k += 1 + n / 997) CHECK(in[k] == tree(0, ranks, k));
      const int block = n / ranks;
      for (int k = 0; k < block * ranks; k++) in[k] = value(me, k);
      MPI_Reduce_scatter_block(turn == 1 ? MPI_IN_PLACE : in, turn == 1 ? in : out, block, MPI_DOUBLE, MPI_SUM, comm);
      const double* mine = turn == 1 ? in : out;
      for (int k = 0; k < block; k += 1 + n / 997) CHECK(mine[k] == tree(0, ranks, me * block + k));
    }
  }
  free(in);
  free(out);
}

/// A rank that only gives may be far ahead of the others, and free the communicator before they have read.
static void come_and_go(void) {
  for (int turn = 0; turn < 120; turn++) {
    MPI_Comm comm;
    double in = value(me, turn), out = 0;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    const int root = turn % ranks, steps = 1 + turn % 7 * 40;
    for (int step = 0; step < steps; step++) {
      MPI_Reduce(&in, &out, 1, MPI_DOUBLE, MPI_SUM, root, comm);
      if (me == root) CHECK(out == tree(0, ranks, turn));
    }
    MPI_Comm_free(&comm);
  }
}

static void many_at_once(void) {
  MPI_Comm comms[40];
  for (int i = 0; i < 40; i++) MPI_Comm_split(MPI_COMM_WORLD, 0, me, &comms[i]);
  for (int turn = 0; turn < 3; turn++)
    for (int i = 0; i < 40; i++) {
      double in = value(me, i), out = 0;
      MPI_Allreduce(&in, &out, 1, MPI_DOUBLE, MPI_SUM, comms[i]);
      CHECK(out == tree(0, ranks, i));
    }
  for (int i = 0; i < 40; i++) MPI_Comm_free(&comms[i]);
}

/// The message needs its sender's progress, and the sender waits in a reduction.
static void progress(void) {
  const int n = 1 << 20;
  double *data = calloc((size_t)n, sizeof(double)), in = value(me, 0), out = 0;
  MPI_Request request = MPI_REQUEST_NULL;
  if (me == 0) MPI_Isend(data, n, MPI_DOUBLE, 1, 0, MPI_COMM_WORLD, &request);
  if (me == 1) MPI_Recv(data, n, MPI_DOUBLE, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  MPI_Allreduce(&in, &out, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  CHECK(out == tree(0, ranks, 0));
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  free(data);
}

/// Wrong programs may be told, by an error of MPI's, or run on; they do not crash, and do not hang here.
static void different_lengths(void) {
  MPI_Comm comm;
  double in[40] = {0}, out[40];
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
  MPI_Allreduce(in, out, 1, MPI_DOUBLE, MPI_SUM, comm);
  for (int turn = 0; turn < 2; turn++) {  // the second time they go different ways
    const int result = MPI_Allreduce(in, out, me == 0 ? 2 : turn == 0 ? 3 : 40, MPI_DOUBLE, MPI_SUM, comm);
    int kind = 0;
    MPI_Error_class(result, &kind);
    CHECK(kind == MPI_ERR_TRUNCATE);
  }
  MPI_Comm_free(&comm);
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &me);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  lengths(MPI_COMM_WORLD);
  come_and_go();
  many_at_once();
  if (ranks > 1) progress();
  if (argc > 2 && ranks > 1) different_lengths();
  MPI_Finalize();
  return 0;
}
