// SPDX-License-Identifier: Apache-2.0
//
// Every form of data-moving collective, with content that is verified here too: what the checksum module must find
// right, all of it. Blocking, nonblocking and (MPI 4) persistent and large-count; MPI_IN_PLACE, derived types, zero
// counts, gaps, MPI_PROC_NULL and repeated neighbours, intercommunicators, groups of one, freed types.
// "again N": blocking ones, each N times from one place and from several in turn, as loops make them.
//
// ranks: 2

#include <mpi.h>
#include <stdint.h>
#include <string.h>

#include "check.h"

enum { kRounds = 12, kMost = 4096, kRanks = 16 };

static int given[kRanks * kMost], got[kRanks * kMost];
static int counts[kRanks], places[kRanks], other_counts[kRanks], other_places[kRanks];
static MPI_Datatype types[kRanks];
static int calls;  // data-moving collectives so far, starts of persistent ones included

/// What rank `from` gives to rank `to` as element `i` in that round.
static int item(int round, int from, int to, int i) { return round * 1000003 + from * 10007 + to * 101 + i; }

static void fill(int* at, int count, int round, int from, int to) {
  for (int i = 0; i < count; i++) at[i] = item(round, from, to, i);
}

static int blind;  // a tool below damages data: somebody else is to find it

static void same_at(int line, const int* at, int count, int round, int from, int to) {
  if (blind) return;
  for (int i = 0; i < count; i++)
    if (at[i] != item(round, from, to, i)) {
      fprintf(stderr, "round %d, element %d of %d, from %d to %d\n", round, i, count, from, to);
      check_failed("what arrived is what was given", __FILE__, line);
    }
}
#define same(...) same_at(__LINE__, __VA_ARGS__)

