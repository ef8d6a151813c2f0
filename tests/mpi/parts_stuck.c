// SPDX-License-Identifier: Apache-2.0
//
// A rank that stops, for replicas_test.py: the other parts of the job go on without it.
//
// parts_stuck HOW    20 steps in which every rank needs every other one. HANG=RANK: the job's rank that stops in step
// 10, HOW: in a loop, by a signal (stop; die, for good), or in a wait for what never comes (wait). CALLS=N: how many
// calls in which MPI chooses each other one makes from there on. STATUS=N: with which rank 0 exits. HOW late:
// rank 1 of each part computes for 1.5 s there, in part 1 for 4. HOW block: rank 1 asks for more clocks than are sent
// at once, in all parts but the leading one after 1 s, then waits for anybody: rank 0, which computes for 7 s.
// TALK=FOLDER: every rank prints in each step, some of it at once, and writes into files of that folder; rank 0 takes
// messages from any source and polls, as it likes. PIDS=1: it asks for its process id.

#define _GNU_SOURCE
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static int rank, size, job_rank;

static int number(const char* name, int otherwise) {
  const char* text = getenv(name);
  return text != NULL ? atoi(text) : otherwise;
}

static void stop(const char* how) {
  volatile int forever = 1;
  double nothing;
  if (strcmp(how, "loop") == 0)
    while (forever) {}
  if (strcmp(how, "stop") == 0) raise(SIGSTOP);
  if (strcmp(how, "die") == 0) raise(SIGKILL);
  if (strcmp(how, "wait") == 0) MPI_Recv(&nothing, 1, MPI_DOUBLE, rank, 99, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

/* Nothing is wrong: the leading part is far ahead, and inside one call for long. */
static void block(int ahead) {
  const struct timespec second = {1, 0}, long_time = {7, 0};
  double value = 0;
  if (rank == 0) {
    nanosleep(&long_time, NULL);
    MPI_Send(&value, 1, MPI_DOUBLE, 1, 3, MPI_COMM_WORLD);
  } else if (rank == 1) {
    if (!ahead) nanosleep(&second, NULL);
    for (int i = 0; i < 40; ++i) {
      double last = MPI_Wtime(), same = 0;
      for (int clock = 0; clock < 1000; ++clock) {
        const double now = MPI_Wtime();
        if (now < last) abort();
        last = now;
      }
      MPI_Sendrecv(&last, 1, MPI_DOUBLE, 0, 7, &same, 1, MPI_DOUBLE, 0, 7, MPI_COMM_SELF, MPI_STATUS_IGNORE);
    }
    MPI_Recv(&value, 1, MPI_DOUBLE, MPI_ANY_SOURCE, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  }
}

static FILE *fresh, *appended;
static char name[1000];

static const char* in_folder(const char* file) {
  snprintf(name, sizeof(name), "%s/%s-%d", getenv("TALK"), file, rank);
  return name;
}

/* One step of a program that talks: what it says is the same in each run. */
static void talk(int step) {
  char from[1000];
  int value = step, sum = 0, found = 0, mine = rank;
  const double began = MPI_Wtime();
  MPI_Request request[2];
  if (step == 0) {
    fresh = fopen(in_folder("fresh"), "w");
    appended = fopen(in_folder("appended"), "a");
    FILE* moved = fopen(in_folder("moves"), "w");
    fprintf(moved, "moved\n");
    fclose(moved);
  }
  printf("rank %d, step %d\n", rank, step);
  if (step % 3 != 1) fflush(stdout);
  fprintf(fresh, "%d\n", step);
  fprintf(appended, "%d\n", step);
  if (step % 4 == 0) fflush(appended);
  /* Rank 0 takes what the others send as it comes: a blocking receive, a pending one, a poll. */
  if (rank != 0) {
    for (int i = 0; i < 3; ++i) MPI_Send(&value, 1, MPI_INT, 0, 5 + i, MPI_COMM_WORLD);
  } else {
    for (int i = 1; i < size; ++i) {
      MPI_Irecv(&value, 1, MPI_INT, MPI_ANY_SOURCE, 7, MPI_COMM_WORLD, &request[0]);
      MPI_Irecv(&found, 1, MPI_INT, MPI_ANY_SOURCE, 6, MPI_COMM_WORLD, &request[1]);
      MPI_Recv(&mine, 1, MPI_INT, MPI_ANY_SOURCE, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      for (int done = 0; !done;) MPI_Test(&request[0], &done, MPI_STATUS_IGNORE);
      MPI_Wait(&request[1], MPI_STATUS_IGNORE);
      sum += value + found + mine;
    }
    if (sum != 3 * step * (size - 1)) abort();
    printf("sum %d\n", sum);
  }
  if (MPI_Wtime() < began) abort();
  if (step != 19) return;
  fclose(fresh);
  fclose(appended);
  snprintf(from, sizeof(from), "%s", in_folder("moves"));
  rename(from, in_folder("there"));
  remove(in_folder("goes"));
}

/* Written when stdio ends, after MPI_Finalize. */
static void say_late(void) { printf("rank %d is through\n", rank); }

int main(int argc, char** argv) {
  double data[64], all[64];
  const char* how = argc > 1 ? argv[1] : "";
  int over = 0;
  job_rank = number("PMIX_RANK", number("PMI_RANK", 0));
  const int here = job_rank == number("HANG", -1);
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  for (int i = 0; i < 64; ++i) data[i] = rank + i;
  if (number("PIDS", 0) && getpid() == 0) abort();
  for (int step = 0; step < 20; ++step) {
    if (here && step == 10) stop(how);
    if (getenv("TALK") != NULL) talk(step);
    const struct timespec pause = {job_rank / size == 1 ? 4 : 1, 500000000};
    if (strcmp(how, "late") == 0 && rank == 1 && step == 10) nanosleep(&pause, NULL);
    if (strcmp(how, "block") == 0 && step == 10) block(job_rank < size);
    for (int i = 0; step == 10 && !here && i < number("CALLS", 0); ++i) {
      double out = i + MPI_Wtime(), in = 0;
      MPI_Sendrecv(&out, 1, MPI_DOUBLE, 0, 7, &in, 1, MPI_DOUBLE, MPI_ANY_SOURCE, 7, MPI_COMM_SELF, MPI_STATUS_IGNORE);
      if (in != out) abort();
    }
    MPI_Allreduce(data, all, 64, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    for (int i = 0; i < 64; ++i) data[i] = data[i] * 0.5 + all[63 - i];
  }
  if (rank == 0) printf("%.17g\n", data[7]);
  if (rank == 0) atexit(say_late);
  MPI_Finalize();
  MPI_Finalized(&over);
  if (rank == 0) printf("over: %d\n", over);
  return rank == 0 ? number("STATUS", 0) : 0; /* the last to print: launchers end the others */
}
