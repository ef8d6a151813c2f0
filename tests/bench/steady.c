// SPDX-License-Identifier: Apache-2.0
//
// The same work N times on one rank, for counting what N more rounds cost in system calls and allocations. 24 calls
// a round: messages to itself in every style, polls, collectives, local queries.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char** argv) {
  int value = 1, other = 0, flag, index, size;
  double sum = 1, total;
  MPI_Request requests[4], pair[2];
  MPI_Status status;
  MPI_Comm comm;
  MPI_Init(&argc, &argv);
  const long rounds = argc > 1 ? atol(argv[1]) : 1000;
  MPI_Comm_dup(MPI_COMM_SELF, &comm);
  MPI_Recv_init(&other, 1, MPI_INT, 0, 3, comm, &pair[0]);
  MPI_Send_init(&value, 1, MPI_INT, 0, 3, comm, &pair[1]);
  for (long k = 0; k < rounds; k++) {
    MPI_Irecv(&other, 1, MPI_INT, 0, 1, comm, &requests[0]);
    MPI_Iprobe(0, 77, comm, &flag, &status);
    MPI_Test(&requests[0], &flag, &status);
    MPI_Isend(&value, 1, MPI_INT, 0, 1, comm, &requests[1]);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    MPI_Irecv(&other, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, comm, &requests[0]);
    MPI_Isend(&value, 1, MPI_INT, 0, 2, comm, &requests[1]);
    MPI_Waitany(2, requests, &index, &status);
    MPI_Waitany(2, requests, &index, &status);
    MPI_Sendrecv(&value, 1, MPI_INT, 0, 4, &other, 1, MPI_INT, 0, 4, comm, &status);
    MPI_Get_count(&status, MPI_INT, &size);
    MPI_Startall(2, pair);
    MPI_Waitall(2, pair, MPI_STATUSES_IGNORE);
    MPI_Barrier(comm);
    MPI_Bcast(&value, 1, MPI_INT, 0, comm);
    MPI_Allreduce(&sum, &total, 1, MPI_DOUBLE, MPI_SUM, comm);
    MPI_Reduce(&sum, &total, 1, MPI_DOUBLE, MPI_SUM, 0, comm);
    MPI_Comm_rank(comm, &index);
    MPI_Comm_size(comm, &size);
    MPI_Type_size(MPI_DOUBLE, &size);
    MPI_Ibarrier(comm, &requests[0]);
    MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
    MPI_Irecv(&other, 1, MPI_INT, MPI_PROC_NULL, 1, comm, &requests[0]);
    MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
  }
  MPI_Request_free(&pair[0]);
  MPI_Request_free(&pair[1]);
  MPI_Comm_free(&comm);
  MPI_Finalize();
  return 0;
}
