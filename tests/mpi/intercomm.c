// SPDX-License-Identifier: Apache-2.0
//
// Intercommunicators: creation, point-to-point and collectives across, MPI_ROOT and MPI_PROC_NULL roots, merge,
// duplicates.
//
// ranks: 2
// calls: MPI_Intercomm_create=1 MPI_Intercomm_merge=1 MPI_Comm_dup=1 MPI_Comm_split=1 MPI_Sendrecv=1 MPI_Bcast=2
// calls: MPI_Barrier=1 MPI_Allreduce=2 MPI_Gather=1 MPI_Scatter=1 MPI_Allgather=1 MPI_Alltoall=1 MPI_Reduce=1
// calls: MPI_Ibarrier=1 MPI_Iallgather=1 MPI_Comm_free=4 MPI_Comm_test_inter=2 MPI_Comm_remote_size=1
#include <mpi.h>

#include "check.h"

int main(int argc, char** argv) {
  MPI_Comm half, inter, copy, merged;
  MPI_Request requests[2];
  int me, flag, count, value, other = -1, rank;
  OK(MPI_Init(&argc, &argv));
  OK(MPI_Comm_rank(MPI_COMM_WORLD, &me));
  value = 11 * (me + 1);
  OK(MPI_Comm_split(MPI_COMM_WORLD, me, 0, &half));
  OK(MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, 1 - me, 99, &inter));
  OK(MPI_Comm_test_inter(inter, &flag));
  CHECK(flag);
  OK(MPI_Comm_remote_size(inter, &count));
  CHECK(count == 1);
  OK(MPI_Sendrecv(&value, 1, MPI_INT, 0, 5, &other, 1, MPI_INT, 0, 5, inter, MPI_STATUS_IGNORE));
  CHECK(other == 33 - value);
  OK(MPI_Barrier(inter));
  for (int root = 0; root < 2; root++) {
    other = root == me ? 1000 + me : -1;
    OK(MPI_Bcast(&other, 1, MPI_INT, root == me ? MPI_ROOT : 0, inter));
    CHECK(other == 1000 + root);
  }
  OK(MPI_Allreduce(&value, &other, 1, MPI_INT, MPI_SUM, inter));
  CHECK(other == 33 - value);
  OK(MPI_Reduce(&value, &other, 1, MPI_INT, MPI_SUM, me == 0 ? MPI_ROOT : 0, inter));
  if (me == 0) CHECK(other == 22);
  OK(MPI_Gather(&value, 1, MPI_INT, &other, 1, MPI_INT, me == 0 ? MPI_ROOT : 0, inter));
  OK(MPI_Scatter(&value, 1, MPI_INT, &other, 1, MPI_INT, me == 0 ? MPI_ROOT : 0, inter));
  if (me == 1) CHECK(other == 11);
  OK(MPI_Allgather(&value, 1, MPI_INT, &other, 1, MPI_INT, inter));
  CHECK(other == 33 - value);
  OK(MPI_Alltoall(&value, 1, MPI_INT, &other, 1, MPI_INT, inter));
  CHECK(other == 33 - value);
  OK(MPI_Comm_dup(inter, &copy));
  OK(MPI_Ibarrier(copy, &requests[0]));
  OK(MPI_Iallgather(&value, 1, MPI_INT, &other, 1, MPI_INT, copy, &requests[1]));
  OK(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE));
  CHECK(other == 33 - value);
  OK(MPI_Comm_free(&copy));
  OK(MPI_Intercomm_merge(inter, me == 0, &merged));  // the high group comes second
  OK(MPI_Comm_test_inter(merged, &flag));
  CHECK(!flag);
  OK(MPI_Comm_rank(merged, &rank));
  CHECK(rank == 1 - me);
  OK(MPI_Allreduce(&value, &other, 1, MPI_INT, MPI_SUM, merged));
  CHECK(other == 33);
  OK(MPI_Comm_free(&merged));
  OK(MPI_Comm_free(&inter));
  OK(MPI_Comm_free(&half));
  OK(MPI_Finalize());
  if (me == 0) printf("intercomm %d\n", other);
  return 0;
}
