// SPDX-License-Identifier: Apache-2.0
//
// MPI_THREAD_MULTIPLE: four threads per rank. First each talks to its partner on its own communicator; then all
// four complete one shared set of receives with MPI_Testany/Waitany calls that they take in turn from a shared list,
// as task runtimes do; last, threads that come and go, each with one call.
//
// ranks: 2
// calls: MPI_Init_thread=1 MPI_Comm_dup=4 MPI_Comm_free=4 MPI_Send=960 MPI_Recv=800 MPI_Irecv=160 MPI_Isend=0
// calls: MPI_Query_thread=1 MPI_Is_thread_main=6 MPI_Comm_size=32
#include <mpi.h>
#include <pthread.h>
#include <stdatomic.h>

#include "check.h"

enum { kThreads = 4, kRounds = 200, kShared = 160, kShort = 32 };

static int me, peer;
static MPI_Comm comms[kThreads];
static MPI_Request shared[kShared];
static int values[kShared];
static atomic_int next_wait;
static atomic_long total;

static void* ping_pong(void* argument) {
  long id = (long)argument, sum = 0;
  int flag;
  OK(MPI_Is_thread_main(&flag));
  CHECK(!flag);
  for (int k = 0; k < kRounds; k++) {
    int mine = 1000 * (int)id + k, theirs = -1;
    if (me == 0) OK(MPI_Send(&mine, 1, MPI_INT, peer, k, comms[id]));
    OK(MPI_Recv(&theirs, 1, MPI_INT, peer, k, comms[id], MPI_STATUS_IGNORE));
    if (me == 1) OK(MPI_Send(&mine, 1, MPI_INT, peer, k, comms[id]));
    CHECK(theirs == mine);
    sum += theirs;
  }
  atomic_fetch_add(&total, sum);
  return NULL;
}

static void* share_waits(void* argument) {
  (void)argument;
  for (;;) {
    int index = atomic_fetch_add(&next_wait, 1), flag = 0;
    if (index >= kShared) return NULL;
    if (index % 2 == 0) {
      OK(MPI_Wait(&shared[index], MPI_STATUS_IGNORE));
    } else {
      while (!flag) OK(MPI_Test(&shared[index], &flag, MPI_STATUS_IGNORE));
    }
    CHECK(values[index] == 7 * index);
  }
}

static void* one_call(void* argument) {
  int size;
  (void)argument;
  OK(MPI_Comm_size(MPI_COMM_WORLD, &size));
  CHECK(size == 2);
  return NULL;
}

static void run(void* (*body)(void*), int count) {
  pthread_t threads[kThreads];
  CHECK(count <= kThreads);
  for (long k = 0; k < count; k++) CHECK(pthread_create(&threads[k], NULL, body, (void*)k) == 0);
  for (int k = 0; k < count; k++) CHECK(pthread_join(threads[k], NULL) == 0);
}

int main(int argc, char** argv) {
  int provided, level, flag;
  OK(MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided));
  CHECK(provided == MPI_THREAD_MULTIPLE);
  OK(MPI_Query_thread(&level));
  OK(MPI_Is_thread_main(&flag));
  CHECK(level == MPI_THREAD_MULTIPLE && flag);
  OK(MPI_Comm_rank(MPI_COMM_WORLD, &me));
  peer = 1 - me;
  for (int k = 0; k < kThreads; k++) OK(MPI_Comm_dup(MPI_COMM_WORLD, &comms[k]));
  run(ping_pong, kThreads);

  for (int k = 0; k < kShared; k++) OK(MPI_Irecv(&values[k], 1, MPI_INT, peer, k, MPI_COMM_WORLD, &shared[k]));
  for (int k = 0; k < kShared; k++) {
    int value = 7 * k;
    OK(MPI_Send(&value, 1, MPI_INT, peer, k, MPI_COMM_WORLD));
  }
  run(share_waits, kThreads);
  for (int k = 0; k < kShort; k++) run(one_call, 1);
  OK(MPI_Is_thread_main(&flag));
  for (int k = 0; k < kThreads; k++) OK(MPI_Comm_free(&comms[k]));
  OK(MPI_Finalize());
  if (me == 0) printf("threads: %ld\n", atomic_load(&total));
  return 0;
}
