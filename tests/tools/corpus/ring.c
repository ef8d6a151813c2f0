// SPDX-License-Identifier: Apache-2.0
//
// The job of the corpus: ten steps on a ring of ranks. `k`: rank 1 is killed behind them; `h`: all wait for messages that
// nobody sends.
#include <mpi.h>
#include <signal.h>
#include <unistd.h>

int main(int argc, char** argv) {
  int rank, size;
  double mine = 1, got = 0;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  const int next = (rank + 1) % size, before = (rank + size - 1) % size;
  for (int i = 0; i < 10; ++i) {
    MPI_Sendrecv(&mine, 1, MPI_DOUBLE, next, 7, &got, 1, MPI_DOUBLE, before, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Allreduce(&mine, &got, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  }
  const char what = argc > 1 ? argv[1][0] : 0;
  if (what == 'k' && rank == 1) kill(getpid(), SIGKILL);
  if (what == 'h') MPI_Recv(&got, 1, MPI_DOUBLE, next, 99, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  MPI_Finalize();
  return 0;
}
