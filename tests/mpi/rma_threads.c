// SPDX-License-Identifier: Apache-2.0
//
// Three threads, each with a window of its own on a communicator of its own (ranks in reverse order in two of them):
// everybody puts into everybody's memory between fences, then in exposure epochs that end by MPI_Win_wait or
// MPI_Win_test.
//
// Open MPI 4.1 has no module for that: osc/pt2pt wants one thread, osc/rdma crashes, and osc/ucx mixes up windows made
// at the same time and now and then returns from a fence before the data is there.
//
// ranks: 2
// needs: mpich
// calls: MPI_Win_create=3 MPI_Win_free=3 MPI_Win_post=48 MPI_Win_start=48 MPI_Win_complete=48 MPI_Win_wait=24
#include <mpi.h>
#include <pthread.h>

#include "check.h"

enum { kThreads = 3, kRounds = 16, kWords = 64, kRanks = 16 };

struct job {
  MPI_Comm comm;
  MPI_Win win;
  int *memory, *out;
  int seed;
};

static void* work(void* argument) {
  const struct job* job = argument;
  int me, ranks, others[kRanks], other_count = 0;
  int *memory = job->memory, *out = job->out;
  MPI_Win win = job->win;
  MPI_Group all, other;
  OK(MPI_Comm_rank(job->comm, &me));
  OK(MPI_Comm_size(job->comm, &ranks));
  CHECK(ranks <= kRanks);
  for (int round = 0; round < kRounds; round++) {
    for (int i = 0; i < ranks * kWords; i++) out[i] = round * 1000 + me * 100 + i + job->seed;
    for (int to = 0; to < ranks; to++)
      OK(MPI_Put(out + to * kWords, kWords, MPI_INT, to, me * kWords, kWords, MPI_INT, win));
    OK(MPI_Win_fence(0, win));
    for (int from = 0; from < ranks; from++)
      for (int i = 0; i < kWords; i++)
        CHECK(memory[from * kWords + i] == round * 1000 + from * 100 + me * kWords + i + job->seed);
    OK(MPI_Win_fence(round + 1 == kRounds ? MPI_MODE_NOSUCCEED : 0, win));
  }
  for (int i = 0; i < ranks; i++)
    if (i != me) others[other_count++] = i;
  OK(MPI_Comm_group(job->comm, &all));
  OK(MPI_Group_incl(all, other_count, others, &other));
  for (int round = 0; round < kRounds; round++) {
    OK(MPI_Win_post(other, 0, win));
    OK(MPI_Win_start(other, 0, win));
    for (int i = 0; i < other_count; i++)
      OK(MPI_Put(out + others[i] * kWords, kWords, MPI_INT, others[i], me * kWords, kWords, MPI_INT, win));
    OK(MPI_Win_complete(win));
    if (round % 2) {
      OK(MPI_Win_wait(win));
    } else {
      for (int flag = 0; !flag;) OK(MPI_Win_test(win, &flag));
    }
    for (int i = 0; i < ranks * kWords; i++) out[i]++;
  }
  OK(MPI_Group_free(&all));
  OK(MPI_Group_free(&other));
  return NULL;
}

int main(int argc, char** argv) {
  int provided, me, ranks;
  struct job jobs[kThreads];
  pthread_t threads[kThreads];
  MPI_Comm reversed;
  OK(MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided));
  CHECK(provided == MPI_THREAD_MULTIPLE);
  OK(MPI_Comm_rank(MPI_COMM_WORLD, &me));
  OK(MPI_Comm_size(MPI_COMM_WORLD, &ranks));
  OK(MPI_Comm_split(MPI_COMM_WORLD, 0, ranks - me, &reversed));
  for (int i = 0; i < kThreads; i++) {
    OK(MPI_Comm_dup(i % 2 ? MPI_COMM_WORLD : reversed, &jobs[i].comm));
    jobs[i].seed = 7 * i;
    const MPI_Aint bytes = (MPI_Aint)(sizeof(int) * kWords) * ranks;
    OK(MPI_Alloc_mem(bytes, MPI_INFO_NULL, &jobs[i].memory));
    OK(MPI_Alloc_mem(bytes, MPI_INFO_NULL, &jobs[i].out));
    OK(MPI_Win_create(jobs[i].memory, bytes, sizeof(int), MPI_INFO_NULL, jobs[i].comm, &jobs[i].win));
    OK(MPI_Win_fence(0, jobs[i].win));
  }
  for (int i = 0; i < kThreads; i++) CHECK(pthread_create(&threads[i], NULL, work, &jobs[i]) == 0);
  for (int i = 0; i < kThreads; i++) CHECK(pthread_join(threads[i], NULL) == 0);
  for (int i = 0; i < kThreads; i++) {
    OK(MPI_Win_free(&jobs[i].win));
    OK(MPI_Free_mem(jobs[i].memory));
    OK(MPI_Free_mem(jobs[i].out));
    OK(MPI_Comm_free(&jobs[i].comm));
  }
  OK(MPI_Comm_free(&reversed));
  OK(MPI_Finalize());
  if (me == 0) printf("rma_threads: %d operations can be checked\n", kThreads * kRounds * (2 * ranks - 1));
  return 0;
}
