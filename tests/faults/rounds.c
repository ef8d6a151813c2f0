// SPDX-License-Identifier: Apache-2.0
//
// A program of rounds:   rounds ROUNDS MILLISECONDS [quiet EVERY MILLISECONDS] [io EVERY MEBIBYTES FILE]
// In a round each rank computes for MILLISECONDS of its own processor time, passes a number to its right neighbour and
// takes part in a sum. quiet: in every EVERYth round one rank after the other computes much longer while all others
// wait. io: in every EVERYth round all ranks write to FILE.RANK and sync it, in eight parts.
// Prints a line that depends on every number that was passed.
#include <fcntl.h>
#include <mpi.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "../mpi/check.h"

static double compute(double milliseconds) {
  struct timespec from, now;
  double value = 1;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &from);
  do {
    for (int i = 0; i < 2000; i++) value = value * 0.999 + 1;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  } while ((double)(now.tv_sec - from.tv_sec) * 1e3 + (double)(now.tv_nsec - from.tv_nsec) * 1e-6 < milliseconds);
  return value;
}

static void write_and_sync(const char* path, int rank, long mebibytes) {
  char name[1024];
  static char block[1 << 17];
  snprintf(name, sizeof name, "%s.%d", path, rank);
  const int file = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0600);
  CHECK(file >= 0);
  for (long i = 0; i < 8 * mebibytes; i++) {
    CHECK(write(file, block, sizeof block) == sizeof block);
    if ((i + 1) % mebibytes == 0) CHECK(fsync(file) == 0);
  }
  close(file);
  unlink(name);
}

int main(int argc, char** argv) {
  CHECK(argc >= 3);
  const long rounds = atol(argv[1]);
  const double milliseconds = atof(argv[2]);
  long quiet_every = 0, io_every = 0, mebibytes = 0;
  double quiet_milliseconds = 0;
  const char* path = "";
  for (int i = 3; i < argc;) {
    if (!strcmp(argv[i], "quiet")) {
      CHECK(i + 2 < argc);
      quiet_every = atol(argv[i + 1]), quiet_milliseconds = atof(argv[i + 2]), i += 3;
    } else {
      CHECK(!strcmp(argv[i], "io") && i + 3 < argc);
      io_every = atol(argv[i + 1]), mebibytes = atol(argv[i + 2]), path = argv[i + 3], i += 4;
    }
  }
  int rank, size;
  double computed = 0;
  unsigned long own, passed, sum = 0;
  OK(MPI_Init(&argc, &argv));
  OK(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
  OK(MPI_Comm_size(MPI_COMM_WORLD, &size));
  own = (unsigned long)rank + 1;
  for (long round = 1; round <= rounds; round++) {
    computed += compute(milliseconds);
    if (quiet_every && round % quiet_every == 0 && round / quiet_every % size == rank)
      computed += compute(quiet_milliseconds);
    if (io_every && round % io_every == 0) write_and_sync(path, rank, mebibytes);
    MPI_Request request;
    OK(MPI_Irecv(&passed, 1, MPI_UNSIGNED_LONG, (rank + size - 1) % size, 5, MPI_COMM_WORLD, &request));
    OK(MPI_Send(&own, 1, MPI_UNSIGNED_LONG, (rank + 1) % size, 5, MPI_COMM_WORLD));
    OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    own = own * 6364136223846793005ul + passed;
    OK(MPI_Allreduce(&own, &sum, 1, MPI_UNSIGNED_LONG, MPI_SUM, MPI_COMM_WORLD));
    own ^= sum >> 7;
  }
  OK(MPI_Finalize());
  CHECK(computed >= 0);
  if (rank == 0) printf("rounds %ld, sum %016lx\n", rounds, sum);
  return 0;
}
