// SPDX-License-Identifier: Apache-2.0
//
// Reductions of ranks that share a node: every length around the borders between the ways, communicators that come and
// go while some ranks lag behind, more of them at once than a rank has bays, a wait that the MPI library's progress is
// needed for, vectors of different lengths. Results are compared with the fold's association, literally.
//
// reductions_node MODE [lengths | groups | missing RANK]
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

/// The nonblocking forms: 16 around the border between the ways, and a large one. All five are under way at once, and
/// the communicator is freed before they are complete.
static void started(void) {
  const int border = 4096 / (int)sizeof(double) / ranks, most = 300007;
  double *in = malloc((size_t)most * sizeof(double)), *out = malloc(5 * (size_t)most * sizeof(double));
  for (int i = 0; i < 17; i++) {
    const int n = i == 16 ? most : border - 8 + i, root = i % ranks, block = n / ranks;
    double *all = out, *one = all + n, *scan = one + n, *before = scan + n, *part = before + n;
    MPI_Comm comm;
    MPI_Request requests[5];
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    for (int k = 0; k < n; k++) in[k] = all[k] = value(me, k);
    MPI_Iallreduce(i % 2 ? MPI_IN_PLACE : in, all, n, MPI_DOUBLE, MPI_SUM, comm, &requests[0]);
    MPI_Ireduce(in, me == root ? one : NULL, n, MPI_DOUBLE, MPI_SUM, root, comm, &requests[1]);
    MPI_Iscan(in, scan, n, MPI_DOUBLE, MPI_SUM, comm, &requests[2]);
    MPI_Iexscan(in, before, n, MPI_DOUBLE, MPI_SUM, comm, &requests[3]);
    MPI_Ireduce_scatter_block(in, part, block, MPI_DOUBLE, MPI_SUM, comm, &requests[4]);
    MPI_Comm_free(&comm);
    for (int k = 0; k < 5; k++) MPI_Wait(&requests[(k * 2 + me) % 5], MPI_STATUS_IGNORE);
    for (int k = 0; k < n; k += 1 + n / 997) {
      CHECK(all[k] == tree(0, ranks, k));
      CHECK(me != root || one[k] == tree(0, ranks, k));
      CHECK(scan[k] == tree(0, me + 1, k));
      CHECK(me == 0 || before[k] == tree(0, me, k));
      CHECK(k >= block || part[k] == tree(0, ranks, me * block + k));
    }
  }
  free(in);
  free(out);
}

/// More under way than a pool has room for. All are there when the first is complete, and they are completed in another
/// order by each rank.
static void beyond_the_pool(void) {
  enum { kMany = 9 };
  const int n = 1 << 20;
  double *in = malloc((size_t)(n + kMany) * sizeof(double)), *out[kMany];
  MPI_Request requests[kMany];
  for (int turn = 0; turn < 2; turn++) {
    for (int k = 0; k < n + kMany; k++) in[k] = value(me, k + turn);
    for (int i = 0; i < kMany; i++) {
      out[i] = i % ranks == me ? malloc((size_t)n * sizeof(double)) : NULL;
      MPI_Ireduce(in + i, out[i], n, MPI_DOUBLE, MPI_SUM, i % ranks, MPI_COMM_WORLD, &requests[i]);
    }
    for (int i = 0; i < kMany; i++) MPI_Wait(&requests[(i * 2 + me) % kMany], MPI_STATUS_IGNORE);
    for (int i = 0; i < kMany; i++) {
      for (int k = 0; k < n && out[i] != NULL; k += 1009) CHECK(out[i][k] == tree(0, ranks, k + turn + i));
      free(out[i]);
    }
  }
  free(in);
}

/// A sum that takes rank 0 long, so that the others must wait for what it has begun.
static void slow_sum(void* low, void* high, int* n, MPI_Datatype* type) {
  (void)type;
  const double begin = MPI_Wtime();
  while (me == 0 && MPI_Wtime() < begin + 1e-3) {}
  for (int i = 0; i < *n; i++) ((double*)high)[i] = ((double*)low)[i] + ((double*)high)[i];
}

