// SPDX-License-Identifier: Apache-2.0
//
// One kind of work while there is more and more of something: growth DIMENSION MOST ROUNDS. For each N = 1, 4, 16, ...
// up to MOST there are N pending requests, communicators, tags, datatypes, windows or threads; a round uses each in
// turn, between two dumps of callgrind named by N. With MOST 0 DIMENSION is a list with commas of what all ranks of the
// job do together, and N their number; `init` and `finalize` are counted besides. See scripts/bench growth.
#define _GNU_SOURCE
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <valgrind/callgrind.h>

#include "growth.h"
#include "nap.h"

enum { kMost = 4096, kRanks = 128 };
static int me, size, now, at, rounds;
static MPI_Request pending[kMost];
static MPI_Comm comms[kMost];
static MPI_Datatype types[kMost];
static MPI_Win windows[kMost];
static int in[16], out[16], target[16], sinks[kMost], blocks_in[4 * kRanks], blocks_out[4 * kRanks];
static double terms[4], sums[4];
static pthread_barrier_t registered, over;

/// The rank that is counted lets the others come first.
long growth_nap;
static void let_others(void) {
  if (growth_nap != 0) growth_sleep();
}

static void message(MPI_Comm comm, int peer, int tag, int count, MPI_Datatype type) {
  MPI_Request request;
  MPI_Irecv(in, count, type, peer, tag, comm, &request);
  MPI_Send(out, count, type, peer, tag, comm);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
}

static void* thread(void* unused) {
  int flag;
  MPI_Initialized(&flag);
  MPI_Iprobe(0, 5, MPI_COMM_SELF, &flag, MPI_STATUS_IGNORE);
  pthread_barrier_wait(&registered);
  pthread_barrier_wait(&over);
  return unused;
}

/// Makes as many as there should be now; those that were there stay.
static void more(const char* what, int wanted) {
  static int made;
  for (; made < wanted; made++) {
    if (!strcmp(what, "requests")) MPI_Irecv(&sinks[made], 1, MPI_INT, 0, 1000 + made, MPI_COMM_SELF, &pending[made]);
    if (!strcmp(what, "communicators")) MPI_Comm_dup(MPI_COMM_SELF, &comms[made]);
    if (!strcmp(what, "types")) {
      MPI_Type_vector(2, 1, 2 + made % 3, MPI_INT, &types[made]);
      MPI_Type_commit(&types[made]);
    }
    if (!strcmp(what, "windows"))
      MPI_Win_create(target, sizeof target, 1, MPI_INFO_NULL, MPI_COMM_SELF, &windows[made]);
  }
  now = wanted;
}

static void one(const char* what) {
  const int which = at++ % now;
  if (!strcmp(what, "communicators")) {
    message(comms[which], 0, 1, 4, MPI_INT);
    MPI_Barrier(comms[which]);
  } else if (!strcmp(what, "tags")) {
    message(MPI_COMM_SELF, 0, which, 4, MPI_INT);
  } else if (!strcmp(what, "types")) {
    message(MPI_COMM_SELF, 0, 1, 2, types[which]);
  } else if (!strcmp(what, "windows")) {
    MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, windows[which]);
    MPI_Put(out, 4, MPI_INT, 0, 0, 4, MPI_INT, windows[which]);
    MPI_Win_unlock(0, windows[which]);
  } else {
    message(MPI_COMM_SELF, 0, 1, 4, MPI_INT);
  }
}

