// SPDX-License-Identifier: Apache-2.0
//
// Jobs that survive the death of a rank (ULFM), where the MPI has it: revoke, shrink, agree, acknowledge, and go on among
// those that are left; one case a process, four ranks, of which the last or the last two die. Not on MPICH 4.0.2: it has these
// functions, but a death ends the job and MPIX_Comm_revoke is not told to the others, natively.
#include "hostile.h"

#if defined(OPEN_MPI) && __has_include(<mpi-ext.h>)
#include <mpi-ext.h>
#endif

#ifdef OMPI_HAVE_MPI_EXT_FTMPI

#include <signal.h>

static int size;
static MPI_Comm world;

static int is_failure(int code) {
  int class = class_of(code);
  return class == MPIX_ERR_PROC_FAILED || class == MPIX_ERR_PROC_FAILED_PENDING || class == MPIX_ERR_REVOKED;
}

/// Works until somebody is found dead, `rounds` at most.
static void traffic(MPI_Comm comm, int rounds, const char* what) {
  enum { kLarge = 20000 };
  static int mine[kLarge], theirs[kLarge];
  int rank, ranks, code = 0, done = 0, right = 0;
  MPI_Comm_rank(comm, &rank), MPI_Comm_size(comm, &ranks);
  for (int k = 0; k < rounds && !code; k++) {
    int sum = 0, to = (rank + 1) % ranks, from = (rank + ranks - 1) % ranks, length = k % 4 ? 100 : kLarge;
    fill(mine, sizeof(mine), k + rank);
    code = MPI_Sendrecv(mine, length, MPI_INT, to, 1, theirs, length, MPI_INT, from, 1, comm, MPI_STATUS_IGNORE);
    if (!code) code = MPI_Allreduce(&k, &sum, 1, MPI_INT, MPI_SUM, comm);
    if (code) break;
    fill(mine, sizeof(mine), k + from);
    right += memcmp(mine, theirs, length * sizeof(int)) == 0 && sum == k * ranks;
    done++;
  }
  say("%s: %d of %d, right %d, %s", what, done, rounds, right == done, !code ? "no failure" : is_failure(code) ? "a failure" : "?");
}

static void start(void) {
  MPI_Init(NULL, NULL);
  MPI_Comm_rank(MPI_COMM_WORLD, &me), MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
  MPI_Comm_dup(MPI_COMM_WORLD, &world);
  traffic(world, 10, "all");
  MPI_Barrier(world);
}
static void die(int how) {
  signal(SIGSEGV, SIG_DFL);
  if (how == 0) raise(SIGKILL);
  if (how == 1) raise(SIGSEGV);
  _exit(7);
}

/// What programs do after a failure: nobody stays behind, and a communicator of those that are left.
static void repair(void) {
  MPI_Comm smaller;
  int flag = 1, left;
  MPIX_Comm_revoke(world);
  say("revoked: %s", is_failure(MPI_Barrier(world)) ? "told" : "not told");
  if (MPIX_Comm_shrink(world, &smaller)) say("no shrink");
  MPI_Comm_set_errhandler(smaller, MPI_ERRORS_RETURN);
  MPI_Comm_size(smaller, &left);
  say("left %d", left);
  MPIX_Comm_agree(smaller, &flag);
  say("agreed %d", flag);
  MPI_Comm_free(&world);
  world = smaller;
  traffic(world, 10, "repaired");
}

/// Without MPI_Finalize, in which Open MPI 5.0.7 hangs natively after a death in every third run or so.
static void finish(void) {
  MPI_Barrier(world);
  exit(0);
}

static void dies_under_way(int how, int dead) {
  start();
  if (me >= size - dead) die(how);
  int value = me, sum, code = 0;
  for (int k = 0; k < 10000000 && !code; k++) code = MPI_Allreduce(&value, &sum, 1, MPI_INT, MPI_SUM, world);
  say("noticed %d", is_failure(code));
  repair();
  finish();
}
static void killed(void) { dies_under_way(0, 1); }
static void crashed(void) { dies_under_way(1, 1); }
static void exited(void) { dies_under_way(2, 1); }
static void two_killed(void) { dies_under_way(0, 2); }