static void wait_for_a_folder(void) {
  const int n = 100003;
  double *in = malloc((size_t)n * sizeof(double)), *out = malloc((size_t)n * sizeof(double));
  MPI_Op op;
  MPI_Op_create(slow_sum, 0, &op);
  for (int turn = 0; turn < 3; turn++) {
    MPI_Request request;
    for (int k = 0; k < n; k++) in[k] = value(me, k + turn);
    MPI_Iallreduce(in, out, n, MPI_DOUBLE, op, MPI_COMM_WORLD, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    for (int k = 0; k < n; k++) CHECK(out[k] == tree(0, ranks, k + turn));
  }
  MPI_Op_free(&op);
  free(in);
  free(out);
}

/// Rank 0 has started it and is in another call until the others have the result.
static void complete_without_rank_0(void) {
  const int n = 100003;
  double *in = malloc((size_t)n * sizeof(double)), *out = malloc((size_t)n * sizeof(double));
  MPI_Request request;
  for (int k = 0; k < n; k++) in[k] = value(me, k);
  MPI_Iallreduce(in, out, n, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD, &request);
  if (me == 0)
    for (int r = 1; r < ranks; r++) MPI_Recv(NULL, 0, MPI_INT, MPI_ANY_SOURCE, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  for (int k = 0; k < n; k += 97) CHECK(out[k] == tree(0, ranks, k));
  if (me != 0) MPI_Send(NULL, 0, MPI_INT, 0, 3, MPI_COMM_WORLD);
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
  double* large = calloc(80000, sizeof(double));
  MPI_Request request;
  int kind = 0;
  MPI_Iallreduce(large, large + 40000, me == 0 ? 40000 : 39999, MPI_DOUBLE, MPI_SUM, comm, &request);
  MPI_Error_class(MPI_Wait(&request, MPI_STATUS_IGNORE), &kind);
  CHECK(kind == MPI_ERR_TRUNCATE);
  free(large);
  MPI_Comm_free(&comm);
}

/// Many ranks, of which groups are folded apart: communicators of the first 15, 16, 17, 20 ... of them, in both orders.
static void groups(void) {
  static const int counts[] = {1, 5, 14, 174};
  double in[174], out[174];
  for (int n = 15; n <= ranks; n += n < 17 ? 1 : 3) {
    const int backwards = n % 2;
    MPI_Comm comm;
    int mine;
    MPI_Comm_split(MPI_COMM_WORLD, me < n ? 0 : MPI_UNDEFINED, backwards ? -me : me, &comm);
    if (comm == MPI_COMM_NULL) continue;
    MPI_Comm_rank(comm, &mine);
    for (int i = 0; i < 4 * 2; i++) {
      const int count = counts[i / 2], root = (i * 5 + n) % n;
      for (int k = 0; k < count; k++) in[k] = value(mine, k + i);
      MPI_Allreduce(in, out, count, MPI_DOUBLE, MPI_SUM, comm);
      for (int k = 0; k < count; k++) CHECK(out[k] == tree(0, n, k + i));
      for (int turn = 0; turn < 3; turn++) MPI_Reduce(in, out, count, MPI_DOUBLE, MPI_SUM, root, comm);
      for (int k = 0; k < count && mine == root; k++) CHECK(out[k] == tree(0, n, k + i));
      MPI_Scan(in, out, count, MPI_DOUBLE, MPI_SUM, comm);
      for (int k = 0; k < count; k++) CHECK(out[k] == tree(0, mine + 1, k + i));
      MPI_Exscan(in, out, count, MPI_DOUBLE, MPI_SUM, comm);
      for (int k = 0; k < count && mine != 0; k++) CHECK(out[k] == tree(0, mine, k + i));
      MPI_Allreduce(MPI_IN_PLACE, in, count, MPI_DOUBLE, MPI_SUM, comm);
      for (int k = 0; k < count; k++) CHECK(in[k] == tree(0, n, k + i));
    }
    MPI_Comm_free(&comm);
  }
}

/// One rank does not come: it waits for a message of rank 0's, which waits for it.
static void missing(int rank) {
  double in = me, out = 0;
  for (int turn = 0; turn < 5; turn++) MPI_Allreduce(&in, &out, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  if (me == rank) MPI_Recv(&in, 1, MPI_DOUBLE, 0, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  MPI_Allreduce(&in, &out, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &me);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (argc > 2 && strcmp(argv[2], "groups") == 0) {
    groups();
    different_lengths();
    MPI_Finalize();
    return 0;
  }
  if (argc > 3 && strcmp(argv[2], "missing") == 0) missing(atoi(argv[3]));
  lengths(MPI_COMM_WORLD);
  started();
  beyond_the_pool();
  wait_for_a_folder();
  complete_without_rank_0();
  come_and_go();
  many_at_once();
  if (ranks > 1) progress();
  if (argc > 2 && ranks > 1) different_lengths();
  MPI_Finalize();
  return 0;
}
