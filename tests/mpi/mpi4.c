// SPDX-License-Identifier: Apache-2.0
//
// MPI 4.0, where the library has it (of Debian 12's, MPICH): partitioned communication, large counts, persistent
// collectives, isendrecv, and a communicator from a session beside the world.
//
// ranks: 2
// calls: MPI_Psend_init=1 MPI_Precv_init=0 MPI_Pready=6 MPI_Pready_range=1 MPI_Start=8 MPI_Send_c=2 MPI_Recv_c=2
// calls: MPI_Allreduce_c=1 MPI_Bcast_c=1 MPI_Type_contiguous_c=1 MPI_Type_size_c=1 MPI_Get_count_c=1
// calls: MPI_Allreduce_init=1 MPI_Bcast_init=1 MPI_Barrier_init=1 MPI_Isendrecv=1 MPI_Isendrecv_replace=1
// calls: MPI_Session_init=1 MPI_Session_finalize=1 MPI_Group_from_session_pset=1 MPI_Comm_create_from_group=1
// calls: MPI_Session_get_num_psets=1 MPI_Request_free=4
#include <mpi.h>

#include "check.h"

static int me, peer;

static void partitioned(void) {
  enum { kPartitions = 4, kPart = 500 };
  static double data[kPartitions * kPart];
  MPI_Request request;
  if (me == 0) {
    OK(MPI_Psend_init(data, kPartitions, kPart, MPI_DOUBLE, 1, 3, MPI_COMM_WORLD, MPI_INFO_NULL, &request));
  } else {
    OK(MPI_Precv_init(data, kPartitions, kPart, MPI_DOUBLE, 0, 3, MPI_COMM_WORLD, MPI_INFO_NULL, &request));
  }
  for (int round = 0; round < 2; round++) {
    OK(MPI_Start(&request));
    if (me == 0) {
      for (int i = 0; i < kPartitions * kPart; i++) data[i] = round + i;
      for (int k = 0; k < kPartitions - 2 * round; k++) OK(MPI_Pready(k, request));
      if (round == 1) OK(MPI_Pready_range(2, 3, request));
    } else {
      int flag = 0;
      while (!flag) OK(MPI_Parrived(request, 2, &flag));
    }
    OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    CHECK(data[3 * kPart] == round + 3 * kPart);
  }
  OK(MPI_Request_free(&request));
}

static void large_counts(void) {
  static int data[1000];
  MPI_Datatype type;
  MPI_Count size, count;
  MPI_Status status;
  for (int i = 0; i < 1000; i++) data[i] = me == 0 ? i : -1;
  OK(MPI_Bcast_c(data, 1000, MPI_INT, 0, MPI_COMM_WORLD));
  CHECK(data[999] == 999);
  OK(MPI_Type_contiguous_c(10, MPI_INT, &type));
  OK(MPI_Type_commit(&type));
  OK(MPI_Type_size_c(type, &size));
  CHECK(size == 40);
  for (int round = 0; round < 2; round++) {
    if (me == 0) OK(MPI_Send_c(data, 100, type, 1, 0, MPI_COMM_WORLD));
    OK(MPI_Recv_c(data, 100, type, peer, 0, MPI_COMM_WORLD, &status));
    if (me == 1) OK(MPI_Send_c(data, 100, type, 0, 0, MPI_COMM_WORLD));
  }
  OK(MPI_Get_count_c(&status, type, &count));
  CHECK(count == 100);
  OK(MPI_Type_free(&type));
  int mine = me + 1, sum;
  OK(MPI_Allreduce_c(&mine, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
  CHECK(sum == 3);
}

static void persistent_collectives(void) {
  MPI_Request requests[3];
  int mine = me + 1, sum = 0, value = 0;
  OK(MPI_Allreduce_init(&mine, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, MPI_INFO_NULL, &requests[0]));
  OK(MPI_Bcast_init(&value, 1, MPI_INT, 1, MPI_COMM_WORLD, MPI_INFO_NULL, &requests[1]));
  OK(MPI_Barrier_init(MPI_COMM_WORLD, MPI_INFO_NULL, &requests[2]));
  for (int round = 0; round < 2; round++) {
    value = me == 1 ? 50 + round : 0;
    mine = me + round;
    for (int k = 0; k < 3; k++) {
      OK(MPI_Start(&requests[k]));
      OK(MPI_Wait(&requests[k], MPI_STATUS_IGNORE));
    }
    CHECK(sum == 1 + 2 * round && value == 50 + round);
  }
  for (int k = 0; k < 3; k++) OK(MPI_Request_free(&requests[k]));
}

static void sendrecv(void) {
  MPI_Request requests[2];
  int mine = me, theirs = -1, both = 10 + me;
  OK(MPI_Isendrecv(&mine, 1, MPI_INT, peer, 0, &theirs, 1, MPI_INT, peer, 0, MPI_COMM_WORLD, &requests[0]));
  OK(MPI_Isendrecv_replace(&both, 1, MPI_INT, peer, 1, peer, 1, MPI_COMM_WORLD, &requests[1]));
  OK(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE));
  CHECK(theirs == peer && both == 10 + peer);
}

static void session(void) {
  MPI_Session session;
  MPI_Group group;
  MPI_Comm comm;
  int sets, mine = me + 1, sum;
  OK(MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &session));
  OK(MPI_Session_get_num_psets(session, MPI_INFO_NULL, &sets));
  CHECK(sets >= 2);
  OK(MPI_Group_from_session_pset(session, "mpi://WORLD", &group));
  OK(MPI_Comm_create_from_group(group, "a test", MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &comm));
  OK(MPI_Group_free(&group));
  OK(MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, comm));
  CHECK(sum == 3);
  OK(MPI_Comm_free(&comm));
  OK(MPI_Session_finalize(&session));
}

int main(int argc, char** argv) {
  OK(MPI_Init(&argc, &argv));
  OK(MPI_Comm_rank(MPI_COMM_WORLD, &me));
  peer = 1 - me;
  partitioned();
  large_counts();
  persistent_collectives();
  sendrecv();
  session();
  OK(MPI_Finalize());
  if (me == 0) printf("mpi4\n");
  return 0;
}