// Who waits for a message of the dead is told so, and asks who it was.
static void acknowledged(void) {
  MPI_Group group, all;
  int dead, place = -1, value = 0, none = 0;
  start();
  if (me == size - 1) die(0);
  say("receive: %d", is_failure(MPI_Recv(&value, 1, MPI_INT, size - 1, 5, world, MPI_STATUS_IGNORE)));
  TRY(MPIX_Comm_failure_ack(world));
  TRY(MPIX_Comm_failure_get_acked(world, &group));
  MPI_Group_size(group, &dead);
  MPI_Comm_group(world, &all);
  if (dead > 0) MPI_Group_translate_ranks(group, 1, &none, all, &place);
  say("%d dead, rank %d", dead, place);
  MPI_Group_free(&group), MPI_Group_free(&all);
  int flag = me != 1;
  say("agreement %d", class_of(MPIX_Comm_agree(world, &flag)));
  say("agreed on %d", flag);
  repair();
  finish();
}

// Requests under way when the partner dies.
static void pending(void) {
  static int large[100000];
  MPI_Request request[3] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL, MPI_REQUEST_NULL};
  MPI_Status status[3];
  int failed = 0;
  start();
  if (me == size - 1) die(0);
  MPI_Irecv(large, 100, MPI_INT, size - 1, 6, world, &request[0]);
  MPI_Irecv(large + 500, 100, MPI_INT, size - 1, 7, world, &request[1]);
  for (int k = 0; k < 2; k++) failed += is_failure(MPI_Wait(&request[k], &status[k]));
  say("failed %d", failed);
  repair();
  finish();
}

// A communicator that is never made: the handle stays what it was, which is nothing that may be looked at.
static void duplicates(void) {
  MPI_Comm copies[2];
  MPI_Request request[2] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL};
  start();
  if (me == size - 1) die(0);
  memset(copies, 0x5a, sizeof(copies));
  int code = MPI_Comm_idup(world, &copies[0], &request[0]);
  if (!code) code = MPI_Wait(&request[0], MPI_STATUS_IGNORE);
  say("one: %d", is_failure(code));
  repair();
  MPI_Comm_idup(world, &copies[1], &request[1]);
  say("repaired: %d", MPI_Waitall(2, request, MPI_STATUSES_IGNORE));
  traffic(copies[1], 10, "duplicate");
  finish();
}

// An agreement while messages go on.
static void agreed_later(void) {
  MPI_Request request;
  MPI_Status status;
  int flag = me == 1 ? 2 : 3, done = 0;
  start();
  say("started: %d", MPIX_Comm_iagree(world, &flag, &request));
  traffic(world, 10, "beside");
  while (!done) TRY(MPI_Test(&request, &done, &status));
  say("agreed on %d", flag);
  flag = 1;
  TRY(MPIX_Comm_agree(world, &flag));
  if (me == size - 1) die(0);
  say("failed: %d", is_failure(MPI_Recv(&done, 1, MPI_INT, size - 1, 5, world, MPI_STATUS_IGNORE)));
  flag = 5;
  say("agreement %d", is_failure(MPIX_Comm_agree(world, &flag)));
  repair();
  finish();
}

// Sums that a library might make in another way than MPI does.
static void sums_of_reals(void) {
  double value[64], sum[64];
  int code = 0, done = 0;
  start();
  for (int k = 0; k < 64; k++) value[k] = me + k;
  for (int k = 0; k < 10000000 && !code; k++) {
    if (me == size - 1 && k == 20) die(0);
    code = k % 3 == 0 ? MPI_Allreduce(value, sum, 64, MPI_DOUBLE, MPI_SUM, world)
           : k % 3 == 1 ? MPI_Reduce(value, sum, 64, MPI_DOUBLE, MPI_SUM, 0, world)
                        : MPI_Scan(value, sum, 64, MPI_DOUBLE, MPI_SUM, world);
    done += !code;
  }
  say("noticed %d, after twenty: %d", is_failure(code), done >= 20);
  repair();
  MPI_Allreduce(value, sum, 64, MPI_DOUBLE, MPI_SUM, world);
  say("sum %g", sum[1]);
  finish();
}

static void revoked_alone(void) {  // nobody dies
  int flag = -1;
  start();
  if (me == 0) MPIX_Comm_revoke(world);
  int code = 0;
  for (int k = 0; k < 10000000 && !code; k++) code = MPI_Barrier(world);
  MPIX_Comm_is_revoked(world, &flag);
  say("told %d, is revoked %d", is_failure(code), flag);
  repair();
  finish();
}

static const struct Case kCases[] = {CASE(killed), CASE(crashed), CASE(exited), CASE(two_killed), CASE(acknowledged),
  CASE(pending), CASE(duplicates), CASE(agreed_later),
  CASE(sums_of_reals), CASE(revoked_alone), {NULL, NULL}};

int main(int argc, char** argv) {
  if (argc != 2) return list_cases(kCases), 0;
  const struct Case* one = find_case(kCases, argv[1]);
  case_name = one->name;
  one->run();
  return 0;
}

#else

int main(void) { return 0; }  // no case

#endif
