// SPDX-License-Identifier: Apache-2.0
//
// One of many jobs on a node: what it calls, and how often, depends on its number, and its last rank keeps the others
// waiting in a collective call until all jobs do so. Whoever takes another job's state for this one's sees a mismatch.
//
// Usage: neighbours NUMBER READY GO   (files: made when this job waits; waited for)
#include <fcntl.h>
#include <mpi.h>

#include "check.h"

static int number;

static void collective(int size) {
  int sent[8] = {1, 1, 1, 1, 1, 1, 1, 1}, got[8];
  int count = 1 + number % 7;
  if (number % 3 == 0) {
    OK(MPI_Allreduce(sent, got, count, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
    CHECK(got[count - 1] == size);
  } else if (number % 3 == 1) {
    OK(MPI_Bcast(sent, count, MPI_INT, size - 1, MPI_COMM_WORLD));
  } else {
    OK(MPI_Barrier(MPI_COMM_WORLD));
  }
}

int main(int argc, char** argv) {
  int rank, size;
  CHECK(argc == 4);
  number = atoi(argv[1]);
  OK(MPI_Init(&argc, &argv));
  OK(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
  OK(MPI_Comm_size(MPI_COMM_WORLD, &size));
  for (int i = 0; i < 10 + number; i++) collective(size);
  if (rank == size - 1) {
    int ready = open(argv[2], O_WRONLY | O_CREAT, 0666);
    CHECK(ready >= 0);
    close(ready);
    for (int i = 0; access(argv[3], F_OK) != 0; i++) {
      CHECK(i < 60000);
      usleep(20000);
    }
  }
  collective(size);
  if (rank == 0) printf("job %d: %d of them\n", number, size);
  OK(MPI_Finalize());
  return 0;
}
