// SPDX-License-Identifier: Apache-2.0
//
// A short job that marks, for strace, where MPI_Init has returned and where MPI_Finalize begins (files.py).
#include <mpi.h>
#include <unistd.h>

int main(int argc, char** argv) {
  int rank, size, out = 0, in = 0;
  MPI_Init(&argc, &argv);
  if (access("/mark-of-resil/run", F_OK) == 0) return 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  for (int i = 0; i < 20; ++i)
    MPI_Sendrecv(&out, 1, MPI_INT, (rank + 1) % size, 7, &in, 1, MPI_INT, (rank + size - 1) % size, 7, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
  MPI_Barrier(MPI_COMM_WORLD);
  if (access("/mark-of-resil/end", F_OK) == 0) return 1;
  return MPI_Finalize();
}
