// SPDX-License-Identifier: Apache-2.0
//
// MPI 4: partitioned communication, persistent collectives, sessions beside the world, calls with large
// counts, communicators from groups. For MPIs that have it.
#include "hostile.h"

static void partitioned(void) {
  enum { kParts = 8, kPart = 500 };
  static int mine[kParts * kPart], theirs[kParts * kPart];
  MPI_Request request[2];
  int flag, seen = 0;
  TRY(MPI_Psend_init(mine, kParts, kPart, MPI_INT, other, 1, MPI_COMM_WORLD, MPI_INFO_NULL, &request[0]));
  TRY(MPI_Precv_init(theirs, kParts, kPart, MPI_INT, other, 1, MPI_COMM_WORLD, MPI_INFO_NULL, &request[1]));
  for (int round = 0; round < 4; round++) {
    fill(mine, sizeof(mine), round);
    MPI_Startall(2, request);
    for (int k = 0; k < kParts; k++) MPI_Pready((k * 3 + round) % kParts, request[0]);
    for (int k = 0; round == 1 && k < kParts; k++) {
      for (flag = 0; !flag;) MPI_Parrived(request[1], k, &flag);
      seen++;
    }
    if (round == 2) MPI_Wait(&request[1], MPI_STATUS_IGNORE), MPI_Wait(&request[0], MPI_STATUS_IGNORE);
    else MPI_Waitall(2, request, MPI_STATUSES_IGNORE);
    say("%d: %u", round, sum_of(theirs, sizeof(theirs)));
  }
  MPI_Request_free(&request[0]), MPI_Request_free(&request[1]);
  say("%d", seen);
}

static void persistent_collectives(void) {
  MPI_Request request[3];
  int value = 0, sum = 0, mine = me, gathered[2];
  MPI_Bcast_init(&value, 1, MPI_INT, 0, MPI_COMM_WORLD, MPI_INFO_NULL, &request[0]);
  MPI_Allreduce_init(&mine, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, MPI_INFO_NULL, &request[1]);
  MPI_Allgather_init(&mine, 1, MPI_INT, gathered, 1, MPI_INT, MPI_COMM_WORLD, MPI_INFO_NULL, &request[2]);
  for (int round = 0; round < 6; round++) {
    value = me == 0 ? round * 5 : -1;
    mine = me + round;
    for (int k = 0; k < 3; k++) MPI_Start(&request[(k + round) % 3]), MPI_Waitall(3, request, MPI_STATUSES_IGNORE);
    say("%d %d %d", value, sum, gathered[1]);
  }
  for (int k = 0; k < 3; k++) MPI_Request_free(&request[k]);
}

#ifndef WITHOUT_LARGE_COUNTS  // Open MPI 5 has all of MPI 4 but these
static void large_counts(void) {
  static int mine[4000], theirs[8000];
  MPI_Count counts[2] = {2000, 2000}, elements;
  MPI_Aint displs[2] = {0, 3000};
  MPI_Status status = poisoned();
  MPI_Request request[2];
  MPI_Datatype type;
  fill(mine, sizeof(mine), me);
  TRY(MPI_Sendrecv_c(mine, 4000, MPI_INT, other, 1, theirs, 5000, MPI_INT, other, 1, MPI_COMM_WORLD, &status));
  MPI_Get_count_c(&status, MPI_INT, &elements);
  say("%ld %u", (long)elements, sum_of(theirs, 16000));
  TRY(MPI_Isend_c(mine, 100, MPI_INT, other, 2, MPI_COMM_WORLD, &request[0]));
  TRY(MPI_Irecv_c(theirs, 100, MPI_INT, other, 2, MPI_COMM_WORLD, &request[1]));
  MPI_Waitall(2, request, MPI_STATUSES_IGNORE);
  TRY(MPI_Allgatherv_c(mine, 2000, MPI_INT, theirs, counts, displs, MPI_INT, MPI_COMM_WORLD));
  TRY(MPI_Alltoallv_c(mine, counts, (MPI_Aint[]){0, 2000}, MPI_INT, theirs, counts, displs, MPI_INT, MPI_COMM_WORLD));
  TRY(MPI_Iallgatherv_c(mine, 2000, MPI_INT, theirs, counts, displs, MPI_INT, MPI_COMM_WORLD, &request[0]));
  MPI_Wait(&request[0], MPI_STATUS_IGNORE);
  TRY(MPI_Bcast_c(mine, 4000, MPI_INT, 0, MPI_COMM_WORLD));
  TRY(MPI_Allreduce_c(mine, theirs, 1000, MPI_INT, MPI_BXOR, MPI_COMM_WORLD));
  TRY(MPI_Type_vector_c(20, 3, 9, MPI_INT, &type));
  MPI_Type_commit(&type);
  TRY(MPI_Sendrecv_c(mine, 2, type, other, 3, theirs, 2, type, other, 3, MPI_COMM_WORLD, &status));
  MPI_Type_free(&type);
  say("%u %u", sum_of(mine, sizeof(mine)), sum_of(theirs, sizeof(theirs)));
  TRY(MPI_Send_c(mine, 0, MPI_INT, MPI_PROC_NULL, 0, MPI_COMM_WORLD));
  TRY(MPI_Send_c(mine, -1, MPI_INT, other, 0, MPI_COMM_WORLD));
}
#endif

static void isendrecv(void) {
  MPI_Request request;
  int mine[50], theirs[50];
  MPI_Status status = poisoned();
  fill(mine, sizeof(mine), me);
  for (int size = 0; size <= 50; size += 25) {
    memset(theirs, 0, sizeof(theirs));
    TRY(MPI_Isendrecv(mine, size, MPI_INT, other, 1, theirs, 50, MPI_INT, other, 1, MPI_COMM_WORLD, &request));
    TRY(MPI_Wait(&request, &status));
    say("%u", sum_of(theirs, sizeof(theirs)));
  }
  TRY(MPI_Isendrecv_replace(mine, 50, MPI_INT, other, 2, other, 2, MPI_COMM_WORLD, &request));
  TRY(MPI_Wait(&request, &status));
  say("%u", sum_of(mine, sizeof(mine)));
}

static void sessions(void) {
  MPI_Session session;
  MPI_Group group;
  MPI_Comm comm;
  int sum = 0, number;
  for (int k = 0; k < 3; k++) {
    TRY(MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, &session));
    MPI_Session_get_num_psets(session, MPI_INFO_NULL, &number);
    TRY(MPI_Group_from_session_pset(session, "mpi://WORLD", &group));
    TRY(MPI_Comm_create_from_group(group, "hostile", MPI_INFO_NULL, MPI_ERRORS_RETURN, &comm));
    MPI_Allreduce(&k, &sum, 1, MPI_INT, MPI_SUM, comm);
    say("%d %d", number > 0, sum);
    MPI_Comm_free(&comm), MPI_Group_free(&group);
    TRY(MPI_Session_finalize(&session));
  }
}

static const struct Case kCases[] = {CASE(partitioned), CASE(persistent_collectives), CASE(isendrecv), CASE(sessions),
#ifndef WITHOUT_LARGE_COUNTS
  CASE(large_counts),
#endif
  {NULL, NULL}};

int main(int argc, char** argv) { return run_cases(argc, argv, kCases, MPI_THREAD_MULTIPLE); }
