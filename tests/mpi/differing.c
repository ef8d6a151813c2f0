// SPDX-License-Identifier: Apache-2.0
//
// Two ranks whose calls belong together and differ in one thing: the function, its root or operator, the amount, or the
// basic types of the data. `differing KIND`: rank 1 errs, once. `differing KIND right`: the corrected twin, in which it
// does not. Ends by itself where the library lets it; data that must come out right is looked at by nobody here.

#include <mpi.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank, odd;
static int ints[64];
static float floats[64];
static double in[64], out[256];
static MPI_Comm comm;

static int is(const char* kind, const char* name) { return strcmp(kind, name) == 0; }

static MPI_Datatype committed(MPI_Datatype type) {
  MPI_Type_commit(&type);
  return type;
}

struct mixed {
  int number;
  double value;
};

static MPI_Datatype mixed_type(MPI_Datatype first) {
  int lengths[] = {1, 1};
  MPI_Aint places[] = {offsetof(struct mixed, number), offsetof(struct mixed, value)};
  MPI_Datatype types[] = {first, MPI_DOUBLE}, made, resized;
  MPI_Type_create_struct(2, lengths, places, types, &made);
  MPI_Type_create_resized(made, 0, sizeof(struct mixed), &resized);
  MPI_Type_free(&made);
  return committed(resized);
}

static MPI_Datatype contiguous(int count, MPI_Datatype of) {
  MPI_Datatype made;
  MPI_Type_contiguous(count, of, &made);
  return committed(made);
}

/// Rank 0 sends, rank 1 receives.
static void message(int count, MPI_Datatype sent, int room, MPI_Datatype received) {
  MPI_Status status;
  MPI_Request request;
  // Four times: blocking, nonblocking, persistent, and with a wildcard.
  for (int way = 0; way < 4; ++way) {
    if (rank == 0) {
      if (way == 0) MPI_Send(in, count, sent, 1, 5, comm);
      if (way == 1) MPI_Isend(in, count, sent, 1, 5, comm, &request);
      if (way == 2) MPI_Send_init(in, count, sent, 1, 5, comm, &request), MPI_Start(&request);
      if (way == 3) MPI_Ssend(in, count, sent, 1, 5, comm);
    } else if (rank == 1) {
      if (way == 0) MPI_Recv(out, room, received, 0, 5, comm, &status);
      if (way == 1) MPI_Irecv(out, room, received, 0, 5, comm, &request);
      if (way == 2) MPI_Recv_init(out, room, received, 0, 5, comm, &request), MPI_Start(&request);
      if (way == 3) MPI_Recv(out, room, received, MPI_ANY_SOURCE, MPI_ANY_TAG, comm, &status);
    }
    if (way == 1 || way == 2) MPI_Wait(&request, MPI_STATUS_IGNORE);
    if (way == 2) MPI_Request_free(&request);
  }
}

