// SPDX-License-Identifier: Apache-2.0
//
// Programs that touch buffers while these are MPI's, and their corrected twins. Two ranks. Usage: touched CASE
// wrong|right Whatever is decided by time elsewhere is decided by messages here: a message of tag 8 says "mine is
// there", of tag 9 "go on".
#include <mpi.h>
#include <string.h>

#include "check.h"

enum { kSmall = 1000, kLarge = 100000, kHuge = 600000 };
static int data[kHuge], other[kHuge], rank, wrong;
static MPI_Request request;

static void say(int tag) { MPI_Send(NULL, 0, MPI_INT, 1 - rank, tag, MPI_COMM_WORLD); }
static void hear(int tag) { MPI_Recv(NULL, 0, MPI_INT, 1 - rank, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE); }
static void done(void) { MPI_Wait(&request, MPI_STATUS_IGNORE); }
static int is(const char* name, const char* wanted) { return strcmp(name, wanted) == 0; }

/// Rank 0 sends `sent` of the `count` numbers that rank 1 has room for. early: rank 1 stores before the message is
/// sent.
static void receive(const char* how, int count, int sent, int early, int place, int value) {
  if (rank == 0) {
    if (early) hear(9);
    MPI_Send(data, sent, MPI_INT, 1, 1, MPI_COMM_WORLD);
    if (!early) say(8);
    return;
  }
  MPI_Message message;
  MPI_Datatype strided;
  MPI_Type_vector(count / 2, 1, 2, MPI_INT, &strided);
  MPI_Type_commit(&strided);
  if (is(how, "matched"))
    MPI_Mprobe(0, 1, MPI_COMM_WORLD, &message, MPI_STATUS_IGNORE), MPI_Imrecv(data, count, MPI_INT, &message, &request);
  else if (is(how, "persistent"))
    MPI_Recv_init(data, count, MPI_INT, 0, 1, MPI_COMM_WORLD, &request), MPI_Start(&request);
  else if (is(how, "wildcard")) MPI_Irecv(data, count, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &request);
  else if (is(how, "strided") || is(how, "gap")) MPI_Irecv(data, 1, strided, 0, 1, MPI_COMM_WORLD, &request);
  else MPI_Irecv(data, count, MPI_INT, 0, 1, MPI_COMM_WORLD, &request);
  if (!early) hear(8);
  if (wrong && place >= 0) data[place] = value;
  if (is(how, "gap")) data[1] = 7;
  if (early) say(9);
  int flag = 0;
  if (is(how, "polled"))
    while (!flag) MPI_Test(&request, &flag, MPI_STATUS_IGNORE);
  else if (is(how, "looked at"))  // the program is told that the operation is complete: the buffer is its own
    for (MPI_Request_get_status(request, &flag, MPI_STATUS_IGNORE); !flag;)
      MPI_Request_get_status(request, &flag, MPI_STATUS_IGNORE);
  if (is(how, "looked at")) data[2] = 4711;
  if (request != MPI_REQUEST_NULL) done();
  if (!wrong) data[place < 0 ? 0 : place] = value;
  if (request != MPI_REQUEST_NULL) MPI_Request_free(&request);
  MPI_Type_free(&strided);
}

