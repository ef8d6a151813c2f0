// SPDX-License-Identifier: Apache-2.0
//
// Arguments that do not matter hold garbage, counts are zero, buffers NULL, in place or at MPI_BOTTOM; arrays are freed
// or overwritten as early as both MPIs permit; wrong arguments come back as errors. Every collective, blocking,
// nonblocking, persistent where the MPI has it, and over neighbours.
#include "hostile.h"

#define GARBAGE ((void*)(uintptr_t)24)
#define WORLD MPI_COMM_WORLD

// No datatype at all; a value that is no handle would be looked into by one of the MPIs.
static MPI_Datatype kNoType;
static int data[64], result[64];

static void fresh(void) {
  for (int k = 0; k < 64; k++) data[k] = 10 * k + me + 1, result[k] = -k;
}
static void tell(const char* what) { say("%s: %u %u", what, sum_of(data, sizeof(data)), sum_of(result, sizeof(result))); }

static void finish(const char* what, int code, MPI_Request* request) {
  if (said(what, code) == MPI_SUCCESS) said(what, MPI_Wait(request, MPI_STATUS_IGNORE));
}

#if MPI_VERSION >= 4
#define PERSISTENT(NAME, ...) do { \
    if (on_openmpi()) break; \
    fresh(); \
    if (TRY(MPI_##NAME##_init(__VA_ARGS__, MPI_INFO_NULL, &request)) == 0) { \
      for (int twice = 0; twice < 2; twice++) MPI_Start(&request), finish(#NAME "_init", 0, &request); \
      MPI_Request_free(&request); \
    } \
    tell(#NAME "_init"); \
  } while (0)
#else
#define PERSISTENT(NAME, ...) do {} while (0)
#endif
// A collective in all its forms, with the same arguments and fresh data each time.
#define ALL(NAME, INAME, ...) do { \
    MPI_Request request = MPI_REQUEST_NULL; \
    (void)request; \
    fresh(); \
    TRY(MPI_##NAME(__VA_ARGS__)); \
    tell(#NAME); \
    fresh(); \
    finish(#INAME, MPI_##INAME(__VA_ARGS__, &request), &request); \
    tell(#INAME); \
    PERSISTENT(NAME, __VA_ARGS__); \
  } while (0)

static int ones[2] = {1, 1}, zeros[2] = {0, 0}, twos[2] = {2, 2}, apart[2] = {0, 2};
static int bytes[2] = {0, 4};

static void insignificant(void) {
  for (int root = 0; root < 2; root++) {
    int here = me == root;
    ALL(Gather, Igather, data, 2, MPI_INT, here ? result : GARBAGE, here ? 2 : -7, here ? MPI_INT : kNoType, root, WORLD);
    ALL(Gatherv, Igatherv, data, 2, MPI_INT, here ? result : GARBAGE, here ? twos : GARBAGE, here ? apart : GARBAGE,
        here ? MPI_INT : kNoType, root, WORLD);
    ALL(Scatter, Iscatter, here ? data : GARBAGE, here ? 2 : -7, here ? MPI_INT : kNoType, result, 2, MPI_INT, root, WORLD);
    ALL(Scatterv, Iscatterv, here ? data : GARBAGE, here ? twos : GARBAGE, here ? apart : GARBAGE, here ? MPI_INT : kNoType,
        result, 2, MPI_INT, root, WORLD);
    ALL(Reduce, Ireduce, data, here ? result : GARBAGE, 3, MPI_INT, MPI_SUM, root, WORLD);
    ALL(Reduce, Ireduce, here ? MPI_IN_PLACE : data, here ? data : GARBAGE, 3, MPI_INT, MPI_SUM, root, WORLD);
    ALL(Gather, Igather, here ? MPI_IN_PLACE : data, here ? -3 : 2, here ? kNoType : MPI_INT, here ? data : GARBAGE,
        here ? 2 : -7, here ? MPI_INT : kNoType, root, WORLD);
    ALL(Gatherv, Igatherv, here ? MPI_IN_PLACE : data, here ? -3 : 2, here ? kNoType : MPI_INT, here ? data : GARBAGE,
        here ? twos : NULL, here ? apart : NULL, here ? MPI_INT : kNoType, root, WORLD);
    ALL(Scatter, Iscatter, here ? data : GARBAGE, here ? 2 : -7, here ? MPI_INT : kNoType, here ? MPI_IN_PLACE : result,
        here ? -5 : 2, here ? kNoType : MPI_INT, root, WORLD);
    ALL(Scatterv, Iscatterv, here ? data : GARBAGE, here ? twos : NULL, here ? apart : NULL, here ? MPI_INT : kNoType,
        here ? MPI_IN_PLACE : result, here ? -5 : 2, here ? kNoType : MPI_INT, root, WORLD);
  }
  ALL(Exscan, Iexscan, data, me ? result : GARBAGE, 3, MPI_INT, MPI_SUM, WORLD);
}

static void in_place(void) {
  MPI_Datatype ints[2] = {MPI_INT, MPI_INT};
  ALL(Allreduce, Iallreduce, MPI_IN_PLACE, data, 5, MPI_INT, MPI_SUM, WORLD);
  ALL(Allgather, Iallgather, MPI_IN_PLACE, -4, kNoType, data, 3, MPI_INT, WORLD);
  ALL(Allgatherv, Iallgatherv, MPI_IN_PLACE, -4, kNoType, data, twos, apart, MPI_INT, WORLD);
  ALL(Alltoall, Ialltoall, MPI_IN_PLACE, -4, kNoType, data, 3, MPI_INT, WORLD);
  ALL(Alltoallv, Ialltoallv, MPI_IN_PLACE, GARBAGE, GARBAGE, kNoType, data, twos, apart, MPI_INT, WORLD);
  // Open MPI's library of the standard ABI reads the types that do not matter, and crashes natively.
  void* no_types = standard_abi() && on_openmpi() ? (void*)ints : GARBAGE;
  ALL(Alltoallw, Ialltoallw, MPI_IN_PLACE, GARBAGE, GARBAGE, no_types, data, ones, bytes, ints, WORLD);
  ALL(Reduce_scatter, Ireduce_scatter, MPI_IN_PLACE, data, twos, MPI_INT, MPI_SUM, WORLD);
  ALL(Reduce_scatter_block, Ireduce_scatter_block, MPI_IN_PLACE, data, 3, MPI_INT, MPI_SUM, WORLD);
  ALL(Scan, Iscan, MPI_IN_PLACE, data, 3, MPI_INT, MPI_SUM, WORLD);
  ALL(Exscan, Iexscan, MPI_IN_PLACE, data, 3, MPI_INT, MPI_SUM, WORLD);
}

static void empty_with(void* buffer, const char* what) {
  MPI_Datatype ints[2] = {MPI_INT, MPI_DOUBLE};
  say("%s", what);
  ALL(Bcast, Ibcast, buffer, 0, MPI_INT, 1, WORLD);
  ALL(Gather, Igather, buffer, 0, MPI_INT, buffer, 0, MPI_INT, 1, WORLD);
  ALL(Gatherv, Igatherv, buffer, 0, MPI_INT, buffer, zeros, zeros, MPI_INT, 0, WORLD);
  ALL(Scatter, Iscatter, buffer, 0, MPI_INT, buffer, 0, MPI_INT, 1, WORLD);
  ALL(Scatterv, Iscatterv, buffer, zeros, zeros, MPI_INT, buffer, 0, MPI_INT, 0, WORLD);
  ALL(Allgather, Iallgather, buffer, 0, MPI_INT, buffer, 0, MPI_INT, WORLD);
  ALL(Allgatherv, Iallgatherv, buffer, 0, MPI_INT, buffer, zeros, zeros, MPI_INT, WORLD);
  ALL(Alltoall, Ialltoall, buffer, 0, MPI_INT, buffer, 0, MPI_INT, WORLD);
  ALL(Alltoallv, Ialltoallv, buffer, zeros, zeros, MPI_INT, buffer, zeros, zeros, MPI_INT, WORLD);
  ALL(Alltoallw, Ialltoallw, buffer, zeros, zeros, ints, buffer, zeros, zeros, ints, WORLD);
  ALL(Reduce, Ireduce, buffer, buffer, 0, MPI_INT, MPI_SUM, 0, WORLD);
  ALL(Allreduce, Iallreduce, buffer, buffer, 0, MPI_INT, MPI_SUM, WORLD);
  ALL(Reduce_scatter, Ireduce_scatter, buffer, buffer, zeros, MPI_INT, MPI_SUM, WORLD);
  ALL(Reduce_scatter_block, Ireduce_scatter_block, buffer, buffer, 0, MPI_INT, MPI_SUM, WORLD);
  ALL(Scan, Iscan, buffer, buffer, 0, MPI_INT, MPI_SUM, WORLD);
  ALL(Exscan, Iexscan, buffer, buffer, 0, MPI_INT, MPI_SUM, WORLD);
  TRY(MPI_Reduce_local(buffer, buffer, 0, MPI_INT, MPI_SUM));
}
static void empty(void) { empty_with(NULL, "NULL"), empty_with(result, "a buffer"); }

static void neighbours_of(MPI_Comm comm) {
  int in, out, weighted, from[4], to[4];
  MPI_Datatype ints[4] = {MPI_INT, MPI_INT, MPI_INT, MPI_INT};
  int two[4] = {2, 2, 2, 2}, at[4] = {0, 2, 4, 6}, none[4] = {0};
  MPI_Aint far[4] = {0, 8, 16, 24};
  int kind;
  (void)from, (void)to;
  MPI_Topo_test(comm, &kind);
  if (kind == MPI_DIST_GRAPH) {
    MPI_Dist_graph_neighbors_count(comm, &in, &out, &weighted);
    say("%d in, %d out", in, out);
  }
  ALL(Neighbor_allgather, Ineighbor_allgather, data, 2, MPI_INT, result, 2, MPI_INT, comm);
  ALL(Neighbor_allgatherv, Ineighbor_allgatherv, data, 2, MPI_INT, result, two, at, MPI_INT, comm);
  ALL(Neighbor_alltoall, Ineighbor_alltoall, data, 2, MPI_INT, result, 2, MPI_INT, comm);
  ALL(Neighbor_alltoallv, Ineighbor_alltoallv, data, two, at, MPI_INT, result, two, at, MPI_INT, comm);
  ALL(Neighbor_alltoallw, Ineighbor_alltoallw, data, two, far, ints, result, two, far, ints, comm);
  ALL(Neighbor_alltoall, Ineighbor_alltoall, NULL, 0, MPI_INT, NULL, 0, MPI_INT, comm);
  ALL(Neighbor_alltoallv, Ineighbor_alltoallv, NULL, none, none, MPI_INT, NULL, none, none, MPI_INT, comm);
}

static void neighbours(void) {
  MPI_Comm comm;
  int size[1] = {2}, open_end[1] = {0}, ring[1] = {1}, one[1] = {other}, twice[2] = {other, other};
  MPI_Cart_create(WORLD, 1, size, open_end, 0, &comm);
  neighbours_of(comm);  // with MPI_PROC_NULL at the ends
  MPI_Comm_free(&comm);
  MPI_Cart_create(WORLD, 1, size, ring, 0, &comm);
  neighbours_of(comm);  // twice the same neighbour
  MPI_Comm_free(&comm);
  MPI_Dist_graph_create_adjacent(WORLD, 1, one, MPI_UNWEIGHTED, 2, twice, MPI_UNWEIGHTED, MPI_INFO_NULL, 0, &comm);
  MPI_Comm_free(&comm);
  MPI_Dist_graph_create_adjacent(WORLD, 0, NULL, MPI_WEIGHTS_EMPTY, 0, NULL, MPI_WEIGHTS_EMPTY, MPI_INFO_NULL, 0, &comm);
  neighbours_of(comm);
  MPI_Comm_free(&comm);
  int me_too[2] = {me, other};
  MPI_Dist_graph_create_adjacent(WORLD, 2, me_too, MPI_UNWEIGHTED, 2, me_too, MPI_UNWEIGHTED, MPI_INFO_NULL, 0, &comm);
  neighbours_of(comm);
  MPI_Comm_free(&comm);
}

static void alone(void) {
  MPI_Datatype ints[1] = {MPI_INT};
  int one[1] = {4}, at[1] = {0};
  MPI_Comm self = MPI_COMM_SELF;
  ALL(Bcast, Ibcast, data, 4, MPI_INT, 0, self);
  ALL(Gather, Igather, data, 4, MPI_INT, result, 4, MPI_INT, 0, self);
  ALL(Allgatherv, Iallgatherv, data, 4, MPI_INT, result, one, at, MPI_INT, self);
  ALL(Alltoallw, Ialltoallw, data, one, at, ints, result, one, at, ints, self);
  ALL(Reduce, Ireduce, data, result, 4, MPI_INT, MPI_SUM, 0, self);
  ALL(Allreduce, Iallreduce, MPI_IN_PLACE, data, 4, MPI_INT, MPI_SUM, self);
  ALL(Reduce_scatter, Ireduce_scatter, data, result, one, MPI_INT, MPI_SUM, self);
  ALL(Scan, Iscan, data, result, 4, MPI_INT, MPI_SUM, self);
  ALL(Exscan, Iexscan, data, result, 4, MPI_INT, MPI_SUM, self);
}

static void between(void) {  // an intercommunicator of one rank each
  MPI_Comm inter;
  MPI_Intercomm_create(MPI_COMM_SELF, 0, WORLD, other, 5, &inter);
  MPI_Comm_set_errhandler(inter, MPI_ERRORS_RETURN);
  int root = me == 0 ? MPI_ROOT : 0;
  ALL(Bcast, Ibcast, data, 4, MPI_INT, root, inter);
  ALL(Gather, Igather, me ? data : GARBAGE, me ? 2 : -1, me ? MPI_INT : kNoType, me ? GARBAGE : result, me ? -1 : 2,
      me ? kNoType : MPI_INT, root, inter);
  ALL(Scatter, Iscatter, me ? GARBAGE : data, me ? -1 : 2, me ? kNoType : MPI_INT, me ? result : GARBAGE, me ? 2 : -1,
      me ? MPI_INT : kNoType, root, inter);
  ALL(Reduce, Ireduce, me ? data : GARBAGE, me ? GARBAGE : result, 2, MPI_INT, MPI_SUM, root, inter);
  ALL(Allgather, Iallgather, data, me ? 2 : 0, MPI_INT, result, me ? 0 : 2, MPI_INT, inter);
  ALL(Alltoall, Ialltoall, data, 3, MPI_INT, result, 3, MPI_INT, inter);
  ALL(Allreduce, Iallreduce, data, result, 3, MPI_INT, MPI_SUM, inter);
  TRY(MPI_Barrier(inter));
  MPI_Comm_free(&inter);
}

// Both MPIs copy the arrays of nonblocking calls; mpi4py and many programs rely on it.
static void arrays_freed(void) {
  MPI_Request request;
  for (int round = 0; round < 20; round++) {
    for (int which = 0; which < 5; which++) {
      int* counts = malloc(2 * sizeof(int));
      int* displs = malloc(2 * sizeof(int));
      counts[0] = counts[1] = 2 + round;
      displs[0] = 0, displs[1] = 2 + round;
      fresh();
      if (which == 0) MPI_Iallgatherv(data, 2 + round, MPI_INT, result, counts, displs, MPI_INT, WORLD, &request);
      if (which == 1) MPI_Ialltoallv(data, counts, displs, MPI_INT, result, counts, displs, MPI_INT, WORLD, &request);
      if (which == 2) MPI_Igatherv(data, 2 + round, MPI_INT, result, counts, displs, MPI_INT, 0, WORLD, &request);
      if (which == 3) MPI_Iscatterv(data, counts, displs, MPI_INT, result, 2 + round, MPI_INT, 0, WORLD, &request);
      if (which == 4) MPI_Ireduce_scatter(data, result, counts, MPI_INT, MPI_SUM, WORLD, &request);
      memset(counts, 0x7f, 2 * sizeof(int)), memset(displs, 0x7f, 2 * sizeof(int));
      free(counts), free(displs);
      TRY(MPI_Wait(&request, MPI_STATUS_IGNORE));
      if (round > 17) tell("arrays freed");
    }
  }
}

// The same over neighbours, and with arrays of datatypes whose members are freed, too.
static void more_arrays_freed(void) {
  int size[1] = {2}, ring[1] = {1};
  MPI_Comm comm;
  MPI_Cart_create(WORLD, 1, size, ring, 0, &comm);
  for (int which = 0; which < 4; which++) {
    MPI_Request request;
    int* counts = malloc(2 * sizeof(int));
    int* displs = malloc(2 * sizeof(int));
    MPI_Aint* far = malloc(2 * sizeof(MPI_Aint));
    MPI_Datatype* types = malloc(2 * sizeof(MPI_Datatype));
    counts[0] = counts[1] = which % 2 ? 3 : 1;
    displs[0] = 0, displs[1] = which % 2 ? 5 : 40;
    far[0] = 0, far[1] = 40;
    for (int k = 0; k < 2; k++) MPI_Type_vector(3, 1, 2, MPI_INT, &types[k]), MPI_Type_commit(&types[k]);
    fresh();
    if (which == 0) MPI_Ialltoallw(data, counts, displs, types, result, counts, displs, types, WORLD, &request);
    if (which == 1) MPI_Ineighbor_alltoallv(data, counts, displs, MPI_INT, result, counts, displs, MPI_INT, comm, &request);
    if (which == 2) MPI_Ineighbor_alltoallw(data, counts, far, types, result, counts, far, types, comm, &request);
    if (which == 3) MPI_Ineighbor_allgatherv(data, 3, MPI_INT, result, counts, displs, MPI_INT, comm, &request);
    memset(counts, 0x7f, 2 * sizeof(int)), memset(displs, 0x7f, 2 * sizeof(int)), memset(far, 0x7f, 2 * sizeof(MPI_Aint));
    free(counts), free(displs), free(far);
    if (on_mpich()) {  // Open MPI looks into the array of types until the end, and crashes natively
      for (int k = 0; k < 2; k++) MPI_Type_free(&types[k]);
      memset(types, 0x7f, 2 * sizeof(MPI_Datatype)), free(types);
    }
    TRY(MPI_Wait(&request, MPI_STATUS_IGNORE));
    tell("more arrays freed");
  }
  MPI_Comm_free(&comm);
}

static void sum_ints(void* in, void* inout, int* count, MPI_Datatype* type) {
  (void)type;
  for (int k = 0; k < *count; k++) ((int*)inout)[k] += ((int*)in)[k];
}
static void handles_freed(void) {
  MPI_Request request[3];
  MPI_Datatype type;
  MPI_Comm comm;
  MPI_Group group;
  MPI_Op op;
  fresh();
  MPI_Comm_group(WORLD, &group);
  MPI_Comm_create(WORLD, group, &comm);
  MPI_Group_free(&group);
  MPI_Type_vector(4, 1, 2, MPI_INT, &type), MPI_Type_commit(&type);
  MPI_Op_create(sum_ints, 1, &op);
  MPI_Ibcast(data, 1, type, 0, comm, &request[0]);
  MPI_Iallreduce(data + 20, result, 5, MPI_INT, op, comm, &request[1]);
  MPI_Iallgather(data + 30, 1, type, result + 30, 4, MPI_INT, comm, &request[2]);
  MPI_Type_free(&type), MPI_Op_free(&op), MPI_Comm_free(&comm);
  TRY(MPI_Waitall(3, request, MPI_STATUSES_IGNORE));
  tell("freed in use");
}

static void other_order(void) {  // completed in another order than started
  MPI_Request request[6];
  int got[6] = {0}, mine[6];
  for (int k = 0; k < 6; k++) mine[k] = k + me;
  for (int k = 0; k < 6; k++) MPI_Iallreduce(&mine[k], &got[k], 1, MPI_INT, MPI_SUM, WORLD, &request[k]);
  for (int k = 0; k < 6; k++) MPI_Wait(&request[me ? 5 - k : k], MPI_STATUS_IGNORE);
  say("%u", sum_of(got, sizeof(got)));
  MPI_Request barrier[3];
  for (int k = 0; k < 3; k++) MPI_Ibarrier(WORLD, &barrier[k]);
  if (me) MPI_Waitall(3, barrier, MPI_STATUSES_IGNORE);
  else for (int k = 2; k >= 0; k--) MPI_Wait(&barrier[k], MPI_STATUS_IGNORE);
}

static void errors(void) {
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Datatype freed, uncommitted;
  MPI_Status status;
  MPI_Comm comm;
  int flag;
  MPI_Type_contiguous(2, MPI_INT, &uncommitted);
  TRY(MPI_Send(data, -1, MPI_INT, other, 0, WORLD));
  TRY(MPI_Send(data, 1, uncommitted, other, 0, WORLD));
  TRY(MPI_Send(data, 1, kNoType, other, 0, WORLD));
  TRY(MPI_Send(data, 1, MPI_INT, 2, 0, WORLD));
  TRY(MPI_Send(data, 1, MPI_INT, -77, 0, WORLD));
  TRY(MPI_Send(data, 1, MPI_INT, other, -9, WORLD));
  TRY(MPI_Isend(data, 1, MPI_INT, 2, 0, WORLD, &request));
  TRY(MPI_Irecv(data, -1, MPI_INT, other, 0, WORLD, &request));
  TRY(MPI_Recv(data, 1, MPI_INT, other, -9, WORLD, &status));
  TRY(MPI_Send_init(data, 1, MPI_INT, 7, 0, WORLD, &request));
  TRY(MPI_Bcast(data, 1, MPI_INT, 5, WORLD));
  TRY(MPI_Bcast(data, -1, MPI_INT, 0, WORLD));
  TRY(MPI_Ibcast(data, 1, kNoType, 0, WORLD, &request));
  TRY(MPI_Reduce(data, result, 1, MPI_INT, MPI_OP_NULL, 0, WORLD));
  TRY(MPI_Allreduce(data, result, 1, kNoType, MPI_SUM, WORLD));
  TRY(MPI_Allreduce(data, data, 1, MPI_INT, MPI_SUM, WORLD));
  TRY(MPI_Allreduce(data, result, 1, MPI_DOUBLE, MPI_BAND, WORLD));
  TRY(MPI_Gather(data, 1, MPI_INT, result, 1, MPI_INT, -1, WORLD));
  TRY(MPI_Comm_rank(MPI_COMM_NULL, &flag));
  TRY(MPI_Comm_split(WORLD, -5, 0, &comm));
  TRY(MPI_Type_free(&kNoType));
  TRY(MPI_Type_contiguous(-1, MPI_INT, &freed));
  TRY(MPI_Probe(5, 0, WORLD, &status));
  TRY(MPI_Cart_coords(WORLD, 0, 1, &flag));
  TRY(MPI_Comm_free_keyval(&(int){MPI_KEYVAL_INVALID}));
  TRY(MPI_Get_count(&status, kNoType, &flag));
  MPI_Type_free(&uncommitted);
  fresh();
  TRY(MPI_Allreduce(data, result, 5, MPI_INT, MPI_SUM, WORLD));  // and it all still works
  tell("afterwards");
}

// No handle where one should be: an error of the MPI's, also from where the same call has gone well again and again.
static void no_handles(void) {
  MPI_Request both[2];
  MPI_Status status;
  int flag = 0, at = 0, many = 0, indices[2];
  for (int turn = 0; turn < 8; turn++) {
    const int without = turn == 6;
    MPI_Request* pair = without ? NULL : both;
    MPI_Irecv(&result[0], 1, MPI_INT, 0, 1, MPI_COMM_SELF, &both[0]);
    MPI_Isend(&data[0], 1, MPI_INT, 0, 1, MPI_COMM_SELF, &both[1]);
    TRY(MPI_Waitall(2, pair, MPI_STATUSES_IGNORE));
    if (without) MPI_Waitall(2, both, MPI_STATUSES_IGNORE);
    MPI_Isend(&data[0], 1, MPI_INT, MPI_PROC_NULL, 1, MPI_COMM_SELF, &both[0]);
    TRY(MPI_Wait(pair, MPI_STATUS_IGNORE));
    if (without) MPI_Wait(both, MPI_STATUS_IGNORE);
    MPI_Irecv(&result[0], 1, MPI_INT, 0, 1, MPI_COMM_SELF, &both[0]);
    TRY(MPI_Test(pair, &flag, MPI_STATUS_IGNORE));
    MPI_Isend(&data[0], 1, MPI_INT, 0, 1, MPI_COMM_SELF, &both[1]);
    MPI_Waitall(2, both, MPI_STATUSES_IGNORE);
  }
  TRY(MPI_Waitall(0, NULL, MPI_STATUSES_IGNORE));
  TRY(MPI_Waitany(2, NULL, &at, &status));
  TRY(MPI_Waitsome(2, NULL, &many, indices, MPI_STATUSES_IGNORE));
  TRY(MPI_Testall(2, NULL, &flag, MPI_STATUSES_IGNORE));
  TRY(MPI_Testany(2, NULL, &at, &flag, &status));
  TRY(MPI_Testsome(2, NULL, &many, indices, MPI_STATUSES_IGNORE));
  TRY(MPI_Start(NULL));
  TRY(MPI_Startall(2, NULL));
  TRY(MPI_Cancel(NULL));
  TRY(MPI_Request_free(NULL));
}

static void one_sided(void) {
  MPI_Win win;
  MPI_Request request;
  static int memory[64];
  memset(memory, 0, sizeof(memory));
  MPI_Win_create(memory, sizeof(memory), sizeof(int), MPI_INFO_NULL, WORLD, &win);
  MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN);
  fresh();
  MPI_Win_fence(0, win);
  TRY(MPI_Put(GARBAGE, 3, MPI_INT, MPI_PROC_NULL, -50, 3, MPI_INT, win));
  TRY(MPI_Get(GARBAGE, 3, MPI_INT, MPI_PROC_NULL, -50, 3, MPI_INT, win));
  TRY(MPI_Accumulate(GARBAGE, 3, MPI_INT, MPI_PROC_NULL, -50, 3, MPI_INT, MPI_SUM, win));
  TRY(MPI_Put(NULL, 0, MPI_INT, other, 0, 0, MPI_INT, win));
  TRY(MPI_Get(NULL, 0, MPI_INT, other, 64, 0, MPI_INT, win));
  TRY(MPI_Accumulate(NULL, 0, MPI_INT, other, 3, 0, MPI_INT, MPI_SUM, win));
  TRY(MPI_Put(data, 5, MPI_INT, other, 3, 5, MPI_INT, win));
  TRY(MPI_Accumulate(data, 5, MPI_INT, other, 20, 5, MPI_INT, MPI_SUM, win));
  TRY(MPI_Accumulate(data, 5, MPI_INT, me, 30, 5, MPI_INT, MPI_REPLACE, win));
  MPI_Win_fence(0, win);
  say("%u", sum_of(memory, sizeof(memory)));
  MPI_Win_lock_all(0, win);
  TRY(MPI_Get_accumulate(GARBAGE, -3, kNoType, result, 4, MPI_INT, other, 3, 4, MPI_INT, MPI_NO_OP, win));
  TRY(MPI_Fetch_and_op(GARBAGE, &result[10], MPI_INT, other, 20, MPI_NO_OP, win));
  TRY(MPI_Rget(&result[20], 2, MPI_INT, other, 30, 2, MPI_INT, win, &request));
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  TRY(MPI_Rput(data, 2, MPI_INT, MPI_PROC_NULL, 0, 2, MPI_INT, win, &request));
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  TRY(MPI_Rget(GARBAGE, 2, MPI_INT, MPI_PROC_NULL, 0, 2, MPI_INT, win, &request));
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  TRY(MPI_Raccumulate(GARBAGE, 2, MPI_INT, MPI_PROC_NULL, 0, 2, MPI_INT, MPI_SUM, win, &request));
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  TRY(MPI_Fetch_and_op(GARBAGE, GARBAGE, MPI_INT, MPI_PROC_NULL, 0, MPI_SUM, win));
  TRY(MPI_Compare_and_swap(GARBAGE, GARBAGE, GARBAGE, MPI_INT, MPI_PROC_NULL, 0, win));
  TRY(MPI_Get_accumulate(GARBAGE, 1, MPI_INT, GARBAGE, 1, MPI_INT, MPI_PROC_NULL, 0, 1, MPI_INT, MPI_SUM, win));
  TRY(MPI_Get_accumulate(NULL, 0, MPI_INT, NULL, 0, MPI_INT, other, 0, 0, MPI_INT, MPI_SUM, win));
  if (on_mpich()) TRY(MPI_Win_flush(MPI_PROC_NULL, win));  // Open MPI crashes natively
  TRY(MPI_Win_flush_all(win));
  MPI_Win_unlock_all(win);
  tell("got");
  MPI_Win_free(&win);
  MPI_Win_create(NULL, 0, 1, MPI_INFO_NULL, WORLD, &win);
  MPI_Win_fence(0, win), MPI_Win_fence(0, win);
  MPI_Win_free(&win);
  TRY(MPI_Win_create_dynamic(MPI_INFO_NULL, WORLD, &win));
  MPI_Win_free(&win);
}

static const struct Case kCases[] = {CASE(insignificant), CASE(in_place), CASE(empty), CASE(neighbours), CASE(alone),
  CASE(between), CASE(arrays_freed), CASE(more_arrays_freed),
  CASE(handles_freed), CASE(other_order), CASE(errors), CASE(no_handles), CASE(one_sided), {NULL, NULL}};

int main(int argc, char** argv) {
  kNoType = MPI_DATATYPE_NULL;
  return run_cases(argc, argv, kCases, MPI_THREAD_SINGLE);
}
