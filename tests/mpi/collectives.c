// SPDX-License-Identifier: Apache-2.0
//
// Collectives on intracommunicators: every blocking one, every nonblocking one, the v-variants, MPI_IN_PLACE,
// reduce_scatter, scans, and the neighbourhood collectives on a periodic ring. The intercommunicator ones are in
// intercomm.c.
//
// ranks: 2
// calls: MPI_Bcast=2 MPI_Gather=2 MPI_Gatherv=1 MPI_Scatter=2 MPI_Scatterv=1 MPI_Allgather=2 MPI_Allgatherv=1
// calls: MPI_Alltoall=2 MPI_Alltoallv=1 MPI_Alltoallw=1 MPI_Reduce=2 MPI_Allreduce=3 MPI_Reduce_scatter=1
// calls: MPI_Reduce_scatter_block=1 MPI_Scan=1 MPI_Exscan=1 MPI_Barrier=1 MPI_Reduce_local=1
// calls: MPI_Ibarrier=1 MPI_Ibcast=1 MPI_Igather=1 MPI_Igatherv=1 MPI_Iscatter=1 MPI_Iscatterv=1 MPI_Iallgather=1
// calls: MPI_Iallgatherv=1 MPI_Ialltoall=1 MPI_Ialltoallv=1 MPI_Ialltoallw=1 MPI_Ireduce=1 MPI_Iallreduce=1
// calls: MPI_Ireduce_scatter=1 MPI_Ireduce_scatter_block=1 MPI_Iscan=1 MPI_Iexscan=1 MPI_Waitall=1
// calls: MPI_Neighbor_allgather=1 MPI_Neighbor_allgatherv=1 MPI_Neighbor_alltoall=1 MPI_Neighbor_alltoallv=1
// calls: MPI_Neighbor_alltoallw=1 MPI_Ineighbor_allgather=1 MPI_Ineighbor_allgatherv=1 MPI_Ineighbor_alltoall=1
// calls: MPI_Ineighbor_alltoallv=1 MPI_Ineighbor_alltoallw=1 MPI_Wait=5 MPI_Cart_create=1 MPI_Comm_free=1
#include <mpi.h>
#include <string.h>

#include "check.h"

enum { kCount = 1000, kRanks = 2 };

static const MPI_Comm world = MPI_COMM_WORLD;
static int me;
static double sums[3][kCount];
static int mine[kRanks * kCount], all[kRanks * kCount];
static int counts[kRanks], displacements[kRanks], byte_displacements[kRanks];
static MPI_Datatype types[kRanks];

