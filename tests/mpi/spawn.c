// SPDX-License-Identifier: Apache-2.0
//
// Dynamic processes: two parents spawn this program twice (MPI_Comm_spawn), talk to the children over the
// intercommunicator and a merged communicator, then disconnect.
//
// Debian's MPICH 4.0.2 refuses MPI_Comm_spawn ("Error in spawn call", status 15), without any tool as well.
//
// ranks: 2
// launch(openmpi): --oversubscribe
// exit(mpich): 15
// calls: MPI_Comm_spawn=1 MPI_Comm_get_parent=1 MPI_Intercomm_merge=1 MPI_Bcast=1 MPI_Allreduce=1
// calls: MPI_Comm_disconnect=1 MPI_Comm_free=1 MPI_Recv=1 MPI_Send=1
#include <mpi.h>

#include "check.h"

enum { kChildren = 2 };

static void child(MPI_Comm parent) {
  MPI_Comm merged;
  int me, value = -1, sum;
  OK(MPI_Comm_rank(MPI_COMM_WORLD, &me));
  OK(MPI_Bcast(&value, 1, MPI_INT, 0, parent));
  CHECK(value == 4711);
  value = 100 + me;
  OK(MPI_Send(&value, 1, MPI_INT, me, 1, parent));
  OK(MPI_Recv(&value, 1, MPI_INT, me, 2, parent, MPI_STATUS_IGNORE));
  CHECK(value == 200 + me);
  OK(MPI_Intercomm_merge(parent, 1, &merged));
  OK(MPI_Allreduce(&value, &sum, 1, MPI_INT, MPI_SUM, merged));
  OK(MPI_Comm_free(&merged));
  OK(MPI_Comm_disconnect(&parent));
}

int main(int argc, char** argv) {
  MPI_Comm parent, children, merged;
  int me, size, value, sum = 0, codes[kChildren];
  OK(MPI_Init(&argc, &argv));
  OK(MPI_Comm_get_parent(&parent));
  if (parent != MPI_COMM_NULL) {
    child(parent);
    OK(MPI_Finalize());
    return 0;
  }
  OK(MPI_Comm_rank(MPI_COMM_WORLD, &me));
  OK(MPI_Comm_spawn(argv[0], MPI_ARGV_NULL, kChildren, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &children, codes));
  for (int k = 0; k < kChildren; k++) CHECK(codes[k] == MPI_SUCCESS);
  value = 4711;
  OK(MPI_Bcast(&value, 1, MPI_INT, me == 0 ? MPI_ROOT : MPI_PROC_NULL, children));
  OK(MPI_Recv(&value, 1, MPI_INT, me, 1, children, MPI_STATUS_IGNORE));
  CHECK(value == 100 + me);
  value = 200 + me;
  OK(MPI_Send(&value, 1, MPI_INT, me, 2, children));
  OK(MPI_Intercomm_merge(children, 0, &merged));
  OK(MPI_Comm_size(merged, &size));
  OK(MPI_Allreduce(&value, &sum, 1, MPI_INT, MPI_SUM, merged));
  OK(MPI_Comm_free(&merged));
  OK(MPI_Comm_disconnect(&children));
  OK(MPI_Finalize());
  if (me == 0) printf("spawn: %d ranks, sum %d\n", size, sum);
  return 0;
}
