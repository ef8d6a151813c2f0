// SPDX-License-Identifier: Apache-2.0
//
// Reductions of several threads at once, each on a communicator of its own, blocking and nonblocking, short and long:
// each must be the bits that the same reduction gave when it was alone.
//
// reductions_threads native|order|exact
#include <mpi.h>
#include <pthread.h>
#include <string.h>

#include "check.h"

enum { kThreads = 4, kRounds = 40, kMost = 20000 };

static MPI_Comm comms[kThreads];
static int rank;
static double alone[kThreads][3][kMost];
static const int counts[3] = {1, 100, kMost};

static double value(int thread, int i) {
  return (rank * 7 + thread * 3 + i % 13 + 1) / (3.0 + rank) * (i % 2 ? -1e8 : 1);
}

static void reduce(int thread, int size, double* in, double* out, int started) {
  const int count = counts[size];
  for (int i = 0; i < count; i++) in[i] = value(thread, i);
  memset(out, 0, (size_t)count * sizeof(double));
  if (!started) {
    OK(MPI_Allreduce(in, out, count, MPI_DOUBLE, MPI_SUM, comms[thread]));
    return;
  }
  MPI_Request request;
  OK(MPI_Iallreduce(in, out, count, MPI_DOUBLE, MPI_SUM, comms[thread], &request));
  OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
}

static void* work(void* argument) {
  const int thread = (int)(long)argument;
  double *in = malloc(kMost * sizeof(double)), *out = malloc(kMost * sizeof(double));
  CHECK(in != NULL && out != NULL);
  for (int round = 0; round < kRounds; round++) {
    const int size = (round + thread) % 3;
    reduce(thread, size, in, out, round % 4 == 3);
    CHECK(memcmp(out, alone[thread][size], (size_t)counts[size] * sizeof(double)) == 0);
  }
  free(in);
  free(out);
  return NULL;
}

int main(int argc, char** argv) {
  int provided;
  OK(MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided));
  CHECK(provided == MPI_THREAD_MULTIPLE);
  OK(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
  static double in[kMost];
  for (int thread = 0; thread < kThreads; thread++) {
    OK(MPI_Comm_dup(MPI_COMM_WORLD, &comms[thread]));
    for (int size = 0; size < 3; size++) reduce(thread, size, in, alone[thread][size], 0);
  }
  pthread_t threads[kThreads];
  for (long i = 0; i < kThreads; i++) CHECK(pthread_create(&threads[i], NULL, work, (void*)i) == 0);
  for (int i = 0; i < kThreads; i++) CHECK(pthread_join(threads[i], NULL) == 0);
  for (int i = 0; i < kThreads; i++) OK(MPI_Comm_free(&comms[i]));
  if (rank == 0) printf("reductions_threads %s\n", argc > 1 ? argv[1] : "");
  OK(MPI_Finalize());
  return 0;
}
