// SPDX-License-Identifier: Apache-2.0
//
// One kind of work while there is more and more of something: growth DIMENSION MOST ROUNDS. For each N = 1, 4, 16, ...
// up to MOST there are N pending requests, communicators, tags, datatypes, windows or threads; a round uses each in
// turn, between two dumps of callgrind named by N. With `peers` and `ranks` N is the number of other ranks, and the
// job's size. See scripts/bench growth.
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <valgrind/callgrind.h>

enum { kMost = 4096 };
static int me, size, now, at, rounds;
static MPI_Request pending[kMost];
static MPI_Comm comms[kMost];
static MPI_Datatype types[kMost];
static MPI_Win windows[kMost];
static int in[16], out[16], target[16], sinks[kMost];
static pthread_barrier_t registered, over;

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
  } else if (!strcmp(what, "peers")) {  // a message there and back, with each in turn
    for (int peer = 1; peer < size; peer++) {
      if (me == 0) {
        MPI_Send(out, 4, MPI_INT, peer, 1, MPI_COMM_WORLD);
        MPI_Recv(in, 4, MPI_INT, peer, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      } else if (me == peer) {
        MPI_Recv(in, 4, MPI_INT, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Send(out, 4, MPI_INT, 0, 2, MPI_COMM_WORLD);
      }
    }
  } else if (!strcmp(what, "ranks")) {
    MPI_Allreduce(out, in, 4, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  } else {
    message(MPI_COMM_SELF, 0, 1, 4, MPI_INT);
  }
}

static void measure(const char* what, int count) {
  char name[32];
  snprintf(name, sizeof name, "n%d", count);
  // Each has been used twice before: what is looked up once has been.
  for (int i = 0; i < 2 * now + 300; i++) one(what);
  CALLGRIND_ZERO_STATS;
  for (int i = 0; i < rounds; i++) one(what);
  CALLGRIND_DUMP_STATS_AT(name);
}

int main(int argc, char** argv) {
  int provided;
  const char* what = argv[1];
  const int threads = !strcmp(what, "threads"), most = atoi(argv[2]);
  rounds = atoi(argv[3]);
  MPI_Init_thread(&argc, &argv, threads ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE, &provided);
  MPI_Comm_rank(MPI_COMM_WORLD, &me);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  now = 1;
  if (size > 1) {
    measure(what, size);
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
      measure(what, count);
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
  MPI_Finalize();
  return 0;
}
