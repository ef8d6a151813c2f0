// SPDX-License-Identifier: Apache-2.0
//
// Numbers of C++'s random device, which asks the processor, in what is sent; for replicas_test.py.
#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include <random>

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  std::random_device device;
  for (int step = 0; step < 8; ++step) {
    unsigned number = device();
    MPI_Bcast(&number, 1, MPI_UNSIGNED, 0, MPI_COMM_WORLD);
    std::mt19937 engine(device());
    number = static_cast<unsigned>(engine());
    MPI_Allreduce(MPI_IN_PLACE, &number, 1, MPI_UNSIGNED, MPI_MAX, MPI_COMM_WORLD);
  }
  MPI_Finalize();
}
