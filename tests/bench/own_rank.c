// SPDX-License-Identifier: Apache-2.0
//
// MPI_Irecv, MPI_Isend and MPI_Waitall with the own rank, N times, for counting instructions (callgrind): what a call
// costs a program that has no device buffers. Arguments: N, and `mapped` for buffers in memory that was mapped.
#define _GNU_SOURCE
#include <mpi.h>
#include <stdlib.h>
#include <sys/mman.h>

static int data[2];

int main(int argc, char** argv) {
  int* buffers = data;
  MPI_Init(&argc, &argv);
  const long rounds = argc > 1 ? atol(argv[1]) : 1000;
  if (argc > 2) buffers = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  for (long k = 0; k < rounds; k++) {
    MPI_Request requests[2];
    MPI_Irecv(&buffers[0], 1, MPI_INT, 0, 1, MPI_COMM_SELF, &requests[0]);
    MPI_Isend(&buffers[1], 1, MPI_INT, 0, 1, MPI_COMM_SELF, &requests[1]);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
  }
  MPI_Finalize();
  return 0;
}