static void blocking(void) {
  for (int i = 0; i < kCount; i++) {
    sums[0][i] = 1.0 / (i + 1 + me);
    mine[i] = mine[i + kCount] = me * 10000 + i;
  }
  OK(MPI_Barrier(world));
  OK(MPI_Bcast(me == 0 ? mine : all, kCount, MPI_INT, 0, world));
  if (me == 1) CHECK(all[17] == 17);
  OK(MPI_Bcast(me == 1 ? mine : all, kCount, MPI_INT, 1, world));
  if (me == 0) CHECK(all[17] == 10017);

  OK(MPI_Gather(mine, kCount, MPI_INT, all, kCount, MPI_INT, 0, world));
  if (me == 0) CHECK(all[kCount + 3] == 10003);
  memcpy(all + me * kCount, mine, kCount * sizeof(int));
  OK(MPI_Gather(me == 0 ? MPI_IN_PLACE : mine, kCount, MPI_INT, all, kCount, MPI_INT, 0, world));
  if (me == 0) CHECK(all[3] == 3 && all[kCount + 3] == 10003);
  OK(MPI_Scatter(all, kCount, MPI_INT, mine, kCount, MPI_INT, 0, world));
  OK(MPI_Scatter(all, kCount, MPI_INT, me == 0 ? MPI_IN_PLACE : mine, kCount, MPI_INT, 0, world));
  CHECK(mine[5] == me * 10000 + 5);

  for (int r = 0; r < kRanks; r++) {
    counts[r] = 10 * (r + 1);
    displacements[r] = 500 * r;
    byte_displacements[r] = 500 * r * (int)sizeof(int);
    types[r] = MPI_INT;
  }
  OK(MPI_Gatherv(mine, counts[me], MPI_INT, all, counts, displacements, MPI_INT, 0, world));
  if (me == 0) CHECK(all[500 + 19] == 10019);
  OK(MPI_Scatterv(all, counts, displacements, MPI_INT, mine, counts[me], MPI_INT, 0, world));
  CHECK(mine[7] == me * 10000 + 7);
  OK(MPI_Allgather(mine, kCount, MPI_INT, all, kCount, MPI_INT, world));
  OK(MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, all, kCount, MPI_INT, world));
  CHECK(all[9] == 9 && all[kCount + 9] == 10009);
  OK(MPI_Allgatherv(mine, counts[me], MPI_INT, all, counts, displacements, MPI_INT, world));
  CHECK(all[500] == 10000);

  memcpy(mine + kCount, mine, kCount * sizeof(int));
  OK(MPI_Alltoall(mine, kCount, MPI_INT, all, kCount, MPI_INT, world));
  CHECK(all[1] == 1 && all[kCount + 1] == 10001);
  OK(MPI_Alltoall(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, all, kCount, MPI_INT, world));
  int to[kRanks] = {10, 10};
  OK(MPI_Alltoallv(mine, to, displacements, MPI_INT, all, to, displacements, MPI_INT, world));
  CHECK(all[500 + 9] == 10000 + (me ? 509 : 9));
  OK(MPI_Alltoallw(mine, to, byte_displacements, types, all, to, byte_displacements, types, world));
  CHECK(all[500 + 9] == 10000 + (me ? 509 : 9));

  OK(MPI_Reduce(sums[0], sums[1], kCount, MPI_DOUBLE, MPI_SUM, 0, world));
  memcpy(sums[2], sums[0], sizeof sums[0]);
  OK(MPI_Reduce(me == 0 ? MPI_IN_PLACE : sums[0], sums[2], kCount, MPI_DOUBLE, MPI_SUM, 0, world));
  if (me == 0) CHECK(memcmp(sums[1], sums[2], sizeof sums[1]) == 0);
  OK(MPI_Allreduce(sums[0], sums[1], kCount, MPI_DOUBLE, MPI_SUM, world));
  OK(MPI_Allreduce(MPI_IN_PLACE, mine, kCount, MPI_INT, MPI_MAX, world));
  CHECK(mine[5] == 10005);
  struct {
    double value;
    int index;
  } pair = {me == 0 ? 2.5 : 1.5, me}, least;
  OK(MPI_Allreduce(&pair, &least, 1, MPI_DOUBLE_INT, MPI_MINLOC, world));
  CHECK(least.value == 1.5 && least.index == 1);
  int blocks[kRanks] = {400, 600};
  OK(MPI_Reduce_scatter(mine, all, blocks, MPI_INT, MPI_SUM, world));
  CHECK(all[0] == 2 * (10000 + (me ? 400 : 0)));
  OK(MPI_Reduce_scatter_block(mine, all, 500, MPI_INT, MPI_SUM, world));
  CHECK(all[0] == 2 * (10000 + 500 * me));
  OK(MPI_Scan(mine, all, 10, MPI_INT, MPI_SUM, world));
  CHECK(all[0] == (me + 1) * 10000);
  OK(MPI_Exscan(mine, all, 10, MPI_INT, MPI_SUM, world));
  if (me == 1) CHECK(all[0] == 10000);
  OK(MPI_Reduce_local(mine, all, 1, MPI_INT, MPI_SUM));
}

static void nonblocking(void) {
  enum { kRequests = 17, kPart = 100 };
  static int in[kRequests][kRanks * kPart], out[kRequests][kRanks * kPart];
  MPI_Request requests[kRequests];
  int part[kRanks] = {kPart, kPart}, at[kRanks] = {0, kPart}, at_bytes[kRanks] = {0, kPart * (int)sizeof(int)};
  int n = 0;
  for (int k = 0; k < kRequests; k++)
    for (int i = 0; i < kRanks * kPart; i++) in[k][i] = 1000 * k + 100 * me + i;
  OK(MPI_Ibarrier(world, &requests[n++]));
  OK(MPI_Ibcast(in[1], kPart, MPI_INT, 1, world, &requests[n++]));
  OK(MPI_Igather(in[2], kPart, MPI_INT, out[2], kPart, MPI_INT, 0, world, &requests[n++]));
  OK(MPI_Igatherv(in[3], kPart, MPI_INT, out[3], part, at, MPI_INT, 0, world, &requests[n++]));
  OK(MPI_Iscatter(in[4], kPart, MPI_INT, out[4], kPart, MPI_INT, 0, world, &requests[n++]));
  OK(MPI_Iscatterv(in[5], part, at, MPI_INT, out[5], kPart, MPI_INT, 0, world, &requests[n++]));
  OK(MPI_Iallgather(in[6], kPart, MPI_INT, out[6], kPart, MPI_INT, world, &requests[n++]));
  OK(MPI_Iallgatherv(in[7], kPart, MPI_INT, out[7], part, at, MPI_INT, world, &requests[n++]));
  OK(MPI_Ialltoall(in[8], kPart, MPI_INT, out[8], kPart, MPI_INT, world, &requests[n++]));
  OK(MPI_Ialltoallv(in[9], part, at, MPI_INT, out[9], part, at, MPI_INT, world, &requests[n++]));
  OK(MPI_Ialltoallw(in[10], part, at_bytes, types, out[10], part, at_bytes, types, world, &requests[n++]));
  OK(MPI_Ireduce(in[11], out[11], kPart, MPI_INT, MPI_SUM, 0, world, &requests[n++]));
  OK(MPI_Iallreduce(in[12], out[12], kPart, MPI_INT, MPI_SUM, world, &requests[n++]));
  OK(MPI_Ireduce_scatter(in[13], out[13], part, MPI_INT, MPI_SUM, world, &requests[n++]));
  OK(MPI_Ireduce_scatter_block(in[14], out[14], kPart, MPI_INT, MPI_SUM, world, &requests[n++]));
  OK(MPI_Iscan(in[15], out[15], kPart, MPI_INT, MPI_SUM, world, &requests[n++]));
  OK(MPI_Iexscan(in[16], out[16], kPart, MPI_INT, MPI_SUM, world, &requests[n++]));
  CHECK(n == kRequests);
  OK(MPI_Waitall(n, requests, MPI_STATUSES_IGNORE));
  CHECK(in[1][3] == 1103);
  for (int k = 2; k <= 3 && me == 0; k++) CHECK(out[k][kPart + 3] == 1000 * k + 103);
  for (int k = 4; k <= 5; k++) CHECK(out[k][3] == 1000 * k + kPart * me + 3);
  for (int k = 6; k <= 7; k++) CHECK(out[k][kPart + 3] == 1000 * k + 103);
  for (int k = 8; k <= 10; k++) CHECK(out[k][kPart + 3] == 1000 * k + 100 + kPart * me + 3);
  for (int k = 11 + (me == 1); k <= 12; k++) CHECK(out[k][3] == 2000 * k + 106);
  for (int k = 13; k <= 14; k++) CHECK(out[k][3] == 2000 * k + 106 + 2 * kPart * me);
  CHECK(out[15][3] == (me == 0 ? 15003 : 30106));
  if (me == 1) CHECK(out[16][3] == 16003);
}