/// What all ranks do in a round.
static void together(const char* what) {
  let_others();
  if (!strcmp(what, "peers")) {  // a message there and back, with each
    if (me != 0) {
      MPI_Recv(in, 4, MPI_INT, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      MPI_Send(out, 4, MPI_INT, 0, 2, MPI_COMM_WORLD);
      return;
    }
    for (int peer = 1; peer < size; peer++) MPI_Send(out, 4, MPI_INT, peer, 1, MPI_COMM_WORLD);
    let_others();
    for (int peer = 1; peer < size; peer++) MPI_Recv(in, 4, MPI_INT, peer, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  } else if (!strcmp(what, "neighbours")) {
    const int next = (me + 1) % size, before = (me + size - 1) % size;
    MPI_Request requests[2];
    MPI_Irecv(in, 4, MPI_INT, before, 3, MPI_COMM_WORLD, &requests[0]);
    MPI_Isend(out, 4, MPI_INT, next, 3, MPI_COMM_WORLD, &requests[1]);
    let_others();
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
  } else if (!strcmp(what, "allreduce")) {
    MPI_Allreduce(terms, sums, 4, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  } else if (!strcmp(what, "bcast")) {
    MPI_Bcast(in, 4, MPI_INT, 0, MPI_COMM_WORLD);
  } else if (!strcmp(what, "gather")) {
    MPI_Gather(out, 4, MPI_INT, blocks_in, 4, MPI_INT, 0, MPI_COMM_WORLD);
  } else if (!strcmp(what, "barrier")) {
    MPI_Barrier(MPI_COMM_WORLD);
  } else {
    MPI_Alltoall(blocks_out, 4, MPI_INT, blocks_in, 4, MPI_INT, MPI_COMM_WORLD);
  }
}

static void dump(const char* what, int count) {
  char name[32];
  snprintf(name, sizeof name, "%s%d", what, count);
  CALLGRIND_DUMP_STATS_AT(name);
}

static void measure(const char* what, int count, void (*round)(const char*), int before) {
  for (int i = 0; i < before; i++) round(what);
  CALLGRIND_ZERO_STATS;
  for (int i = 0; i < rounds; i++) round(what);
  dump(what, count);
}

int main(int argc, char** argv) {
  int provided;
  char* what = argv[1];
  const int threads = !strcmp(what, "threads"), most = atoi(argv[2]);
  rounds = atoi(argv[3]);
  MPI_Init_thread(&argc, &argv, threads ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE, &provided);
  MPI_Comm_rank(MPI_COMM_WORLD, &me);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  now = 1;
  if (most == 0) dump("init", size);
  if (most == 0) {
    if (size > kRanks) MPI_Abort(MPI_COMM_WORLD, 1);
    if (RUNNING_ON_VALGRIND) growth_nap = 4000000 + 150000L * size;
    for (char* kind = strtok(what, ","); kind != NULL; kind = strtok(NULL, ",")) measure(kind, size, together, rounds);
    growth_nap = 0;
  } else {
    for (int count = 1; count <= most && count <= kMost; count *= 4) {
      pthread_t ids[kMost];
      more(what, count);
      if (threads) {
        pthread_barrier_init(&registered, NULL, (unsigned)count + 1);
        pthread_barrier_init(&over, NULL, (unsigned)count + 1);
        for (int i = 0; i < count; i++) pthread_create(&ids[i], NULL, thread, NULL);
        pthread_barrier_wait(&registered);
      }
      // Each has been used twice before: what is looked up once has been.
      measure(what, count, one, 2 * now + 300);
      if (threads) {
        pthread_barrier_wait(&over);
        for (int i = 0; i < count; i++) pthread_join(ids[i], NULL);
      }
    }
    if (!strcmp(what, "requests"))
      for (int i = now - 1; i >= 0; i--) {
        MPI_Send(out, 1, MPI_INT, 0, 1000 + i, MPI_COMM_SELF);
        MPI_Wait(&pending[i], MPI_STATUS_IGNORE);
      }
    if (!strcmp(what, "communicators"))
      for (int i = 0; i < now; i++) MPI_Comm_free(&comms[i]);
    if (!strcmp(what, "types"))
      for (int i = 0; i < now; i++) MPI_Type_free(&types[i]);
    if (!strcmp(what, "windows"))
      for (int i = 0; i < now; i++) MPI_Win_free(&windows[i]);
  }
  CALLGRIND_ZERO_STATS;
  MPI_Finalize();
  if (most == 0) dump("finalize", size);
  return 0;
}
