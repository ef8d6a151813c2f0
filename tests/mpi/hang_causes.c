// SPDX-License-Identifier: Apache-2.0
//
// Programs with one wrong call each, and their corrected twins: hang_causes KIND [SECONDS]. A kind with SECONDS is
// right: it makes the same calls, with pauses of that length, and ends. Every rank ends itself after 60 s (or SECONDS +
// 60). "ready" on standard output of rank 0, when the hang is about to begin.
//
// What a rank has freed, it will not use again. Rank 0 frees a duplicate of MPI_COMM_WORLD or a window, rank 1 waits on
// it:
//
// left_finalize  for a message, rank 0 is in MPI_Finalize
// left_barrier   for a message, rank 0 is in a barrier of MPI_COMM_WORLD
// left_computes  for a message, rank 0 computes
// left_any       for a message of any rank
// left_send      for its receive
// left_allreduce in MPI_Allreduce
// left_bcast     in MPI_Bcast, rank 0 is the root
// left_split     for a message, on a communicator of MPI_Comm_split with other ranks
// left_inter     in MPI_Barrier of an intercommunicator
// left_pending   rank 1 has freed it, too, with its receive pending, and has made another
// left_window    in MPI_Win_free, since it has made one call more before
// left_late      rank 0 has made and freed 200 other ones since
//
// Rank 1 is in MPI_Recv, rank 0 waits for data of it in a collective with counts of its own:
// v_gather       MPI_Gatherv, it is the root          v_alltoall     MPI_Alltoallv
// v_allgather    MPI_Allgatherv                       v_alltoallw    MPI_Alltoallw
// v_scatter      MPI_Scatterv, rank 1 is the root     v_neighbors    MPI_Neighbor_alltoallv on a ring
// v_request      MPI_Ialltoallv and MPI_Wait          v_sparse       MPI_Ialltoallv, data of rank 1 alone
//
// amounts        MPI_Gather of 4 bytes at the root, rank 1 gives one
// group_tag      MPI_Comm_create_group of both, tag 5 against tag 6
//
// Rank 1 waits for a message of rank 0, tag 8, on a communicator in which ranks are numbered the other way round:
// near_tag       rank 0 has sent tag 9 there          near_comm      it has sent tag 8 on MPI_COMM_WORLD
// near_rank      rank 1 waits for rank 0 of that communicator, which is another rank; rank 0 has sent on MPI_COMM_WORLD
// near_asleep    rank 0 has made a persistent send and has not started it
// near_receive   rank 1 sends synchronously; rank 0 has made a persistent receive and has not started it
// near_wait      as near_tag, by MPI_Irecv and MPI_Wait
//
// Right: v_late the same collectives, rank 1 comes SECONDS late, and gets no data
// Right: group_late MPI_Comm_create_group of several groups and tags, rank 1 comes SECONDS late
//
// Right, all of these (both ranks free, with something pending):
// free_isend     rank 0 sends by MPI_Isend, frees, makes another one, pauses, and waits
// free_irecv     rank 0 receives by MPI_Irecv likewise, rank 1 sends synchronously
// free_apart     rank 0 frees seconds before rank 1, which takes the messages meanwhile
// free_many      thousands of communicators with messages on them, freed by rank 0 first
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

enum { kLarge = 4 << 20 };

static int me, size;
static char out[kLarge], in[kLarge];

static void nap(double seconds) {
  struct timespec time = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
  nanosleep(&time, NULL);
}

static void ready(void) {
  CHECK(MPI_Barrier(MPI_COMM_WORLD) == MPI_SUCCESS);
  if (me == 0) {
    printf("ready\n");
    fflush(stdout);
  }
}

static int is(const char* kind, const char* wanted) { return !strcmp(kind, wanted); }

static void receive(int from, int tag, MPI_Comm comm) {
  CHECK(MPI_Recv(in, 4, MPI_BYTE, from, tag, comm, MPI_STATUS_IGNORE) == MPI_SUCCESS);
}

static void send(int to, int tag, MPI_Comm comm) { CHECK(MPI_Send(out, 4, MPI_BYTE, to, tag, comm) == MPI_SUCCESS); }

/// Makes and frees communicators with a message from rank 0 to rank 1 on each; rank 1 may be behind by `behind`.
static void many(int count, int behind) {
  enum { kMost = 64 };
  MPI_Comm comms[kMost];
  for (int done = 0; done < count; done += kMost) {
    for (int i = 0; i < kMost; i++) CHECK(MPI_Comm_dup(MPI_COMM_WORLD, &comms[i]) == MPI_SUCCESS);
    if (me == 1 && behind != 0) nap(behind * 1e-3);
    for (int i = 0; i < kMost; i++) {
      if (me == 0) send(1, i, comms[i]);
      if (me == 1) receive(0, i, comms[i]);
      CHECK(MPI_Comm_free(&comms[i]) == MPI_SUCCESS);
    }
  }
}