// A periodic ring of two: the left and the right neighbour are the same rank.
static void neighbourhood(void) {
  enum { kPart = 4 };
  MPI_Comm ring;
  MPI_Request request;
  int dims[1] = {kRanks}, periods[1] = {1}, peer = 1 - me;
  int in[2 * kPart], out[2 * kPart], part[2] = {kPart, kPart}, at[2] = {0, kPart};
  MPI_Aint at_bytes[2] = {0, kPart * sizeof(int)};
  OK(MPI_Cart_create(world, 1, dims, periods, 0, &ring));
  for (int i = 0; i < 2 * kPart; i++) in[i] = 100 * me + i;
#define ARRIVED(sum)                                               \
  CHECK(out[1] + out[kPart + 1] == (sum) && out[1] / 100 == peer); \
  memset(out, 0, sizeof out)
  OK(MPI_Neighbor_allgather(in, kPart, MPI_INT, out, kPart, MPI_INT, ring));
  ARRIVED(200 * peer + 2);
  OK(MPI_Neighbor_allgatherv(in, kPart, MPI_INT, out, part, at, MPI_INT, ring));
  ARRIVED(200 * peer + 2);
  OK(MPI_Neighbor_alltoall(in, kPart, MPI_INT, out, kPart, MPI_INT, ring));
  ARRIVED(200 * peer + 2 + kPart);
  OK(MPI_Neighbor_alltoallv(in, part, at, MPI_INT, out, part, at, MPI_INT, ring));
  ARRIVED(200 * peer + 2 + kPart);
  OK(MPI_Neighbor_alltoallw(in, part, at_bytes, types, out, part, at_bytes, types, ring));
  ARRIVED(200 * peer + 2 + kPart);
  OK(MPI_Ineighbor_allgather(in, kPart, MPI_INT, out, kPart, MPI_INT, ring, &request));
  OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
  ARRIVED(200 * peer + 2);
  OK(MPI_Ineighbor_allgatherv(in, kPart, MPI_INT, out, part, at, MPI_INT, ring, &request));
  OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
  ARRIVED(200 * peer + 2);
  OK(MPI_Ineighbor_alltoall(in, kPart, MPI_INT, out, kPart, MPI_INT, ring, &request));
  OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
  ARRIVED(200 * peer + 2 + kPart);
  OK(MPI_Ineighbor_alltoallv(in, part, at, MPI_INT, out, part, at, MPI_INT, ring, &request));
  OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
  ARRIVED(200 * peer + 2 + kPart);
  OK(MPI_Ineighbor_alltoallw(in, part, at_bytes, types, out, part, at_bytes, types, ring, &request));
  OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
  ARRIVED(200 * peer + 2 + kPart);
  OK(MPI_Comm_free(&ring));
}

int main(int argc, char** argv) {
  OK(MPI_Init(&argc, &argv));
  OK(MPI_Comm_rank(world, &me));
  blocking();
  nonblocking();
  neighbourhood();
  OK(MPI_Finalize());
  if (me == 0) printf("collectives %016lx %016lx\n", fingerprint(sums, sizeof sums), fingerprint(mine, sizeof mine));
  return 0;
}