static void collectives(const char* kind) {
  MPI_Request request;
  if (is(kind, "scatter_alltoall")) {
    if (odd) MPI_Alltoall(in, 4, MPI_INT, out, 4, MPI_INT, comm);
    else MPI_Scatter(in, 4, MPI_INT, out, 4, MPI_INT, 0, comm);
  } else if (is(kind, "gather_alltoall")) {
    if (odd) MPI_Alltoall(in, 4, MPI_INT, out, 4, MPI_INT, comm);
    else MPI_Gather(in, 4, MPI_INT, out, 4, MPI_INT, 0, comm);
  } else if (is(kind, "bcast_scatter")) {
    if (odd) MPI_Scatter(in, 4, MPI_INT, out, 4, MPI_INT, 0, comm);
    else MPI_Bcast(in, 4, MPI_INT, 0, comm);
  } else if (is(kind, "allreduce_allgather")) {
    if (odd) MPI_Allgather(in, 1, MPI_DOUBLE, out, 1, MPI_DOUBLE, comm);
    else MPI_Allreduce(in, out, 2, MPI_DOUBLE, MPI_SUM, comm);
  } else if (is(kind, "allreduce_reduce")) {
    if (odd) MPI_Reduce(ints, ints + 8, 1, MPI_INT, MPI_SUM, 0, comm);
    else MPI_Allreduce(ints, ints + 8, 1, MPI_INT, MPI_SUM, comm);
  } else if (is(kind, "bcast_root")) {
    for (int i = 0; i < 3; ++i) MPI_Bcast(in, 4, MPI_INT, odd && i == 0 ? 1 : 0, comm);
  } else if (is(kind, "gather_root")) {
    MPI_Gather(in, 4, MPI_INT, out, 4, MPI_INT, odd ? 1 : 0, comm);
  } else if (is(kind, "operator")) {
    MPI_Allreduce(ints, ints + 8, 4, MPI_INT, odd ? MPI_MAX : MPI_SUM, comm);
  } else if (is(kind, "iallreduce_operator")) {
    MPI_Iallreduce(ints, ints + 8, 4, MPI_INT, odd ? MPI_MIN : MPI_SUM, comm, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
  } else if (is(kind, "reduce_operator")) {
    MPI_Reduce(ints, ints + 8, 4, MPI_INT, odd ? MPI_PROD : MPI_SUM, 0, comm);
  } else if (is(kind, "scan_operator")) {
    MPI_Scan(ints, ints + 8, 4, MPI_INT, odd ? MPI_MAX : MPI_SUM, comm);
  } else if (is(kind, "reduce_type")) {
    if (odd) MPI_Reduce(floats, floats + 8, 1, MPI_FLOAT, MPI_SUM, 0, comm);
    else MPI_Reduce(ints, ints + 8, 1, MPI_INT, MPI_SUM, 0, comm);
  } else if (is(kind, "allreduce_type")) {
    if (odd) MPI_Allreduce(floats, floats + 8, 4, MPI_FLOAT, MPI_SUM, comm);
    else MPI_Allreduce(ints, ints + 8, 4, MPI_INT, MPI_SUM, comm);
  } else if (is(kind, "bcast_type")) {
    MPI_Bcast(in, odd ? 4 : 8, odd ? MPI_DOUBLE : MPI_INT, 0, comm);
    for (int i = 0; i < 4; ++i) MPI_Barrier(comm);
  } else if (is(kind, "bcast_type_long_ago")) {
    MPI_Bcast(in, 8, odd ? MPI_FLOAT : MPI_INT, 0, comm);
    for (int i = 0; i < 100; ++i) MPI_Bcast(in, 8, MPI_INT, 0, comm);
  } else if (is(kind, "gather_type")) {
    MPI_Gather(in, 4, odd ? MPI_FLOAT : MPI_INT, out, 4, MPI_INT, 0, comm);
  } else if (is(kind, "ibcast_type")) {
    MPI_Ibcast(in, 4, odd ? MPI_UNSIGNED : MPI_INT, 0, comm, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
  } else if (is(kind, "allgather_type")) {
    MPI_Allgather(in, 2, odd ? MPI_FLOAT : MPI_INT, out, 2, odd ? MPI_FLOAT : MPI_INT, comm);
  } else if (is(kind, "alltoallv_type")) {
    int counts[] = {3, 3}, places[] = {0, 3};
    MPI_Alltoallv(in, counts, places, odd ? MPI_FLOAT : MPI_INT, out, counts, places, odd ? MPI_FLOAT : MPI_INT, comm);
  } else {
    fprintf(stderr, "no such kind: %s\n", kind);
    MPI_Abort(comm, 3);
  }
}

/// What is right although the two sides look different. `odd` has no meaning here.
static int right(const char* kind) {
  MPI_Datatype pair = mixed_type(MPI_INT), two = contiguous(2, MPI_INT), four = contiguous(4, MPI_INT), vector;
  MPI_Type_vector(2, 1, 3, MPI_INT, &vector);
  MPI_Type_commit(&vector);
  MPI_Datatype pairs = contiguous(2, pair);
  int known = 1;
  if (is(kind, "same_signature")) {
    message(2, two, 4, MPI_INT);
    message(4, MPI_INT, 1, four);
    message(2, two, 2, vector);
    message(2, pair, 1, pairs);
    message(1, pairs, 4, pair);  // longer room
    message(3, pair, 2, pairs);
    message(1, pair, 2, pairs);  // ends inside an element of the receiver's
    message(1, MPI_INT, 2, pair);
    message(0, MPI_INT, 4, MPI_DOUBLE);
    MPI_Bcast(in, rank ? 4 : 2, rank ? MPI_INT : two, 0, comm);
    MPI_Bcast(in, rank ? 2 : 1, rank ? pair : pairs, 0, comm);
    MPI_Gather(in, rank ? 1 : 2, rank ? vector : MPI_INT, out, 2, MPI_INT, 0, comm);
    MPI_Allgather(in, 1, two, out, 2, MPI_INT, comm);
    MPI_Scatter(in, 1, four, out, 4, MPI_INT, 0, comm);
  } else if (is(kind, "bytes")) {
    message(16, MPI_BYTE, 4, MPI_INT);
    message(2, MPI_DOUBLE, 16, MPI_BYTE);
    message(2, pair, 24, MPI_PACKED);
    MPI_Bcast(in, rank ? 16 : 4, rank ? MPI_BYTE : MPI_INT, 0, comm);
    MPI_Gather(in, rank ? 16 : 4, rank ? MPI_BYTE : MPI_INT, out, 16, MPI_BYTE, 0, comm);
  } else if (is(kind, "equal_integers")) {
    message(2, MPI_LONG, 2, MPI_LONG_LONG);
    message(2, MPI_INT64_T, 2, MPI_LONG);
    message(2, MPI_AINT, 2, MPI_LONG_LONG);
    message(2, MPI_OFFSET, 2, MPI_COUNT);
    message(2, MPI_INT32_T, 2, MPI_INT);
    message(2, MPI_UINT32_T, 2, MPI_UNSIGNED);
    message(2, MPI_CHAR, 2, MPI_SIGNED_CHAR);
    message(2, MPI_INT8_T, 2, MPI_CHAR);
    message(2, MPI_INTEGER, 2, MPI_INT);
    message(2, MPI_DOUBLE_PRECISION, 2, MPI_DOUBLE);
    message(1, MPI_2INT, 2, MPI_INT);
    MPI_Allreduce(in, out, 2, rank ? MPI_LONG : MPI_INT64_T, MPI_SUM, comm);
    MPI_Bcast(in, 2, rank ? MPI_LONG_LONG : MPI_LONG, 0, comm);
  } else if (is(kind, "nothing")) {
    // Amounts of nothing have no type; roots and others give different arguments.
    MPI_Bcast(in, 0, rank ? MPI_INT : MPI_DOUBLE, 0, comm);
    MPI_Gather(in, 3, MPI_INT, rank ? NULL : out, rank ? 0 : 3, rank ? MPI_DOUBLE : MPI_INT, 0, comm);
    MPI_Scatter(rank ? NULL : in, rank ? 0 : 3, rank ? MPI_DOUBLE : MPI_INT, out, 3, MPI_INT, 0, comm);
    MPI_Reduce(rank ? in : MPI_IN_PLACE, in, 2, MPI_INT, MPI_SUM, 0, comm);
    MPI_Gather(rank ? in : MPI_IN_PLACE, 3, rank ? MPI_INT : MPI_DOUBLE, out, 3, MPI_INT, 0, comm);
    MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, out, 3, MPI_INT, comm);
    MPI_Alltoall(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, out, 3, MPI_INT, comm);
    int counts[] = {rank ? 0 : 2, 1}, places[] = {0, 2};
    MPI_Reduce_scatter_block(in, out, 1, MPI_INT, MPI_SUM, comm);
    counts[0] = 2;
    MPI_Allgatherv(in, rank ? 1 : 2, MPI_INT, out, counts, places, MPI_INT, comm);
  } else {
    known = 0;
  }
  MPI_Type_free(&pair);
  MPI_Type_free(&pairs);
  MPI_Type_free(&two);
  MPI_Type_free(&four);
  MPI_Type_free(&vector);
  return known;
}

int main(int argc, char** argv) {
  const char* kind = argc > 1 ? argv[1] : "scatter_alltoall";
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  odd = rank == 1 && argc < 3;
  for (int i = 0; i < 64; ++i) {
    ints[i] = 3 + i + 100 * rank;
    floats[i] = 1.5f * (float)(i + rank);
    in[i] = 0.5 + i + 100 * rank;
  }
  MPI_Datatype wrong = mixed_type(MPI_FLOAT), pair = mixed_type(MPI_INT), two = contiguous(2, MPI_INT);
  if (right(kind)) {
  } else if (is(kind, "int_float")) message(4, MPI_INT, 4, odd ? MPI_FLOAT : MPI_INT);
  else if (is(kind, "long_two_ints")) message(1, MPI_LONG, odd ? 2 : 1, odd ? MPI_INT : MPI_LONG);
  else if (is(kind, "double_struct")) message(3, MPI_DOUBLE, odd ? 2 : 3, odd ? pair : MPI_DOUBLE);
  else if (is(kind, "structs")) message(2, pair, 2, odd ? wrong : pair);
  else if (is(kind, "short_structs")) message(1, pair, 2, odd ? wrong : pair);
  else if (is(kind, "signedness")) message(4, MPI_INT, 4, odd ? MPI_UNSIGNED : MPI_INT);
  else if (is(kind, "contiguous")) message(2, two, odd ? 2 : 4, odd ? MPI_DOUBLE : MPI_INT);
  else if (is(kind, "complex")) message(2, MPI_C_DOUBLE_COMPLEX, odd ? 4 : 2, odd ? MPI_DOUBLE : MPI_C_DOUBLE_COMPLEX);
  else collectives(kind);
  MPI_Type_free(&wrong);
  MPI_Type_free(&pair);
  MPI_Type_free(&two);
  MPI_Comm_free(&comm);
  MPI_Finalize();
  return 0;
}
