// SPDX-License-Identifier: Apache-2.0
//
// Two ranks of which rank 0 stays in one state until the file GO exists:   states STATE DIR
// mpi: in MPI_Recv (rank 1 sends after GO)   spin: in user code   sleep: in nanosleep   lock: on a mutex held by
// another thread   malloc: allocating and freeing   init: in MPI_Init (rank 1 comes after GO)   finalize: in
// MPI_Finalize (rank 1 comes after GO)   after: after MPI_Finalize   pending: in MPI_Waitall with a receive, a send and
// a persistent request Rank 0's main thread makes the file DIR/ready just before it goes there: who needs it in a call
// waits until the flight recorder says so; who needs it asleep (sleep, lock: one system call until GO) until the kernel
// does. Prints the same line whatever happened to it meanwhile.
#include <mpi.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "check.h"

static char go[512], ready[512];
static volatile sig_atomic_t own_handler;

static int there(const char* path) {
  struct stat status;
  return stat(path, &status) == 0;
}

static void nap(long nanoseconds) {
  struct timespec time = {0, nanoseconds};
  nanosleep(&time, NULL);
}

static void wait_for_go(void) {
  while (!there(go)) nap(2000000);
}

static void say_ready(void) {
  FILE* file = fopen(ready, "w");
  CHECK(file != NULL && fclose(file) == 0);
}

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static sem_t held;

static void* hold(void* unused) {
  (void)unused;
  pthread_mutex_lock(&mutex);
  sem_post(&held);
  wait_for_go();
  pthread_mutex_unlock(&mutex);
  return NULL;
}

static pthread_t sleeper;
static atomic_int awake;

static void wake_handler(int number) { (void)number; }

// A signal that comes just before the sleeper sleeps is lost: sent until it is awake.
static void* wake(void* unused) {
  (void)unused;
  wait_for_go();
  while (!atomic_load(&awake)) {
    pthread_kill(sleeper, SIGUSR1);
    nap(2000000);
  }
  return NULL;
}

static void application_handler(int number) {
  (void)number;
  own_handler++;
}

static void stay(const char* state, int rank) {
  int value = 0;
  if (!strcmp(state, "mpi")) {
    if (rank == 0) {
      say_ready();
      OK(MPI_Recv(&value, 1, MPI_INT, 1, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    } else {
      wait_for_go();
      value = 41;
      OK(MPI_Send(&value, 1, MPI_INT, 0, 7, MPI_COMM_WORLD));
    }
  } else if (!strcmp(state, "pending")) {
    static char large[1 << 22];
    MPI_Request requests[3];
    if (rank == 0) {
      OK(MPI_Irecv(&value, 1, MPI_INT, 1, 11, MPI_COMM_WORLD, &requests[0]));
      OK(MPI_Isend(large, sizeof large, MPI_CHAR, 1, 12, MPI_COMM_WORLD, &requests[1]));
      OK(MPI_Recv_init(&value, 1, MPI_INT, 1, 13, MPI_COMM_WORLD, &requests[2]));
      OK(MPI_Start(&requests[2]));
      say_ready();
      OK(MPI_Waitall(3, requests, MPI_STATUSES_IGNORE));
      OK(MPI_Request_free(&requests[2]));
    } else {
      wait_for_go();
      OK(MPI_Recv(large, sizeof large, MPI_CHAR, 0, 12, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
      OK(MPI_Send(&value, 1, MPI_INT, 0, 11, MPI_COMM_WORLD));
      OK(MPI_Send(&value, 1, MPI_INT, 0, 13, MPI_COMM_WORLD));
    }
  } else if (rank != 0) {
    return;
  } else if (!strcmp(state, "spin")) {
    say_ready();
    for (volatile unsigned long n = 0;; n++)
      if (n % 2000000 == 0 && there(go)) break;
  } else if (!strcmp(state, "sleep")) {
    pthread_t thread;
    const struct timespec long_time = {3600, 0};
    sleeper = pthread_self();
    signal(SIGUSR1, wake_handler);
    CHECK(pthread_create(&thread, NULL, wake, NULL) == 0);
    say_ready();
    while (!there(go)) nanosleep(&long_time, NULL);
    atomic_store(&awake, 1);
    CHECK(pthread_join(thread, NULL) == 0);
  } else if (!strcmp(state, "lock")) {
    pthread_t thread;
    CHECK(sem_init(&held, 0, 0) == 0 && pthread_create(&thread, NULL, hold, NULL) == 0);
    while (sem_wait(&held) != 0) continue;
    say_ready();
    pthread_mutex_lock(&mutex);
    pthread_mutex_unlock(&mutex);
    CHECK(pthread_join(thread, NULL) == 0);
  } else if (!strcmp(state, "malloc")) {
    say_ready();
    for (unsigned long n = 0;; n++) {
      void* block = malloc(16 + n % 4096);
      CHECK(block != NULL);
      free(block);
      if (n % 1000000 == 0 && there(go)) break;
    }
  }
}

int main(int argc, char** argv) {
  CHECK(argc == 3);
  const char* state = argv[1];
  snprintf(go, sizeof go, "%s/go", argv[2]);
  snprintf(ready, sizeof ready, "%s/ready", argv[2]);
  const char* launcher_rank = getenv("OMPI_COMM_WORLD_RANK") ? getenv("OMPI_COMM_WORLD_RANK") : getenv("PMI_RANK");
  const int first = launcher_rank == NULL || atoi(launcher_rank) == 0;
  if (!strcmp(state, "handler")) signal(SIGHUP, application_handler);
  if (!strcmp(state, "init")) {
    if (first) say_ready();
    else wait_for_go();
  }
  OK(MPI_Init(&argc, &argv));
  int rank, sum = 0;
  OK(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
  for (int i = 0; i < 20; i++) OK(MPI_Allreduce(&i, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
  if (!strcmp(state, "handler")) {
    if (rank == 0) {
      say_ready();
      while (own_handler == 0) nap(2000000);
      wait_for_go();
    }
  } else {
    stay(state, rank);
  }
  OK(MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
  if (!strcmp(state, "finalize")) {
    if (rank == 0) say_ready();
    else wait_for_go();
  }
  OK(MPI_Finalize());
  if (!strcmp(state, "after") && rank == 0) {
    say_ready();
    wait_for_go();
  }
  if (rank == 0) printf("state %s, sum %d\n", state, sum);
  return 0;
}
