// SPDX-License-Identifier: Apache-2.0
//
// Messages as loops make them, each kind again and again from the same places, so that they go the fast path where they
// may: what arrives, statuses, errors and requests are verified here, and the checksum module must find all of it
// right. Between them come calls that go other ways: wildcards, tests, persistent and cancelled requests, types with
// holes. Arguments: turns, "blind" when a tool below damages data.
//
// ranks: 2

#include <mpi.h>
#include <stdint.h>
#include <string.h>

#include "check.h"

enum { kMost = 10240, kWindow = 64, kSizes = 9, kAlike = 4 };  // kAlike: turns with the same envelopes
static const int kSize[kSizes] = {1, 0, 2, 5, 16, 75, 1250, 3, 10240};  // ints

static int out[kMost], in[kMost], many_out[kWindow * 16], many_in[kWindow * 16];
static int me, other, blind;

static int item(int turn, int kind, int from, int i) { return turn * 1000003 + kind * 10007 + from * 101 + i; }

static void fill(int* at, int count, int turn, int kind) {
  for (int i = 0; i < count; i++) at[i] = item(turn, kind, me, i);
}

static void same_at(int line, const int* at, int count, int turn, int kind, int from) {
  for (int i = 0; i < count && !blind; i++)
    if (at[i] != item(turn, kind, from, i)) check_failed("what arrived is what was given", __FILE__, line);
}
#define same(...) same_at(__LINE__, __VA_ARGS__)

static void status_at(int line, const MPI_Status* status, int source, int tag, int count) {
  int got;
  MPI_Get_count(status, MPI_INT, &got);
  if (status->MPI_SOURCE != source || status->MPI_TAG != tag || got != count)
    check_failed("the status is that of the message", __FILE__, line);
}
#define said(...) status_at(__LINE__, __VA_ARGS__)

/// There and back, the status wanted or not; the receive has more room than is needed.
static void ping_pong(int turn, MPI_Comm comm) {
  const int count = kSize[turn / kAlike % kSizes], tag = turn / kAlike % 3;
  MPI_Status status;
  fill(out, count, turn, 1);
  if (me == 0) OK(MPI_Send(out, count, MPI_INT, 1, tag, comm));
  OK(MPI_Recv(in, kMost, MPI_INT, other, tag, comm, turn % 2 ? &status : MPI_STATUS_IGNORE));
  if (me == 1) OK(MPI_Send(out, count, MPI_INT, 0, tag, comm));
  same(in, count, turn, 1, other);
  if (turn % 2) said(&status, other, tag, count);
}

static void synchronous(int turn, MPI_Comm comm) {
  fill(out, 7, turn, 2);
  if (me == 0) OK(MPI_Ssend(out, 7, MPI_INT, 1, 4, comm));
  else OK(MPI_Recv(in, 7, MPI_INT, 0, 4, comm, MPI_STATUS_IGNORE));
  if (me == 1) same(in, 7, turn, 2, 0);
}

/// Both directions at a time, completed in one call, the statuses wanted or not.
static void window(int turn, MPI_Comm comm) {
  const int count = 1 + turn / kAlike % 16;
  static MPI_Request requests[2 * kWindow];
  static MPI_Status statuses[2 * kWindow];
  // Together more than one wait keeps, or fewer.
  const int messages = turn / kAlike % 4 == 3 ? kWindow : 1 + turn / kAlike % 20;
  for (int k = 0; k < messages; k++) {
    fill(many_out + 16 * k, count, turn, 10 + k);
    OK(MPI_Irecv(many_in + 16 * k, 16, MPI_INT, other, k % 2, comm, &requests[k]));
  }
  for (int k = 0; k < messages; k++)
    OK(MPI_Isend(many_out + 16 * k, count, MPI_INT, other, k % 2, comm, &requests[messages + k]));
  OK(MPI_Waitall(2 * messages, requests, turn % 2 ? statuses : MPI_STATUSES_IGNORE));
  for (int k = 0; k < messages; k++) {
    same(many_in + 16 * k, count, turn, 10 + k, other);
    if (turn % 2) said(&statuses[k], other, k % 2, count);
    CHECK(requests[k] == MPI_REQUEST_NULL && requests[messages + k] == MPI_REQUEST_NULL);
  }
}