static void window_left(void) {
  MPI_Win window;
  CHECK(MPI_Win_create(in, 64, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window) == MPI_SUCCESS);
  CHECK(MPI_Win_fence(0, window) == MPI_SUCCESS);
  ready();
  if (me == 1) CHECK(MPI_Win_fence(0, window) == MPI_SUCCESS);
  CHECK(MPI_Win_free(&window) == MPI_SUCCESS);
}

static void left(const char* kind) {
  MPI_Comm comm, local;
  double value = 1, sum;
  if (is(kind, "left_window")) {
    window_left();
    return;
  }
  if (is(kind, "left_inter")) {
    CHECK(MPI_Comm_split(MPI_COMM_WORLD, me, 0, &local) == MPI_SUCCESS);
    CHECK(MPI_Intercomm_create(local, 0, MPI_COMM_WORLD, 1 - me, 3, &comm) == MPI_SUCCESS);
  } else if (is(kind, "left_split")) {
    CHECK(MPI_Comm_split(MPI_COMM_WORLD, 0, size - me, &comm) == MPI_SUCCESS);
  } else {
    CHECK(MPI_Comm_dup(MPI_COMM_WORLD, &comm) == MPI_SUCCESS);
  }
  if (me == 0) send(1, 7, MPI_COMM_WORLD);
  if (me == 1) receive(0, 7, MPI_COMM_WORLD);
  ready();
  if (me != 1) CHECK(MPI_Comm_free(&comm) == MPI_SUCCESS);
  if (is(kind, "left_late") && me == 0)
    for (int i = 0; i < 200; i++) {
      MPI_Comm other;
      CHECK(MPI_Comm_dup(MPI_COMM_SELF, &other) == MPI_SUCCESS);
      CHECK(MPI_Comm_free(&other) == MPI_SUCCESS);
    }
  if (me == 1) {
    MPI_Request request;
    if (is(kind, "left_any")) receive(MPI_ANY_SOURCE, 8, comm);
    else if (is(kind, "left_send")) CHECK(MPI_Ssend(out, 4, MPI_BYTE, 0, 8, comm) == MPI_SUCCESS);
    else if (is(kind, "left_allreduce"))
      CHECK(MPI_Allreduce(&value, &sum, 1, MPI_DOUBLE, MPI_SUM, comm) == MPI_SUCCESS);
    else if (is(kind, "left_bcast")) CHECK(MPI_Bcast(&value, 1, MPI_DOUBLE, 0, comm) == MPI_SUCCESS);
    else if (is(kind, "left_split")) receive(size - 1, 8, comm);
    else if (is(kind, "left_inter")) CHECK(MPI_Barrier(comm) == MPI_SUCCESS);
    else if (is(kind, "left_pending")) {
      CHECK(MPI_Irecv(in, 4, MPI_BYTE, 0, 8, comm, &request) == MPI_SUCCESS);
      CHECK(MPI_Comm_free(&comm) == MPI_SUCCESS);
      CHECK(MPI_Comm_dup(MPI_COMM_SELF, &comm) == MPI_SUCCESS);
      CHECK(MPI_Wait(&request, MPI_STATUS_IGNORE) == MPI_SUCCESS);
    } else receive(0, 8, comm);
    CHECK(MPI_Comm_free(&comm) == MPI_SUCCESS);
  }
  if (is(kind, "left_computes") && me == 0) nap(1e9);
  if (is(kind, "left_barrier") || is(kind, "left_allreduce")) CHECK(MPI_Barrier(MPI_COMM_WORLD) == MPI_SUCCESS);
}

