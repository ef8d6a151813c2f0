// SPDX-License-Identifier: Apache-2.0
//
// One rank with some threads, all alive, each with ROUNDS rounds of MPI_Isend, MPI_Recv, MPI_Wait and MPI_Sendrecv to
// itself on a communicator of its own: its private dirty pages, and the processor time of a round and thread.
// thread_memory THREADS ROUNDS
#define _GNU_SOURCE
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { kMost = 64 };
static MPI_Comm comms[kMost];
static int rounds;
static pthread_barrier_t done, told;
static double nanoseconds[kMost];

static double thread_time(void) {
  struct timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return 1e9 * (double)now.tv_sec + (double)now.tv_nsec;
}

static void rounds_of(int number) {
  const double start = thread_time();
  for (int i = 0; i < rounds; i++) {
    int out = i, in = 0;
    MPI_Request request;
    MPI_Isend(&out, 1, MPI_INT, 0, number, comms[number], &request);
    MPI_Recv(&in, 1, MPI_INT, 0, number, comms[number], MPI_STATUS_IGNORE);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Sendrecv(&out, 1, MPI_INT, 0, number, &in, 1, MPI_INT, 0, number, comms[number], MPI_STATUS_IGNORE);
  }
  nanoseconds[number] = (thread_time() - start) / rounds;
  pthread_barrier_wait(&done);
}

static void* work(void* number) {
  rounds_of((int)(size_t)number);
  pthread_barrier_wait(&told);
  return NULL;
}

static long private_dirty(void) {
  char line[256];
  long kib = -1;
  FILE* file = fopen("/proc/self/smaps_rollup", "r");
  while (file != NULL && fgets(line, sizeof line, file) != NULL)
    if (sscanf(line, "Private_Dirty: %ld", &kib) == 1) break;
  if (file != NULL) fclose(file);
  return kib;
}

int main(int argc, char** argv) {
  const int threads = argc > 1 ? atoi(argv[1]) : 1;
  int provided;
  rounds = argc > 2 ? atoi(argv[2]) : 1500;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  if (provided != MPI_THREAD_MULTIPLE || threads < 1 || threads > kMost) MPI_Abort(MPI_COMM_WORLD, 1);
  pthread_t others[kMost];
  pthread_barrier_init(&done, NULL, (unsigned)threads);
  pthread_barrier_init(&told, NULL, (unsigned)threads);
  for (int i = 0; i < kMost; i++) MPI_Comm_dup(MPI_COMM_SELF, &comms[i]);
  for (int i = 1; i < threads; i++) pthread_create(&others[i], NULL, work, (void*)(size_t)i);
  rounds_of(0);
  double sum = 0;
  for (int i = 0; i < threads; i++) sum += nanoseconds[i];
  printf("private_dirty %ld KiB\nround %.0f ns\n", private_dirty(), sum / threads);
  fflush(stdout);
  pthread_barrier_wait(&told);
  for (int i = 1; i < threads; i++) pthread_join(others[i], NULL);
  for (int i = 0; i < kMost; i++) MPI_Comm_free(&comms[i]);
  MPI_Finalize();
  return 0;
}