/// One request each, the receives completed in the reverse order of their posting.
static void singles(int turn, MPI_Comm comm) {
  MPI_Request receives[3], send;
  MPI_Status status;
  for (int k = 0; k < 3; k++) OK(MPI_Irecv(many_in + 16 * k, 16, MPI_INT, other, 5, comm, &receives[k]));
  for (int k = 0; k < 3; k++) {
    fill(many_out, 4 + k, turn, 20 + k);
    OK(MPI_Isend(many_out, 4 + k, MPI_INT, other, 5, comm, &send));
    OK(MPI_Wait(&send, MPI_STATUS_IGNORE));
  }
  for (int k = 2; k >= 0; k--) {
    OK(MPI_Wait(&receives[k], turn % 2 ? &status : MPI_STATUS_IGNORE));
    same(many_in + 16 * k, 4 + k, turn, 20 + k, other);
    if (turn % 2) said(&status, other, 5, 4 + k);
  }
}

static void exchange(int turn, MPI_Comm comm) {
  const int count = kSize[turn / kAlike % kSizes];
  MPI_Status status;
  fill(out, count, turn, 30);
  OK(MPI_Sendrecv(out, count, MPI_INT, other, 6, in, kMost, MPI_INT, other, 6, comm,
                  turn % 2 ? &status : MPI_STATUS_IGNORE));
  same(in, count, turn, 30, other);
  if (turn % 2) said(&status, other, 6, count);
  // The ends of a line.
  const int up = me == 0 ? other : MPI_PROC_NULL, down = me == 0 ? MPI_PROC_NULL : other;
  OK(MPI_Sendrecv(out, count, MPI_INT, up, 7, in, kMost, MPI_INT, down, 7, comm, &status));
  if (me == 1) same(in, count, turn, 30, 0);
  fill(in, count, turn, 31);
  OK(MPI_Sendrecv_replace(in, count, MPI_INT, other, 8, other, 8, comm, MPI_STATUS_IGNORE));
  same(in, count, turn, 31, other);
}

/// To itself, and in a type with holes and one without.
static void types(int turn, MPI_Comm comm, MPI_Datatype pair, MPI_Datatype strided) {
  MPI_Request requests[2];
  fill(out, 16, turn, 40);
  OK(MPI_Irecv(in, 2, pair, me, 9, comm, &requests[0]));
  OK(MPI_Isend(out, 4, MPI_INT, me, 9, comm, &requests[1]));
  OK(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE));
  same(in, 4, turn, 40, me);
  memset(in, 0, 16 * sizeof(int));
  OK(MPI_Sendrecv(out, 3, pair, other, 10, in, 2, strided, other, 10, comm, MPI_STATUS_IGNORE));
  for (int i = 0; i < 6; i++) CHECK(blind || in[i / 3 * 5 + i % 3 * 2] == item(turn, 40, other, i));
}

/// What has a tag or a source of its own, is tested for, waited for one by one, freed or cancelled.
static void others(int turn, MPI_Comm comm) {
  MPI_Request requests[3];
  MPI_Status status;
  int flag = 0, index;
  fill(out, 3, turn, 50);
  OK(MPI_Irecv(in, 3, MPI_INT, MPI_ANY_SOURCE, 11, comm, &requests[0]));
  OK(MPI_Isend(out, 3, MPI_INT, other, 11, comm, &requests[1]));
  OK(MPI_Wait(&requests[1], MPI_STATUS_IGNORE));
  OK(MPI_Wait(&requests[0], &status));
  said(&status, other, 11, 3);
  same(in, 3, turn, 50, other);
  OK(MPI_Irecv(in, 3, MPI_INT, other, 12, comm, &requests[0]));
  OK(MPI_Isend(out, 3, MPI_INT, other, 12, comm, &requests[1]));
  while (!flag) OK(MPI_Test(&requests[0], &flag, MPI_STATUS_IGNORE));
  OK(MPI_Wait(&requests[1], MPI_STATUS_IGNORE));
  same(in, 3, turn, 50, other);
  OK(MPI_Irecv(in, 3, MPI_INT, other, 13, comm, &requests[0]));
  OK(MPI_Isend(out, 3, MPI_INT, other, 13, comm, &requests[1]));
  for (int k = 0; k < 2; k++) OK(MPI_Waitany(2, requests, &index, MPI_STATUS_IGNORE));
  same(in, 3, turn, 50, other);
  OK(MPI_Isend(out, 3, MPI_INT, other, 14, comm, &requests[0]));
  OK(MPI_Request_free(&requests[0]));
  for (flag = 0; !flag;) OK(MPI_Iprobe(other, 14, comm, &flag, MPI_STATUS_IGNORE));
  OK(MPI_Recv(in, 3, MPI_INT, other, 14, comm, MPI_STATUS_IGNORE));
  same(in, 3, turn, 50, other);
  OK(MPI_Irecv(in, 3, MPI_INT, other, 99, comm, &requests[0]));  // nobody sends that
  OK(MPI_Cancel(&requests[0]));
  OK(MPI_Wait(&requests[0], &status));
  OK(MPI_Test_cancelled(&status, &flag));
  CHECK(flag);
  OK(MPI_Sendrecv(out, 1, MPI_INT, other, 15, in, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, comm, &status));
  said(&status, other, 15, 1);
}