static void freed(const char* kind, double seconds) {
  MPI_Comm comm, other;
  MPI_Request request;
  if (is(kind, "free_many")) {
    ready();
    many(3200, 1);
    nap(seconds);
    return;
  }
  CHECK(MPI_Comm_dup(MPI_COMM_WORLD, &comm) == MPI_SUCCESS);
  ready();
  if (me == 0) {
    if (is(kind, "free_isend")) CHECK(MPI_Isend(out, kLarge, MPI_BYTE, 1, 8, comm, &request) == MPI_SUCCESS);
    if (is(kind, "free_irecv")) CHECK(MPI_Irecv(in, 4, MPI_BYTE, 1, 8, comm, &request) == MPI_SUCCESS);
    if (is(kind, "free_apart")) {
      send(1, 8, comm);
      send(1, 9, comm);
    }
    CHECK(MPI_Comm_free(&comm) == MPI_SUCCESS);
    CHECK(MPI_Comm_dup(MPI_COMM_SELF, &other) == MPI_SUCCESS);
    nap(seconds);
    if (!is(kind, "free_apart")) CHECK(MPI_Wait(&request, MPI_STATUS_IGNORE) == MPI_SUCCESS);
    send(1, 10, MPI_COMM_WORLD);
    CHECK(MPI_Comm_free(&other) == MPI_SUCCESS);
  } else if (me == 1) {
    if (is(kind, "free_apart")) nap(seconds / 2);
    if (is(kind, "free_isend")) CHECK(MPI_Recv(in, kLarge, MPI_BYTE, 0, 8, comm, MPI_STATUS_IGNORE) == MPI_SUCCESS);
    else if (is(kind, "free_irecv")) CHECK(MPI_Ssend(out, 4, MPI_BYTE, 0, 8, comm) == MPI_SUCCESS);
    else {
      receive(0, 9, comm);
      receive(MPI_ANY_SOURCE, MPI_ANY_TAG, comm);
    }
    receive(0, 10, MPI_COMM_WORLD);
    CHECK(MPI_Comm_free(&comm) == MPI_SUCCESS);
  } else {
    CHECK(MPI_Comm_free(&comm) == MPI_SUCCESS);
  }
}

/// One byte from each to each, but only from rank 1 to rank 0 if `sparse`.
static void vector_call(const char* kind, int sparse, MPI_Comm comm) {
  enum { kMost = 8 };
  int ones[kMost], counts[kMost], places[kMost];
  MPI_Datatype types[kMost];
  MPI_Request request;
  CHECK(size <= kMost);
  for (int i = 0; i < size; i++) {
    ones[i] = !sparse || (me == 1 && i == 0);
    counts[i] = !sparse || (me == 0 && i == 1);
    places[i] = i;
    types[i] = MPI_BYTE;
  }
  if (is(kind, "v_gather"))
    CHECK(MPI_Gatherv(out, counts[1] || me == 1, MPI_BYTE, in, ones, places, MPI_BYTE, 0, comm) == MPI_SUCCESS);
  else if (is(kind, "v_allgather"))
    CHECK(MPI_Allgatherv(out, 1, MPI_BYTE, in, ones, places, MPI_BYTE, comm) == MPI_SUCCESS);
  else if (is(kind, "v_scatter"))
    CHECK(MPI_Scatterv(out, ones, places, MPI_BYTE, in, 1, MPI_BYTE, 1, comm) == MPI_SUCCESS);
  else if (is(kind, "v_alltoall"))
    CHECK(MPI_Alltoallv(out, ones, places, MPI_BYTE, in, counts, places, MPI_BYTE, comm) == MPI_SUCCESS);
  else if (is(kind, "v_alltoallw"))
    CHECK(MPI_Alltoallw(out, ones, places, types, in, counts, places, types, comm) == MPI_SUCCESS);
  else if (is(kind, "v_neighbors")) {
    const int periods = 1;
    int dims = size, two[2] = {1, 1}, at[2] = {0, 1};
    MPI_Comm ring;
    CHECK(MPI_Cart_create(MPI_COMM_WORLD, 1, &dims, &periods, 0, &ring) == MPI_SUCCESS);
    if (me == 1 && !sparse) receive(0, 9, MPI_COMM_WORLD);
    CHECK(MPI_Neighbor_alltoallv(out, two, at, MPI_BYTE, in, two, at, MPI_BYTE, ring) == MPI_SUCCESS);
    CHECK(MPI_Comm_free(&ring) == MPI_SUCCESS);
  } else {
    CHECK(MPI_Ialltoallv(out, ones, places, MPI_BYTE, in, counts, places, MPI_BYTE, comm, &request) == MPI_SUCCESS);
    CHECK(MPI_Wait(&request, MPI_STATUS_IGNORE) == MPI_SUCCESS);
  }
}

static void vectors(const char* kind, double seconds) {
  ready();
  if (is(kind, "v_late")) {
    if (me == 1) nap(seconds);
    for (const char *each[] = {"v_alltoall", "v_alltoallw", "v_request", NULL}, **k = each; *k != NULL; k++)
      vector_call(*k, 1, MPI_COMM_WORLD);
    return;
  }
  if (me == 1 && !is(kind, "v_neighbors")) receive(0, 9, MPI_COMM_WORLD);
  vector_call(kind, is(kind, "v_sparse"), MPI_COMM_WORLD);
}

