// SPDX-License-Identifier: Apache-2.0
//
// A plug-in that is linked with MPI; plugin_host.c loads it.
#include <mpi.h>

#include "check.h"

int plugin_run(int* argc, char*** argv);

int plugin_run(int* argc, char*** argv) {
  int me, sum = 0, mine;
  OK(MPI_Init(argc, argv));
  OK(MPI_Comm_rank(MPI_COMM_WORLD, &me));
  mine = me + 1;
  for (int k = 0; k < 5; k++) OK(MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
  OK(MPI_Sendrecv_replace(&mine, 1, MPI_INT, 1 - me, 0, 1 - me, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
  CHECK(mine == 2 - me);
  OK(MPI_Finalize());
  if (me == 0) printf("plugin: sum %d\n", sum);
  return 0;
}
