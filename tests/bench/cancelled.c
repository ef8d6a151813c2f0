// SPDX-License-Identifier: Apache-2.0
//
// Three calls a round, for callgrind: cancelled N [message]. A receive that is cancelled and completed, or (with a
// second argument) one that gets a message from the rank itself. One rank; instructions of 3,000 rounds less those of
// 1,000.
#include <mpi.h>
#include <stdlib.h>

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  const int rounds = atoi(argv[1]);
  int data, value = 0;
  MPI_Request request;
  for (int i = 0; i < rounds; i++) {
    MPI_Irecv(&data, 1, MPI_INT, 0, 7, MPI_COMM_WORLD, &request);
    if (argc > 2) MPI_Send(&value, 1, MPI_INT, 0, 7, MPI_COMM_WORLD);
    else MPI_Cancel(&request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
  }
  MPI_Finalize();
  return 0;
}
