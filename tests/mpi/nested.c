// SPDX-License-Identifier: Apache-2.0
//
// Rank 0 runs a command between MPI_Init and MPI_Finalize, while the other ranks wait for it: a job started inside a
// rank.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char** argv) {
  int rank, status = 0;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 0 && argc > 1) status = system(argv[1]);
  MPI_Bcast(&status, 1, MPI_INT, 0, MPI_COMM_WORLD);
  if (rank == 0) printf("nested: status %d\n", status);
  MPI_Finalize();
  return status != 0;
}