/// The nonblocking twin or the blocking call, by turns.
#define BOTH(round, name, twin, ...)              \
  do {                                            \
    calls++;                                      \
    if ((round) % 2 == 0) {                       \
      OK(MPI_##name(__VA_ARGS__));                \
    } else {                                      \
      MPI_Request request_;                       \
      OK(MPI_I##twin(__VA_ARGS__, &request_));    \
      OK(MPI_Wait(&request_, MPI_STATUS_IGNORE)); \
    }                                             \
  } while (0)

static int size_of_round(int round) { return (int[]){1, 3, 64, 0, 1000, 4096}[round % 6]; }

static void same_everywhere(MPI_Comm comm, int round) {
  int rank, size;
  OK(MPI_Comm_rank(comm, &rank));
  OK(MPI_Comm_size(comm, &size));
  const int n = size_of_round(round / 2);
  const int root = round % size;

  memset(got, 0, sizeof got);
  if (rank == root) fill(got, n, round, root, 0);
  BOTH(round, Bcast, bcast, got, n, MPI_INT, root, comm);
  same(got, n, round, root, 0);

  fill(given, n, round, rank, 0);
  BOTH(round, Allgather, allgather, given, n, MPI_INT, got, n, MPI_INT, comm);
  for (int r = 0; r < size; r++) same(got + r * n, n, round, r, 0);
  memset(got, 0, sizeof got);
  fill(got + rank * n, n, round, rank, 1);
  BOTH(round, Allgather, allgather, MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, got, n, MPI_INT, comm);
  for (int r = 0; r < size; r++) same(got + r * n, n, round, r, 1);

  for (int r = 0; r < size; r++)
    counts[r] = n > r ? n - r : 0, places[r] = r * (n + 2);  // none at rank 0: MPICH 4.0 ignores it in groups of one
  memset(got, 0x55, sizeof got);
  BOTH(round, Allgatherv, allgatherv, given, counts[rank], MPI_INT, got, counts, places, MPI_INT, comm);
  for (int r = 0; r < size; r++) same(got + places[r], counts[r], round, r, 0);
  memset(got, 0, sizeof got);
  fill(got + places[rank], counts[rank], round, rank, 0);
  BOTH(round, Allgatherv, allgatherv, MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, got, counts, places, MPI_INT, comm);
  for (int r = 0; r < size; r++) same(got + places[r], counts[r], round, r, 0);
}

static void rooted(MPI_Comm comm, int round) {
  int rank, size;
  OK(MPI_Comm_rank(comm, &rank));
  OK(MPI_Comm_size(comm, &size));
  const int n = size_of_round(round / 2), root = (round + 1) % size;
  for (int r = 0; r < size; r++) counts[r] = n > 2 * r ? n - 2 * r : 0, places[r] = (size - 1 - r) * (n + 1);

  memset(got, 0, sizeof got);
  fill(given, n, round, rank, 0);
  BOTH(round, Gather, gather, given, n, MPI_INT, got, n, MPI_INT, root, comm);
  if (rank == root)
    for (int r = 0; r < size; r++) same(got + r * n, n, round, r, 0);
  fill(got + rank * n, n, round, rank, 3);
  fill(given, n, round, rank, 3);
  BOTH(round, Gather, gather, rank == root ? MPI_IN_PLACE : given, n, MPI_INT, got, n, MPI_INT, root, comm);
  if (rank == root)
    for (int r = 0; r < size; r++) same(got + r * n, n, round, r, 3);
  BOTH(round, Gatherv, gatherv, given, counts[rank], MPI_INT, got, counts, places, MPI_INT, root, comm);
  if (rank == root)
    for (int r = 0; r < size; r++) same(got + places[r], counts[r], round, r, 3);

  for (int r = 0; r < size; r++) fill(given + r * n, n, round, root, r);
  memset(got, 0, sizeof got);
  BOTH(round, Scatter, scatter, given, n, MPI_INT, got, n, MPI_INT, root, comm);
  same(got, n, round, root, rank);
  BOTH(round, Scatter, scatter, given, n, MPI_INT, rank == root ? MPI_IN_PLACE : (void*)got, n, MPI_INT, root, comm);
  for (int r = 0; r < size; r++) fill(given + places[r], counts[r], round, root, r + 5);
  BOTH(round, Scatterv, scatterv, given, counts, places, MPI_INT, got, counts[rank], MPI_INT, root, comm);
  same(got, counts[rank], round, root, rank + 5);
}

static void all_to_all(MPI_Comm comm, int round) {
  int rank, size;
  OK(MPI_Comm_rank(comm, &rank));
  OK(MPI_Comm_size(comm, &size));
  const int n = size_of_round(round / 2);
  for (int r = 0; r < size; r++) fill(given + r * n, n, round, rank, r);
  BOTH(round, Alltoall, alltoall, given, n, MPI_INT, got, n, MPI_INT, comm);
  for (int r = 0; r < size; r++) same(got + r * n, n, round, r, rank);
  memcpy(got, given, sizeof got);
  BOTH(round, Alltoall, alltoall, MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, got, n, MPI_INT, comm);
  for (int r = 0; r < size; r++) same(got + r * n, n, round, r, rank);

  int at = 0, other_at = 0;
  for (int r = 0; r < size; r++) {  // i sends (i + 2 j) mod 5 of n / 5 to j
    counts[r] = (rank + 2 * r) % 5 * (n / 5), places[r] = at, at += counts[r];
    other_counts[r] = (r + 2 * rank) % 5 * (n / 5), other_places[r] = other_at, other_at += other_counts[r];
    fill(given + places[r], counts[r], round, rank, r);
    types[r] = MPI_INT;
  }
  BOTH(round, Alltoallv, alltoallv, given, counts, places, MPI_INT, got, other_counts, other_places, MPI_INT, comm);
  for (int r = 0; r < size; r++) same(got + other_places[r], other_counts[r], round, r, rank);
  for (int r = 0; r < size; r++) places[r] *= (int)sizeof(int), other_places[r] *= (int)sizeof(int);
  memset(got, 0, sizeof got);
  BOTH(round, Alltoallw, alltoallw, given, counts, places, types, got, other_counts, other_places, types, comm);
  for (int r = 0; r < size; r++) same(got + other_places[r] / (int)sizeof(int), other_counts[r], round, r, rank);
  // In place the counts are symmetric: rank i and rank j exchange (i + j) mod 3 of n / 3.
  at = 0;
  for (int r = 0; r < size; r++) {
    counts[r] = (rank + r) % 3 * (n / 3), places[r] = at, at += counts[r];
    fill(got + places[r], counts[r], round, rank, r + 1);
  }
  // Blocking: Open MPI 4.1 delivers wrong data in large MPI_Ialltoallv in place on four ranks.
  BOTH(size > 2 ? 0 : round, Alltoallv, alltoallv, MPI_IN_PLACE, NULL, NULL, MPI_DATATYPE_NULL, got, counts, places,
       MPI_INT, comm);
  for (int r = 0; r < size; r++) same(got + places[r], counts[r], round, r, rank + 1);
}

static void user_sum(void* in, void* inout, int* count, MPI_Datatype* type) {
  (void)type;
  for (int i = 0; i < *count; i++) ((int*)inout)[i] += ((int*)in)[i];
}

static void reductions(MPI_Comm comm, int round) {
  int rank, size;
  OK(MPI_Comm_rank(comm, &rank));
  OK(MPI_Comm_size(comm, &size));
  const int n = size_of_round(round / 2), root = round % size;
  for (int i = 0; i < n; i++) given[i] = (rank + 1) * (i + 1) + round;
  const int ranks_sum = size * (size + 1) / 2;
#define EXPECT_SUM(data, first, length) \
  for (int i = 0; i < (length); i++) CHECK((data)[i] == ranks_sum * ((first) + i + 1) + size * round)
  BOTH(round, Allreduce, allreduce, given, got, n, MPI_INT, MPI_SUM, comm);
  EXPECT_SUM(got, 0, n);
  memcpy(got, given, sizeof got);
  BOTH(round, Allreduce, allreduce, MPI_IN_PLACE, got, n, MPI_INT, MPI_SUM, comm);
  EXPECT_SUM(got, 0, n);
  BOTH(round, Reduce, reduce, given, got, n, MPI_INT, MPI_SUM, root, comm);
  if (rank == root) EXPECT_SUM(got, 0, n);
  memcpy(got, given, sizeof got);
  BOTH(round, Reduce, reduce, rank == root ? MPI_IN_PLACE : (void*)given, got, n, MPI_INT, MPI_SUM, root, comm);
  if (rank == root) EXPECT_SUM(got, 0, n);
  for (int r = 0; r < size; r++) counts[r] = n / size + (r < n % size);
  int first = 0;
  for (int r = 0; r < rank; r++) first += counts[r];
  BOTH(round, Reduce_scatter, reduce_scatter, given, got, counts, MPI_INT, MPI_SUM, comm);
  EXPECT_SUM(got, first, counts[rank]);
  memcpy(got, given, sizeof got);
  BOTH(round, Reduce_scatter, reduce_scatter, MPI_IN_PLACE, got, counts, MPI_INT, MPI_SUM, comm);
  EXPECT_SUM(got, first, counts[rank]);
  BOTH(round, Reduce_scatter_block, reduce_scatter_block, given, got, n / size, MPI_INT, MPI_SUM, comm);
  EXPECT_SUM(got, rank * (n / size), n / size);
  BOTH(round, Scan, scan, given, got, n, MPI_INT, MPI_SUM, comm);
  for (int i = 0; i < n; i++) CHECK(got[i] == (rank + 1) * (rank + 2) / 2 * (i + 1) + (rank + 1) * round);
  memcpy(got, given, sizeof got);
  BOTH(round, Exscan, exscan, MPI_IN_PLACE, got, n, MPI_INT, MPI_SUM, comm);
  if (rank > 0)
    for (int i = 0; i < n; i++) CHECK(got[i] == rank * (rank + 1) / 2 * (i + 1) + rank * round);
  BOTH(round, Allreduce, allreduce, given, got, n, MPI_INT, MPI_MIN, comm);
  for (int i = 0; i < n; i++) CHECK(got[i] == i + 1 + round);
  BOTH(round, Allreduce, allreduce, given, got, n, MPI_INT, MPI_BXOR, comm);
  static double real[2][kMost];
  for (int i = 0; i < n; i++) real[0][i] = i % 7 == 0 ? 0.0 : 1.0 / (i + rank + 1);
  BOTH(round, Allreduce, allreduce, real[0], real[1], n, MPI_DOUBLE, MPI_SUM, comm);
  BOTH(round, Allreduce, allreduce, real[0], real[1], n, MPI_DOUBLE, MPI_MAX, comm);
  BOTH(round, Reduce, reduce, real[0], real[1], n, MPI_DOUBLE, MPI_SUM, root, comm);
  static struct {
    double value;
    int index;
  } pairs[2][kMost];
  for (int i = 0; i < n; i++) pairs[0][i].value = (i + rank) % 3, pairs[0][i].index = rank;
  BOTH(round, Allreduce, allreduce, pairs[0], pairs[1], n, MPI_DOUBLE_INT, MPI_MAXLOC, comm);
  static long double wide[2][64];
  for (int i = 0; i < 64; i++) wide[0][i] = i + rank;
  BOTH(round, Allreduce, allreduce, wide[0], wide[1], n < 64 ? n : 64, MPI_LONG_DOUBLE, MPI_SUM, comm);
  static uint8_t bytes[2][kMost];
  for (int i = 0; i < n; i++) bytes[0][i] = (uint8_t)(i * 3 + rank);
  BOTH(round, Allreduce, allreduce, bytes[0], bytes[1], n, MPI_UINT8_T, MPI_SUM, comm);
  MPI_Op op;
  OK(MPI_Op_create(user_sum, 1, &op));
  BOTH(round, Allreduce, allreduce, given, got, n, MPI_INT, op, comm);
  EXPECT_SUM(got, 0, n);
  OK(MPI_Op_free(&op));
}

/// Columns of a matrix against contiguous data; the type is freed while the operation is pending.
static void derived(MPI_Comm comm, int round) {
  int rank, size;
  OK(MPI_Comm_rank(comm, &rank));
  OK(MPI_Comm_size(comm, &size));
  MPI_Datatype column, resized;
  OK(MPI_Type_vector(8, 1, 4, MPI_INT, &column));
  OK(MPI_Type_create_resized(column, 0, sizeof(int), &resized));
  OK(MPI_Type_commit(&resized));
  memset(got, 0, sizeof got);
  for (int i = 0; i < 32; i++) given[i] = item(round, rank, 0, i);
  MPI_Request request;
  OK(MPI_Iallgather(given, 4, resized, got, 32, MPI_INT, comm, &request));
  calls++;
  OK(MPI_Type_free(&column));
  OK(MPI_Type_free(&resized));
  OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
  for (int r = 0; r < size; r++)
    for (int i = 0; i < 32; i++) CHECK(got[r * 32 + i] == item(round, r, 0, i % 8 * 4 + i / 8));
}

static void neighbours(MPI_Comm comm, int round, int in, int out, const int* sources, const int* destinations) {
  int rank;
  OK(MPI_Comm_rank(comm, &rank));
  const int n = size_of_round(round / 2) / 4;
  MPI_Aint byte_places[kRanks], other_byte_places[kRanks];
  fill(given, n, round, rank, 77);
  BOTH(round, Neighbor_allgather, neighbor_allgather, given, n, MPI_INT, got, n, MPI_INT, comm);
  for (int i = 0; i < in; i++)
    if (sources[i] >= 0) same(got + i * n, n, round, sources[i], 77);
  for (int i = 0; i < in; i++) counts[i] = n, places[i] = (in - 1 - i) * n;
  BOTH(round, Neighbor_allgatherv, neighbor_allgatherv, given, n, MPI_INT, got, counts, places, MPI_INT, comm);
  for (int i = 0; i < in; i++)
    if (sources[i] >= 0) same(got + places[i], n, round, sources[i], 77);
  for (int i = 0; i < out; i++) fill(given + i * n, n, round, rank, destinations[i]);
  BOTH(round, Neighbor_alltoall, neighbor_alltoall, given, n, MPI_INT, got, n, MPI_INT, comm);
  for (int i = 0; i < in; i++)
    if (sources[i] >= 0) same(got + i * n, n, round, sources[i], rank);
  for (int i = 0; i < out; i++) other_counts[i] = n, other_places[i] = i * n;
  BOTH(round, Neighbor_alltoallv, neighbor_alltoallv, given, other_counts, other_places, MPI_INT, got, counts, places,
       MPI_INT, comm);
  for (int i = 0; i < in; i++)
    if (sources[i] >= 0) same(got + places[i], n, round, sources[i], rank);
  for (int i = 0; i < in || i < out; i++) types[i] = MPI_INT;
  for (int i = 0; i < out; i++) byte_places[i] = other_places[i] * (MPI_Aint)sizeof(int);
  for (int i = 0; i < in; i++) other_byte_places[i] = places[i] * (MPI_Aint)sizeof(int);
  BOTH(round, Neighbor_alltoallw, neighbor_alltoallw, given, other_counts, byte_places, types, got, counts,
       other_byte_places, types, comm);
  for (int i = 0; i < in; i++)
    if (sources[i] >= 0) same(got + places[i], n, round, sources[i], rank);
}

static void topologies(MPI_Comm comm, int round) {
  int rank, size, dims[1], periodic[1], ranks[2];
  OK(MPI_Comm_rank(comm, &rank));
  OK(MPI_Comm_size(comm, &size));
  for (periodic[0] = 0; periodic[0] < 2; periodic[0]++) {
    MPI_Comm cart;
    dims[0] = size;
    OK(MPI_Cart_create(comm, 1, dims, periodic, 0, &cart));
    OK(MPI_Cart_shift(cart, 0, 1, &ranks[0], &ranks[1]));
    neighbours(cart, round, 2, 2, ranks, ranks);
    OK(MPI_Comm_free(&cart));
  }
  int sources[kRanks], destinations[kRanks], in = 0, out = 0;  // everybody to those with higher ranks, and to itself
  for (int r = 0; r <= rank; r++) sources[in++] = r;
  for (int r = rank; r < size; r++) destinations[out++] = r;
  MPI_Comm graph;
  OK(MPI_Dist_graph_create_adjacent(comm, in, sources, MPI_UNWEIGHTED, out, destinations, MPI_UNWEIGHTED, MPI_INFO_NULL,
                                    0, &graph));
  neighbours(graph, round, in, out, sources, destinations);
  OK(MPI_Comm_free(&graph));
}

static void between(MPI_Comm inter, int round) {
  int rank, size, others, low;
  OK(MPI_Comm_rank(inter, &rank));
  OK(MPI_Comm_size(inter, &size));
  OK(MPI_Comm_remote_size(inter, &others));
  int world_rank;
  OK(MPI_Comm_rank(MPI_COMM_WORLD, &world_rank));
  low = world_rank % 2 == 0;
  const int n = size_of_round(round / 2), root = low ? (rank == 0 ? MPI_ROOT : MPI_PROC_NULL) : 0;
  memset(got, 0, sizeof got);
  if (root == MPI_ROOT) fill(got, n, round, 0, 9);
  BOTH(round, Bcast, bcast, got, n, MPI_INT, root, inter);
  if (!low) same(got, n, round, 0, 9);
  fill(given, n, round, rank, low);
  BOTH(round, Allgather, allgather, given, n, MPI_INT, got, n, MPI_INT, inter);
  for (int r = 0; r < others; r++) same(got + r * n, n, round, r, !low);
  BOTH(round, Gather, gather, given, n, MPI_INT, got, n, MPI_INT, root, inter);
  if (root == MPI_ROOT)
    for (int r = 0; r < others; r++) same(got + r * n, n, round, r, 0);
  for (int r = 0; r < others; r++) fill(given + r * n, n, round, rank, r);
  BOTH(round, Scatter, scatter, given, n, MPI_INT, got, n, MPI_INT, root, inter);
  if (root == 0) same(got, n, round, 0, rank);
  BOTH(round, Alltoall, alltoall, given, n, MPI_INT, got, n, MPI_INT, inter);
  for (int r = 0; r < others; r++) same(got + r * n, n, round, r, rank);
  for (int i = 0; i < n; i++) given[i] = i + rank;
  BOTH(round, Allreduce, allreduce, given, got, n, MPI_INT, MPI_SUM, inter);
  BOTH(round, Reduce, reduce, given, got, n, MPI_INT, MPI_SUM, root, inter);
}

#if MPI_VERSION >= 4
static void persistent(MPI_Comm comm) {
  int rank, size;
  enum { kBlock = 50, kRequests = 5 };
  static int in[kRequests][kRanks * kBlock], out[kRequests][kRanks * kBlock];
  MPI_Request requests[kRequests];
  OK(MPI_Comm_rank(comm, &rank));
  OK(MPI_Comm_size(comm, &size));
  OK(MPI_Bcast_init(out[0], kBlock, MPI_INT, 0, comm, MPI_INFO_NULL, &requests[0]));
  OK(MPI_Alltoall_init(in[1], kBlock, MPI_INT, out[1], kBlock, MPI_INT, comm, MPI_INFO_NULL, &requests[1]));
  OK(MPI_Allreduce_init(MPI_IN_PLACE, out[2], kBlock, MPI_INT, MPI_SUM, comm, MPI_INFO_NULL, &requests[2]));
  // Not MPI_Gather_init, MPI_Allgather_init: MPICH 4.0 copies small data when the request is made, not when it is
  // started.
  for (int r = 0; r < size; r++) counts[r] = kBlock, places[r] = kBlock * r;
  OK(MPI_Allgatherv_init(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, out[3], counts, places, MPI_INT, comm, MPI_INFO_NULL,
                         &requests[3]));
  OK(MPI_Gatherv_init(rank == 0 ? MPI_IN_PLACE : (void*)in[4], kBlock, MPI_INT, out[4], counts, places, MPI_INT, 0,
                      comm, MPI_INFO_NULL, &requests[4]));
  for (int round = 0; round < kRounds; round++) {
    if (rank == 0) fill(out[0], kBlock, round, 0, 0);
    for (int r = 0; r < size; r++) fill(in[1] + r * kBlock, kBlock, round, rank, r);
    for (int i = 0; i < kBlock; i++) out[2][i] = (rank + 1) * (i + round);
    fill(out[3] + rank * kBlock, kBlock, round, rank, 3);
    fill(rank == 0 ? out[4] : in[4], kBlock, round, rank, 4);
    if (round % 2 == 0) {
      OK(MPI_Startall(kRequests, requests));
    } else {
      for (int i = 0; i < kRequests; i++) OK(MPI_Start(&requests[i]));
    }
    OK(MPI_Waitall(kRequests, requests, MPI_STATUSES_IGNORE));
    calls += kRequests;
    same(out[0], kBlock, round, 0, 0);
    for (int r = 0; r < size; r++) same(out[1] + r * kBlock, kBlock, round, r, rank);
    for (int i = 0; i < kBlock; i++) CHECK(out[2][i] == size * (size + 1) / 2 * (i + round));
    for (int r = 0; r < size; r++) same(out[3] + r * kBlock, kBlock, round, r, 3);
    if (rank == 0)
      for (int r = 0; r < size; r++) same(out[4] + r * kBlock, kBlock, round, r, 4);
  }
  for (int i = 0; i < kRequests; i++) OK(MPI_Request_free(&requests[i]));
}

static void large(MPI_Comm comm, int round) {
  int rank, size;
  OK(MPI_Comm_rank(comm, &rank));
  OK(MPI_Comm_size(comm, &size));
  MPI_Count wide[kRanks];
  MPI_Aint at[kRanks];
  for (int r = 0; r < size; r++) {
    wide[r] = 20, at[r] = r * 20;
    fill(given + r * 20, 20, round, rank, r);
  }
  OK(MPI_Alltoallv_c(given, wide, at, MPI_INT, got, wide, at, MPI_INT, comm));
  for (int r = 0; r < size; r++) same(got + r * 20, 20, round, r, rank);
  fill(given, 20, round, rank, 0);
  OK(MPI_Allgatherv_c(given, 20, MPI_INT, got, wide, at, MPI_INT, comm));
  for (int r = 0; r < size; r++) same(got + r * 20, 20, round, r, 0);
  calls += 2;
}
#endif

/// Pending ones side by side, completed out of order.
static void overlapped(MPI_Comm comm, int round) {
  int rank, size;
  OK(MPI_Comm_rank(comm, &rank));
  OK(MPI_Comm_size(comm, &size));
  enum { kPending = 6 };
  static int data[kPending][kRanks * 100];
  MPI_Request requests[kPending];
  int order[kPending], done = 0;
  for (int i = 0; i < kPending; i++) {
    fill(data[i] + 100 * rank, 100, round, rank, i);
    OK(MPI_Iallgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, data[i], 100, MPI_INT, comm, &requests[i]));
    calls++;
  }
  while (done < kPending) {
    int some;
    OK(MPI_Waitsome(kPending, requests, &some, order, MPI_STATUSES_IGNORE));
    done += some;
  }
  for (int i = 0; i < kPending; i++)
    for (int r = 0; r < size; r++) same(data[i] + 100 * r, 100, round, r, i);
}

static double numbers[kMost], sums[kMost];

/// From one place with amounts that take turns: `few` elements, then many. What is damaged may be one of these.
static void one_after_the_other(MPI_Comm comm, int round, int few, MPI_Datatype elements) {
  int rank, size;
  OK(MPI_Comm_rank(comm, &rank));
  OK(MPI_Comm_size(comm, &size));
  const int n = round % 3 == 2 ? 40 * few : few, root = round % 2 % size;

  if (rank == root) fill(got, n, round, root, 0);
  OK(MPI_Bcast(got, n, elements, root, comm));
  same(got, n, round, root, 0);

  fill(given, n, round, rank, 0);
  OK(MPI_Allgather(given, n, elements, got, n, elements, comm));
  for (int r = 0; r < size; r++) same(got + r * n, n, round, r, 0);

  for (int r = 0; r < size; r++) fill(given + r * n, n, round, rank, r);
  OK(MPI_Alltoall(given, n, elements, got, n, elements, comm));
  for (int r = 0; r < size; r++) same(got + r * n, n, round, r, rank);

  fill(given, n, round, rank, 2);
  OK(MPI_Gather(given, n, elements, got, n, elements, root, comm));
  for (int r = 0; r < size && rank == root; r++) same(got + r * n, n, round, r, 2);

  if (rank == root)
    for (int r = 0; r < size; r++) fill(given + r * n, n, round, root, r);
  OK(MPI_Scatter(given, n, elements, got, n, elements, root, comm));
  same(got, n, round, root, rank);

  for (int i = 0; i < n; i++) numbers[i] = rank + i + round;
  OK(MPI_Allreduce(numbers, sums, n, MPI_DOUBLE, MPI_SUM, comm));
  CHECK(blind || sums[n - 1] == size * (size - 1) / 2 + size * (n - 1.0 + round));
  OK(MPI_Allreduce(MPI_IN_PLACE, numbers, n, MPI_DOUBLE, MPI_SUM, comm));
  CHECK(blind || memcmp(numbers, sums, (size_t)n * sizeof *sums) == 0);
  OK(MPI_Reduce(numbers, sums, n, MPI_DOUBLE, MPI_SUM, root, comm));
  OK(MPI_Allreduce(given, got, n, MPI_INT, MPI_MAX, comm));  // goes the general way
  OK(MPI_Barrier(comm));
  calls += 9;
}

#define ALL_OF_THEM                                                \
  OK(MPI_Bcast(got, n, MPI_INT, 0, comm));                         \
  OK(MPI_Allgather(given, n, MPI_INT, got, n, MPI_INT, comm));     \
  OK(MPI_Alltoall(given, n, MPI_INT, got, n, MPI_INT, comm));      \
  OK(MPI_Gather(given, n, MPI_INT, got, n, MPI_INT, 0, comm));     \
  OK(MPI_Scatter(given, n, MPI_INT, got, n, MPI_INT, 0, comm));    \
  OK(MPI_Allreduce(numbers, sums, n, MPI_DOUBLE, MPI_PROD, comm)); \
  OK(MPI_Reduce(numbers, sums, n, MPI_DOUBLE, MPI_SUM, 0, comm));  \
  OK(MPI_Barrier(comm));
__attribute__((noipa)) static void at_one_place(MPI_Comm comm, int n) { ALL_OF_THEM }
__attribute__((noipa)) static void at_another(MPI_Comm comm, int n) { ALL_OF_THEM }

/// One rank's calls come from a place that has made none before, the other ones' from one that made them often.
static void each_in_its_way(MPI_Comm comm) {
  int rank;
  OK(MPI_Comm_rank(comm, &rank));
  memset(numbers, 0, sizeof numbers);
  memset(given, 0, sizeof given);
  memset(got, 0, sizeof got);
  for (int n = 0; n < 8; n += 7)
    for (int round = 0; round < 20; round++) {
      if (rank == 0 || round < 19) at_one_place(comm, n);
      else at_another(comm, n);
      OK(MPI_Allreduce(numbers, sums, 2, MPI_DOUBLE, MPI_SUM, comm));  // here it is seen whether the ones before agreed
    }
}

static void again(int rounds, MPI_Comm* comms, int count) {
  if (!blind) each_in_its_way(MPI_COMM_WORLD);  // else the calls are counted
  for (int round = 0; round < rounds; round++) {
    for (int i = 0; i < count; i++) one_after_the_other(comms[i], round, 5, MPI_INT);
    one_after_the_other(comms[0], round, 5, MPI_INT32_T);
    if (round % 16 != 15) continue;
    MPI_Comm fresh;  // its handle may be another one's of before
    MPI_Datatype whole;
    OK(MPI_Comm_dup(comms[round / 16 % count], &fresh));
    OK(MPI_Type_contiguous(1, MPI_INT, &whole));
    OK(MPI_Type_commit(&whole));
    for (int i = 0; i < 4; i++) one_after_the_other(fresh, round + i, 3, i % 2 ? whole : MPI_INT);
    OK(MPI_Type_free(&whole));
    OK(MPI_Comm_free(&fresh));
  }
}

int main(int argc, char** argv) {
  OK(MPI_Init(&argc, &argv));
  int rank, size;
  OK(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
  OK(MPI_Comm_size(MPI_COMM_WORLD, &size));
  CHECK(size <= kRanks);
  blind = getenv("DAMAGE") != NULL;
  const int repeats = argc > 2 && strcmp(argv[1], "again") == 0 ? atoi(argv[2]) : 0;
  const int rounds = repeats != 0 ? 0 : argc > 1 ? atoi(argv[1]) : kRounds;
  MPI_Comm comms[3], half, inter = MPI_COMM_NULL;
  comms[0] = MPI_COMM_WORLD;
  comms[1] = MPI_COMM_SELF;
  OK(MPI_Comm_split(MPI_COMM_WORLD, 0, -rank, &comms[2]));  // the other way round
  OK(MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &half));
  if (size > 1) OK(MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, rank % 2 == 0 ? 1 : 0, 5, &inter));
  for (int round = 0; round < rounds; round++) {
    for (int i = 0; i < 3; i++) {
      same_everywhere(comms[i], round);
      rooted(comms[i], round);
      all_to_all(comms[i], round);
      reductions(comms[i], round);
      derived(comms[i], round);
      overlapped(comms[i], round);
#if MPI_VERSION >= 4
      large(comms[i], round);
#endif
    }
    topologies(MPI_COMM_WORLD, round);
    if (inter != MPI_COMM_NULL) between(inter, round);
  }
  if (repeats != 0) again(repeats, comms, 3);
#if MPI_VERSION >= 4
  else persistent(comms[2]);
#endif
  if (inter != MPI_COMM_NULL) OK(MPI_Comm_free(&inter));
  OK(MPI_Comm_free(&half));
  OK(MPI_Comm_free(&comms[2]));
  if (rank == 0) printf("collective_checks %d\n", calls);
  OK(MPI_Finalize());
  return 0;
}
