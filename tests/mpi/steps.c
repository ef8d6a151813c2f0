// SPDX-License-Identifier: Apache-2.0
//
// resil.h from C and, compiled as C++, from C++: names steps, logs a norm, a checksum and a count. Runs alike without
// the library. Rank 0: 2 steps of each name, 4 norms.
#include <mpi.h>
#include <resil.h>

#include "check.h"

int main(int argc, char** argv) {
  int rank;
  double energy = 1.5, sum = 0;
  resil_step("before MPI_Init");  // too early: nothing happens
  OK(MPI_Init(&argc, &argv));
  OK(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
  for (int i = 0; i < 2; i++) {
    resil_step("pressure solve");
    OK(MPI_Allreduce(&energy, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD));
    resil_norm("energy", energy / 3);
    resil_step("velocity update");
    resil_norm("energy", -0.0);
    resil_checksum("state", 0xdeadbeefcafef00dULL);
    resil_count("iterations", -7 + i);
  }
  CHECK(resil_drain() == 0);
  printf("rank %d: %g\n", rank, sum);
  OK(MPI_Finalize());
  resil_step("after MPI_Finalize");
  return 0;
}
