// SPDX-License-Identifier: Apache-2.0
//
// A ring of messages and a sum, for vendors_test.py.
#include <mpi.h>
#include <stdio.h>

int main(int argc, char** argv) {
  int me, ranks, left = -1, sum = 0;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &me);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  MPI_Sendrecv(&me, 1, MPI_INT, (me + 1) % ranks, 0, &left, 1, MPI_INT, (me + ranks - 1) % ranks, 0, MPI_COMM_WORLD,
               MPI_STATUS_IGNORE);
  MPI_Allreduce(&left, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  if (me == 0) printf("%d ranks, sum %d\n", ranks, sum);
  MPI_Finalize();
  return 0;
}