static void send(const char* how, int count) {
  if (rank == 1) {
    MPI_Recv(data, count, MPI_INT, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    return;
  }
  static char attached[8 * kSmall];
  if (is(how, "synchronous")) MPI_Issend(data, count, MPI_INT, 1, 1, MPI_COMM_WORLD, &request);
  else if (is(how, "persistent"))
    MPI_Send_init(data, count, MPI_INT, 1, 1, MPI_COMM_WORLD, &request), MPI_Start(&request);
  else if (is(how, "buffered")) {
    MPI_Buffer_attach(attached, sizeof(attached));
    MPI_Ibsend(data, count, MPI_INT, 1, 1, MPI_COMM_WORLD, &request);
  } else MPI_Isend(data, count, MPI_INT, 1, 1, MPI_COMM_WORLD, &request);
  if (wrong) data[5] = 4711;
  done();
  if (!wrong) data[5] = 4711;
  if (request != MPI_REQUEST_NULL) MPI_Request_free(&request);
}

/// `store`: which of the two buffers, on which rank.
static void collective(const char* name, int of_result, int on_rank, int count) {
  int* buffer = of_result ? other : data;
  if (is(name, "iallreduce")) MPI_Iallreduce(data, other, count, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &request);
  else if (is(name, "ibcast")) MPI_Ibcast(other, count, MPI_INT, 0, MPI_COMM_WORLD, &request), buffer = other;
  else if (is(name, "igather"))
    MPI_Igather(data, count / 2, MPI_INT, other, count / 2, MPI_INT, 0, MPI_COMM_WORLD, &request);
  else if (is(name, "ialltoall"))
    MPI_Ialltoall(data, count / 2, MPI_INT, other, count / 2, MPI_INT, MPI_COMM_WORLD, &request);
  else MPI_Iscatter(data, count / 2, MPI_INT, other, count / 2, MPI_INT, 0, MPI_COMM_WORLD, &request);
  if (wrong && rank == on_rank) buffer[3] = 4711;
  done();
  if (!wrong && rank == on_rank) buffer[3] = 4711;
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  CHECK(argc == 3);
  const char* name = argv[1];
  wrong = is(argv[2], "wrong");
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  for (int i = 0; i < kHuge; ++i) data[i] = rank == 0 ? i : -i - 1;
  if (is(name, "receive-lost")) receive("", kSmall, kSmall, 1, 7, 4711);
  else if (is(name, "receive-lost-large")) receive("", kLarge, kLarge, 1, 7, 4711);
  else if (is(name, "receive-lost-last")) receive("", kSmall, kSmall, 1, kSmall - 1, 4711);
  else if (is(name, "receive-landed")) receive("", kSmall, kSmall, 0, 7, 4711);
  else if (is(name, "receive-landed-polled")) receive("polled", kSmall, kSmall, 0, 7, 4711);
  else if (is(name, "receive-landed-wildcard")) receive("wildcard", kSmall, kSmall, 0, 7, 4711);
  else if (is(name, "receive-landed-large")) receive("", kLarge, kLarge, 0, 7, 4711);
  else if (is(name, "receive-behind")) receive("", kSmall, kSmall / 2, 0, kSmall - 1, 4711);
  else if (is(name, "receive-behind-large")) receive("", kLarge, kLarge / 2, 1, kLarge - 1, 4711);
  else if (is(name, "receive-persistent")) receive("persistent", kSmall, kSmall, 1, 7, 4711);
  else if (is(name, "receive-persistent-landed")) receive("persistent", kSmall, kSmall, 0, 7, 4711);
  else if (is(name, "receive-matched")) receive("matched", kSmall, kSmall, 0, 7, 4711);
  else if (is(name, "receive-wildcard")) receive("wildcard", kSmall, kSmall, 1, 7, 4711);
  else if (is(name, "receive-strided")) receive("strided", kSmall, kSmall / 2, 1, 8, 4711);
  else if (is(name, "receive-strided-landed")) receive("strided", kSmall, kSmall / 2, 0, 8, 4711);
  else if (is(name, "receive-polled")) receive("polled", kSmall, kSmall, 1, 7, 4711);
  else if (is(name, "receive-same-value")) receive("", kSmall, kSmall, 1, 7, 7);  // what will come
  else if (is(name, "receive-huge-behind")) receive("", kHuge, kHuge, 1, kHuge - 1, 4711);
  else if (is(name, "receive-read")) receive("", kSmall, kSmall, 1, -1, wrong && rank == 1 ? data[7] : 0);
  else if (is(name, "gap")) wrong = 0, receive("gap", kSmall, kSmall / 2, 0, 8, 4711);
  else if (is(name, "told-by-get-status")) wrong = 0, receive("looked at", kSmall, kSmall, 0, 8, 4711);
  else if (is(name, "send")) send("", kSmall);
  else if (is(name, "send-large")) send("", kLarge);
  else if (is(name, "send-huge")) send("", kHuge);
  else if (is(name, "send-synchronous")) send("synchronous", kSmall);
  else if (is(name, "send-synchronous-large")) send("synchronous", kLarge);
  else if (is(name, "send-persistent")) send("persistent", kSmall);
  else if (is(name, "send-persistent-large")) send("persistent", kLarge);
  else if (is(name, "send-buffered")) send("buffered", kSmall);
  else if (is(name, "iallreduce-given")) collective("iallreduce", 0, 1, kLarge);
  else if (is(name, "iallreduce-result")) collective("iallreduce", 1, 1, kLarge);
  else if (is(name, "ibcast-root")) collective("ibcast", 1, 0, kLarge);
  else if (is(name, "ibcast-receiver")) collective("ibcast", 1, 1, kLarge);
  else if (is(name, "igather-given")) collective("igather", 0, 1, kLarge);
  else if (is(name, "ialltoall-given")) collective("ialltoall", 0, 1, kLarge);
  else if (is(name, "ialltoall-received")) collective("ialltoall", 1, 1, kLarge);
  else if (is(name, "iscatter-received")) collective("iscatter", 1, 1, kLarge);
  else CHECK(!"a case of that name");
  MPI_Finalize();
  return 0;
}
