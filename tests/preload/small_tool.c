// SPDX-License-Identifier: Apache-2.0
//
// A tool that wraps two functions, not MPI_Init, and comes back from what it calls: no call here is the last one of its
// function.
#include <mpi.h>
int MPI_Send(const void* buffer, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm) {
  int rank, result = PMPI_Comm_rank(comm, &rank);
  return result == MPI_SUCCESS ? PMPI_Send(buffer, count, type, to, tag, comm) + (rank < 0) : result;
}
int MPI_Recv(void* buffer, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm, MPI_Status* status) {
  int flag = 0, result = PMPI_Iprobe(from, tag, comm, &flag, MPI_STATUS_IGNORE);
  return result == MPI_SUCCESS ? PMPI_Recv(buffer, count, type, from, tag, comm, status) + 0 * flag : result;
}