/// Libraries that wait for all of what the root expects hang in it.
static void amounts(void) {
  ready();
  CHECK(MPI_Gather(out, me == 0 ? 4 : 1, MPI_BYTE, in, me == 0 ? 4 : 1, MPI_BYTE, 0, MPI_COMM_WORLD) == MPI_SUCCESS);
  CHECK(MPI_Barrier(MPI_COMM_WORLD) == MPI_SUCCESS);
}

static void near_miss(const char* kind) {
  MPI_Comm turned;
  MPI_Request request, asleep = MPI_REQUEST_NULL;
  CHECK(MPI_Comm_split(MPI_COMM_WORLD, 0, size - me, &turned) == MPI_SUCCESS);
  const int there = size - 1 - me, zero = is(kind, "near_rank") ? 0 : size - 1;  // rank 0 of the world is the last one
  CHECK(there == 0 || me != size - 1);
  ready();
  if (me == 0) {
    if (is(kind, "near_tag") || is(kind, "near_wait")) send(size - 2, 9, turned);
    if (is(kind, "near_comm") || is(kind, "near_rank")) send(1, 8, MPI_COMM_WORLD);
    if (is(kind, "near_asleep")) CHECK(MPI_Send_init(out, 4, MPI_BYTE, size - 2, 8, turned, &asleep) == MPI_SUCCESS);
    if (is(kind, "near_receive")) CHECK(MPI_Recv_init(in, 4, MPI_BYTE, size - 2, 8, turned, &asleep) == MPI_SUCCESS);
  } else if (me == 1) {
    if (is(kind, "near_wait")) {
      CHECK(MPI_Irecv(in, 4, MPI_BYTE, zero, 8, turned, &request) == MPI_SUCCESS);
      CHECK(MPI_Wait(&request, MPI_STATUS_IGNORE) == MPI_SUCCESS);
    } else if (is(kind, "near_receive")) {
      CHECK(MPI_Ssend(out, 4, MPI_BYTE, zero, 8, turned) == MPI_SUCCESS);
    } else {
      receive(zero, 8, turned);
    }
  }
  CHECK(MPI_Barrier(MPI_COMM_WORLD) == MPI_SUCCESS);
}

static void create_from(MPI_Group group, int tag) {
  MPI_Comm made;
  CHECK(MPI_Comm_create_group(MPI_COMM_WORLD, group, tag, &made) == MPI_SUCCESS);
  CHECK(MPI_Comm_free(&made) == MPI_SUCCESS);
}

static void groups(const char* kind, double seconds) {
  MPI_Group all, self;
  CHECK(MPI_Comm_group(MPI_COMM_WORLD, &all) == MPI_SUCCESS);
  CHECK(MPI_Group_incl(all, 1, &me, &self) == MPI_SUCCESS);
  create_from(all, 5);
  ready();
  if (is(kind, "group_tag")) create_from(all, 5 + me);
  if (me == 1) nap(seconds);
  for (int i = 0; i < 3; ++i) {
    create_from(self, 5 + me);  // each alone
    create_from(all, 5);
    create_from(all, 0);
    create_from(all, 32767);
  }
  CHECK(MPI_Group_free(&all) == MPI_SUCCESS);
  CHECK(MPI_Group_free(&self) == MPI_SUCCESS);
}

int main(int argc, char** argv) {
  const double seconds = argc > 2 ? atof(argv[2]) : 0;
  alarm(600 + (unsigned)seconds);
  CHECK(argc > 1);
  CHECK(MPI_Init(&argc, &argv) == MPI_SUCCESS);
  CHECK(MPI_Comm_rank(MPI_COMM_WORLD, &me) == MPI_SUCCESS);
  CHECK(MPI_Comm_size(MPI_COMM_WORLD, &size) == MPI_SUCCESS);
  if (!strncmp(argv[1], "left_", 5)) left(argv[1]);
  else if (!strncmp(argv[1], "free_", 5)) freed(argv[1], seconds);
  else if (!strncmp(argv[1], "v_", 2)) vectors(argv[1], seconds);
  else if (!strncmp(argv[1], "near_", 5)) near_miss(argv[1]);
  else if (is(argv[1], "amounts")) amounts();
  else if (!strncmp(argv[1], "group_", 6)) groups(argv[1], seconds);
  else CHECK(!"known kind");
  CHECK(MPI_Finalize() == MPI_SUCCESS);
  if (me == 0) printf("hang_causes %s %d\n", argv[1], size);
  return 0;
}
