// SPDX-License-Identifier: Apache-2.0
//
// A program that knows only sessions: neither MPI_Init nor MPI_Finalize. Of Debian 12's MPIs, MPICH has them.
//
// ranks: 2
// calls: MPI_Init=0 MPI_Finalize=0 MPI_Session_init=1 MPI_Session_finalize=1 MPI_Allreduce=1 MPI_Comm_free=1
// calls: MPI_Sendrecv=1
#include <mpi.h>

#include "check.h"

int main(void) {
  MPI_Session session;
  MPI_Group group;
  MPI_Comm comm;
  int me, size, sum, theirs;
  OK(MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &session));
  OK(MPI_Group_from_session_pset(session, "mpi://WORLD", &group));
  OK(MPI_Comm_create_from_group(group, "sessions only", MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &comm));
  OK(MPI_Group_free(&group));
  OK(MPI_Comm_rank(comm, &me));
  OK(MPI_Comm_size(comm, &size));
  OK(MPI_Sendrecv(&me, 1, MPI_INT, 1 - me, 0, &theirs, 1, MPI_INT, 1 - me, 0, comm, MPI_STATUS_IGNORE));
  CHECK(size == 2 && theirs == 1 - me);
  OK(MPI_Allreduce(&me, &sum, 1, MPI_INT, MPI_SUM, comm));
  OK(MPI_Comm_free(&comm));
  OK(MPI_Session_finalize(&session));
  if (me == 0) printf("sessions %d\n", sum);
  return 0;
}