/// A receive that is too short is an error like any other, at the receiver alone.
static void truncated(int turn, MPI_Comm comm) {
  fill(out, 8, turn, 60);
  const int room = turn % 4 == 2 ? 4 : 8;
  int result = 0;
  if (me == 0) OK(MPI_Send(out, 8, MPI_INT, 1, 16, comm));
  else result = MPI_Recv(in, room, MPI_INT, 0, 16, comm, MPI_STATUS_IGNORE);
  int class = MPI_SUCCESS;
  if (result != MPI_SUCCESS) MPI_Error_class(result, &class);
  CHECK(class == (me == 1 && room == 4 ? MPI_ERR_TRUNCATE : MPI_SUCCESS));
}

int main(int argc, char** argv) {
  const int turns = argc > 1 ? atoi(argv[1]) : 64;
  blind = argc > 2 && strcmp(argv[2], "blind") == 0;
  MPI_Comm again, errors;
  MPI_Datatype pair, strided;
  MPI_Request persistent[2];
  OK(MPI_Init(&argc, &argv));
  OK(MPI_Comm_rank(MPI_COMM_WORLD, &me));
  other = 1 - me;
  OK(MPI_Comm_dup(MPI_COMM_WORLD, &again));
  OK(MPI_Comm_dup(MPI_COMM_WORLD, &errors));
  OK(MPI_Comm_set_errhandler(errors, MPI_ERRORS_RETURN));
  OK(MPI_Type_contiguous(2, MPI_INT, &pair));
  OK(MPI_Type_commit(&pair));
  OK(MPI_Type_vector(3, 1, 2, MPI_INT, &strided));
  OK(MPI_Type_commit(&strided));
  OK(MPI_Recv_init(many_in, 5, MPI_INT, other, 17, again, &persistent[0]));
  OK(MPI_Send_init(many_out, 5, MPI_INT, other, 17, again, &persistent[1]));
  for (int turn = 0; turn < turns; turn++) {
    MPI_Comm comm = turn / kAlike % 5 == 4 ? again : MPI_COMM_WORLD;
    ping_pong(turn, comm);
    synchronous(turn, comm);
    window(turn, comm);
    singles(turn, comm);
    exchange(turn, comm);
    types(turn, comm, pair, strided);
    others(turn, comm);
    if (!blind) truncated(turn, errors);
    fill(many_out, 5, turn, 70);
    OK(MPI_Startall(2, persistent));
    OK(MPI_Waitall(2, persistent, MPI_STATUSES_IGNORE));
    same(many_in, 5, turn, 70, other);
  }
  OK(MPI_Request_free(&persistent[0]));
  OK(MPI_Request_free(&persistent[1]));
  OK(MPI_Type_free(&pair));
  OK(MPI_Type_free(&strided));
  OK(MPI_Comm_free(&again));
  OK(MPI_Comm_free(&errors));
  if (me == 0) printf("message_checks\n");
  OK(MPI_Finalize());
  return 0;
}
