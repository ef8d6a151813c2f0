// SPDX-License-Identifier: Apache-2.0
//
// Requests and messages: truncated, freed while active, cancelled, generalised, persistent, buffered, matched;
// statuses; memory that is overwritten or freed as early as MPI permits.
#include "hostile.h"

#include <pthread.h>

enum { kBig = 300000 };  // ints; beyond every eager limit
static int big[kBig], into[kBig];

static void truncated_to(int sent, int room, int how) {
  if (how >= 3 && how <= 5 && on_openmpi()) return;  // MPI_Waitall and the like then hang natively, in some runs
  MPI_Request request[2] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL};
  MPI_Status status[2] = {poisoned(), poisoned()};
  memset(into, 0, sizeof(into));
  fill(big, sizeof(big), 1);
  if (me == 0) {
    if (how == 6) MPI_Ssend(big, sent, MPI_INT, 1, how, MPI_COMM_WORLD);
    else MPI_Send(big, sent, MPI_INT, 1, how, MPI_COMM_WORLD);
  } else {
    int code = 0, index = -9, flag = 0, number = -9, indices[2] = {-9, -9};
    switch (how) {
      case 0: case 6: code = MPI_Recv(into, room, MPI_INT, 0, how, MPI_COMM_WORLD, status); break;
      case 1: MPI_Irecv(into, room, MPI_INT, 0, how, MPI_COMM_WORLD, request); code = MPI_Wait(request, status); break;
      case 2:
        MPI_Irecv(into, room, MPI_INT, 0, how, MPI_COMM_WORLD, request);
        while (!flag && !code) code = MPI_Test(request, &flag, status);
        break;
      case 3: MPI_Irecv(into, room, MPI_INT, 0, how, MPI_COMM_WORLD, request + 1); code = MPI_Waitall(2, request, status); break;
      case 4:
        MPI_Irecv(into, room, MPI_INT, 0, how, MPI_COMM_WORLD, request + 1);
        code = MPI_Waitany(2, request, &index, status);
        break;
      case 5:
        MPI_Irecv(into, room, MPI_INT, 0, how, MPI_COMM_WORLD, request + 1);
        code = MPI_Waitsome(2, request, &number, indices, status);
        break;
      case 7: code = MPI_Recv(into, room, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE); break;
    }
    // The status' fields after an error are the library's own affair; which request is gone is not.
    say("%d of %d, way %d: class %d, index %d, number %d, request %s", room, sent, how, class_of(code), index, number,
        request[0] == MPI_REQUEST_NULL && request[1] == MPI_REQUEST_NULL ? "null" : "left");
    say("the beginning: %u", sum_of(into, room / 2 * sizeof(int)));
    for (int k = 0; k < 2; k++) {
      if (request[k] != MPI_REQUEST_NULL) MPI_Request_free(request + k);
    }
  }
  meet();
}

static void truncation(void) {
  for (int how = 0; how < 8; how++) truncated_to(100, 50, how);
}
static void truncation_large(void) {
  for (int how = 0; how < 8; how++) truncated_to(kBig, 1000, how);
}
static void truncation_to_nothing(void) {
  for (int how = 0; how < 8; how++) truncated_to(100, 0, how);
}

static void truncation_others(void) {
  int mine[8] = {1, 2, 3, 4, 5, 6, 7, 8}, theirs[8] = {0}, flag = 0;
  MPI_Request request;
  MPI_Message message;
  MPI_Status status;
  say("sendrecv %d", class_of(MPI_Sendrecv(mine, 8, MPI_INT, other, 1, theirs, 3, MPI_INT, other, 1, MPI_COMM_WORLD, &status)));
  say("%d %d", theirs[0], theirs[3]);
  meet();
  MPI_Isend(mine, 8, MPI_INT, other, 2, MPI_COMM_WORLD, &request);
  MPI_Mprobe(other, 2, MPI_COMM_WORLD, &message, &status);
  say("mrecv %d", class_of(MPI_Mrecv(theirs, 3, MPI_INT, &message, &status)));
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  meet();
  MPI_Recv_init(theirs, 2, MPI_INT, other, 3, MPI_COMM_WORLD, &request);
  for (int k = 0; k < 3; k++) {
    MPI_Start(&request);
    meet();
    MPI_Send(mine, k == 1 ? 8 : 2, MPI_INT, other, 3, MPI_COMM_WORLD);
    flag = MPI_Wait(&request, &status);
    say("persistent %d: %d", k, class_of(flag));
  }
  MPI_Request_free(&request);
}

static void freed_active(void) {
  static volatile int late[64];
  MPI_Request request, persistent;
  int flag, token = 5;
  memset((void*)late, 0, sizeof(late));
  MPI_Irecv((void*)late, 64, MPI_INT, other, 21, MPI_COMM_WORLD, &request);
  TRY(MPI_Request_free(&request));
  say("null %d", request == MPI_REQUEST_NULL);
  meet();
  static int data[64];
  for (int k = 0; k < 64; k++) data[k] = k + me + 1;
  MPI_Isend(data, 64, MPI_INT, other, 21, MPI_COMM_WORLD, &request);
  TRY(MPI_Request_free(&request));
  while (late[63] == 0) MPI_Iprobe(MPI_ANY_SOURCE, 31000, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
  say("came %u", sum_of((void*)late, sizeof(late)));
  meet();
  MPI_Send_init(&token, 1, MPI_INT, other, 22, MPI_COMM_WORLD, &persistent);
  MPI_Start(&persistent);
  TRY(MPI_Request_free(&persistent));
  MPI_Recv(&data[0], 1, MPI_INT, other, 22, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  say("persistent %d", data[0]);
  MPI_Recv_init(&token, 1, MPI_INT, other, 23, MPI_COMM_WORLD, &persistent);
  TRY(MPI_Request_free(&persistent));
  meet();
}

static void freed_many(void) {
  enum { kMany = 2000 };
  static int data[kMany];
  MPI_Request request;
  for (int k = 0; k < kMany; k++) {
    data[k] = k;
    MPI_Isend(&data[k], 1, MPI_INT, other, 24, MPI_COMM_WORLD, &request);
    MPI_Request_free(&request);
  }
  long sum = 0;
  for (int k = 0, one; k < kMany; k++) {
    MPI_Recv(&one, 1, MPI_INT, other, 24, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    sum += (long)one * (k + 1);
  }
  say("%ld", sum);
  meet();
}

static void cancelled(void) {
  MPI_Request request[8], many[200];
  MPI_Status status;
  int data = 0, flag, index;
  for (int k = 0; k < 8; k++) MPI_Irecv(&data, 1, MPI_INT, k % 2 ? MPI_ANY_SOURCE : other, 30, MPI_COMM_WORLD, &request[k]);
  for (int k = 0; k < 8; k++) TRY(MPI_Cancel(&request[k]));
  MPI_Wait(&request[0], &status);
  MPI_Test_cancelled(&status, &flag);
  say("wait: %d", flag);
  while (MPI_Test(&request[1], &flag, &status), !flag) {}
  MPI_Test_cancelled(&status, &flag);
  say("test: %d", flag);
  MPI_Waitany(2, request + 2, &index, &status);
  MPI_Test_cancelled(&status, &flag);
  say("waitany: %d", flag);
  MPI_Waitall(5, request + 3, MPI_STATUSES_IGNORE);
  TRY(MPI_Waitall(8, request, MPI_STATUSES_IGNORE));
  meet();
  for (int k = 0; k < 200; k++) MPI_Irecv(&data, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_SELF, &many[k]);
  for (int k = 199; k >= 0; k--) MPI_Cancel(&many[k]);
  MPI_Waitall(200, many, MPI_STATUSES_IGNORE);
  MPI_Irecv(&data, 1, MPI_INT, other, 31, MPI_COMM_WORLD, request);
  MPI_Cancel(request);
  MPI_Request_free(request);
  meet();
  MPI_Recv_init(&data, 1, MPI_INT, other, 32, MPI_COMM_WORLD, request);
  MPI_Start(request);
  MPI_Cancel(request);
  MPI_Wait(request, &status);
  MPI_Test_cancelled(&status, &flag);
  say("persistent: %d", flag);
  meet();
  MPI_Start(request);
  flag = 17 + me;
  MPI_Send(&flag, 1, MPI_INT, other, 32, MPI_COMM_WORLD);
  MPI_Wait(request, &status);
  MPI_Test_cancelled(&status, &flag);
  say("started again: %d, %d", flag, data);
  MPI_Request_free(request);
}

// Who cancels too late gets the message.
static void cancelled_late(void) {
  MPI_Request request;
  MPI_Status status;
  int data = 0, mine = 40 + me, flag;
  MPI_Irecv(&data, 1, MPI_INT, other, 33, MPI_COMM_WORLD, &request);
  MPI_Send(&mine, 1, MPI_INT, other, 33, MPI_COMM_WORLD);
  meet();  // behind the message in its lane
  MPI_Cancel(&request);
  MPI_Wait(&request, &status);
  MPI_Test_cancelled(&status, &flag);
  say("%d %d", flag, data);
}

// A loop that cancels and posts again, while messages come: what was not cancelled was received.
static void cancelled_in_a_race(void) {
  enum { kRounds = 300 };
  MPI_Request request;
  MPI_Status status;
  int flag, got = 0, data, sum = 0, sent = 0;
  while (got < kRounds) {
    if (sent < kRounds) MPI_Send(&sent, 1, MPI_INT, other, 34, MPI_COMM_WORLD), sent++;
    MPI_Iprobe(other, 34, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
    MPI_Irecv(&data, 1, MPI_INT, other, 34, MPI_COMM_WORLD, &request);
    MPI_Cancel(&request);
    MPI_Wait(&request, &status);
    MPI_Test_cancelled(&status, &flag);
    if (!flag) sum += data * (1 + got++);
  }
  say("%d", sum);
  meet();
}

static int query(void* extra, MPI_Status* status) {
  MPI_Status_set_elements(status, MPI_INT, *(int*)extra);
  MPI_Status_set_cancelled(status, *(int*)extra == 3);
  status->MPI_SOURCE = 6;
  status->MPI_TAG = 7;
  return *(int*)extra == 2 ? MPI_ERR_OTHER : MPI_SUCCESS;
}
static int freed_callbacks;
static int let_go(void* extra) { (void)extra; freed_callbacks++; return MPI_SUCCESS; }
static int cancel(void* extra, int complete) { if (!complete) *(int*)extra = 3; return MPI_SUCCESS; }
static void* complete_it(void* request) {
  MPI_Grequest_complete(*(MPI_Request*)request);
  return NULL;
}

static void generalised(void) {
  int state[6] = {0, 1, 2, 1, 1, 1}, mine = 9, theirs, index, flag;
  MPI_Request request[6], kept;
  MPI_Status status[3] = {poisoned(), poisoned(), poisoned()};
  pthread_t thread;
  for (int k = 0; k < 6; k++) TRY(MPI_Grequest_start(query, let_go, cancel, &state[k], &request[k]));
  kept = request[0];
  MPI_Test(&request[0], &flag, status);
  say("complete at first: %d", flag);
  pthread_create(&thread, NULL, complete_it, &kept);
  TRY(MPI_Wait(&request[0], &status[0]));
  pthread_join(thread, NULL);
  say_status("zero", &status[0], MPI_INT);
  TRY(MPI_Cancel(&request[1]));
  MPI_Grequest_complete(request[1]);
  MPI_Wait(&request[1], &status[0]);
  say_status("cancelled", &status[0], MPI_INT);
  kept = request[3];
  MPI_Request_free(&request[3]);
  MPI_Grequest_complete(kept);
  MPI_Request mixed[3] = {request[4], MPI_REQUEST_NULL, MPI_REQUEST_NULL};
  MPI_Irecv(&theirs, 1, MPI_INT, other, 35, MPI_COMM_WORLD, &mixed[1]);
  MPI_Isend(&mine, 1, MPI_INT, other, 35, MPI_COMM_WORLD, &mixed[2]);
  MPI_Grequest_complete(request[4]);
  MPI_Waitall(3, mixed, status);
  say("mixed: %d %d", theirs, status[0].MPI_TAG);
  MPI_Grequest_complete(request[5]);
  MPI_Waitany(1, &request[5], &index, status);
  say("any: %d", index);
  MPI_Grequest_complete(request[2]);
  say("an error of the query: %d", class_of(MPI_Wait(&request[2], status)));
  say("freed %d", freed_callbacks);
}

static void empty_completions(void) {
  MPI_Request null[3] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL, MPI_REQUEST_NULL}, inactive[2];
  MPI_Status status[3];
  int index = -7, flag = -7, number = -7, indices[3] = {-7, -7, -7}, data;
  for (int k = 0; k < 3; k++) status[k] = poisoned();
  TRY(MPI_Wait(&null[0], &status[0]));
  say_status("wait", &status[0], MPI_INT);
  TRY(MPI_Test(&null[0], &flag, &status[1]));
  say_status("test", &status[1], MPI_INT);
  TRY(MPI_Waitany(3, null, &index, &status[0]));
  say("waitany %d", index == MPI_UNDEFINED);
  TRY(MPI_Testany(3, null, &index, &flag, &status[0]));
  say("testany %d %d", index == MPI_UNDEFINED, flag);
  TRY(MPI_Waitsome(3, null, &number, indices, status));
  say("waitsome %d %d", number == MPI_UNDEFINED, indices[0]);
  TRY(MPI_Testsome(3, null, &number, indices, status));
  say("testsome %d", number == MPI_UNDEFINED);
  TRY(MPI_Waitall(3, null, status));
  say_status("waitall", &status[2], MPI_INT);
  TRY(MPI_Waitall(0, NULL, NULL));
  TRY(MPI_Testall(0, NULL, &flag, NULL));
  TRY(MPI_Waitall(0, NULL, MPI_STATUSES_IGNORE));
  TRY(MPI_Waitany(0, NULL, &index, NULL));
  TRY(MPI_Waitsome(0, NULL, &number, NULL, NULL));
  say("nothing: %d %d %d", flag, index == MPI_UNDEFINED, number == MPI_UNDEFINED);
  MPI_Recv_init(&data, 1, MPI_INT, other, 36, MPI_COMM_WORLD, &inactive[0]);
  MPI_Send_init(&data, 1, MPI_INT, other, 36, MPI_COMM_WORLD, &inactive[1]);
  for (int k = 0; k < 3; k++) status[k] = poisoned();
  TRY(MPI_Wait(&inactive[0], &status[0]));
  say_status("inactive", &status[0], MPI_INT);
  TRY(MPI_Waitall(2, inactive, status));
  say_status("inactive", &status[1], MPI_INT);
  TRY(MPI_Waitsome(2, inactive, &number, indices, status));
  TRY(MPI_Testany(2, inactive, &index, &flag, status));
  say("inactive: %d %d %d", number == MPI_UNDEFINED, index == MPI_UNDEFINED, flag);
  TRY(MPI_Request_get_status(inactive[0], &flag, &status[0]));
  say("get_status %d", flag);
  TRY(MPI_Startall(0, NULL));
  MPI_Request_free(&inactive[0]);
  MPI_Request_free(&inactive[1]);
}

// A successful call leaves MPI_ERROR as it was, but for those that return several statuses.
static void statuses(void) {
  int mine[4] = {1, 2, 3, 4}, theirs[8], flag = 0, index;
  MPI_Request request[2];
  MPI_Status status[2];
  for (int way = 0; way < 7; way++) {
    status[0] = status[1] = poisoned();
    MPI_Irecv(theirs, 8, MPI_INT, MPI_ANY_SOURCE, 40 + way, MPI_COMM_WORLD, &request[0]);
    MPI_Isend(mine, way % 5, MPI_INT, other, 40 + way, MPI_COMM_WORLD, &request[1]);
    if (way == 0) MPI_Wait(&request[0], &status[0]);
    if (way == 1) for (flag = 0; !flag;) MPI_Test(&request[0], &flag, &status[0]);
    if (way == 2) MPI_Waitany(1, request, &index, &status[0]);
    if (way == 3) MPI_Waitall(1, request, &status[0]);
    if (way == 4) for (flag = 0; !flag;) MPI_Testany(1, request, &index, &flag, &status[0]);
    if (way == 5) for (flag = 0; !flag;) MPI_Testall(1, request, &flag, &status[0]);
    if (way == 6) {
      for (flag = 0; !flag;) MPI_Request_get_status(request[0], &flag, &status[0]);
      MPI_Wait(&request[0], MPI_STATUS_IGNORE);
    }
    say_status("receive", &status[0], MPI_INT);
    say_status("as chars", &status[0], MPI_CHAR);
    MPI_Wait(&request[1], &status[1]);
    MPI_Test_cancelled(&status[1], &flag);
    say("send: error %d cancelled %d", status[1].MPI_ERROR, flag);
  }
  status[0] = poisoned();
  MPI_Sendrecv(mine, 3, MPI_INT, other, 50, theirs, 8, MPI_INT, other, 50, MPI_COMM_WORLD, &status[0]);
  say_status("sendrecv", &status[0], MPI_INT);
  MPI_Isend(mine, 2, MPI_INT, other, 51, MPI_COMM_WORLD, request);
  status[0] = status[1] = poisoned();
  MPI_Probe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &status[0]);
  say_status("probe", &status[0], MPI_INT);
  MPI_Recv(theirs, 2, MPI_INT, other, 51, MPI_COMM_WORLD, &status[1]);
  say_status("recv", &status[1], MPI_INT);
  MPI_Wait(request, MPI_STATUS_IGNORE);
}

static void nobody(void) {
  MPI_Status status = poisoned();
  MPI_Message message;
  MPI_Request request[4];
  int flag = -3;
  void* nowhere = (void*)(uintptr_t)8;
  TRY(MPI_Recv(nowhere, 5, MPI_INT, MPI_PROC_NULL, 3, MPI_COMM_WORLD, &status));
  say_status("recv", &status, MPI_INT);
  status = poisoned();
  TRY(MPI_Recv(nowhere, 5, MPI_INT, MPI_PROC_NULL, MPI_ANY_TAG, MPI_COMM_WORLD, &status));
  say_status("recv, any tag", &status, MPI_INT);
  status = poisoned();
  TRY(MPI_Irecv(nowhere, 5, MPI_INT, MPI_PROC_NULL, MPI_ANY_TAG, MPI_COMM_WORLD, &request[0]));
  TRY(MPI_Wait(&request[0], &status));
  say_status("irecv, any tag", &status, MPI_INT);
  TRY(MPI_Probe(MPI_PROC_NULL, MPI_ANY_TAG, MPI_COMM_WORLD, &status));
  say_status("probe", &status, MPI_INT);
  TRY(MPI_Iprobe(MPI_PROC_NULL, MPI_ANY_TAG, MPI_COMM_WORLD, &flag, &status));
  say("iprobe %d", flag);
  TRY(MPI_Improbe(MPI_PROC_NULL, MPI_ANY_TAG, MPI_COMM_WORLD, &flag, &message, &status));
  say("improbe %d %d", flag, message == MPI_MESSAGE_NO_PROC);
  TRY(MPI_Mrecv(nowhere, 1, MPI_INT, &message, &status));
  say_status("mrecv", &status, MPI_INT);
  TRY(MPI_Mprobe(MPI_PROC_NULL, 0, MPI_COMM_WORLD, &message, MPI_STATUS_IGNORE));
  TRY(MPI_Imrecv(nowhere, 1, MPI_INT, &message, &request[0]));
  TRY(MPI_Wait(&request[0], &status));
  say_status("imrecv", &status, MPI_INT);
  TRY(MPI_Send(nowhere, 1 << 30, MPI_INT, MPI_PROC_NULL, 0, MPI_COMM_WORLD));
  TRY(MPI_Ssend(nowhere, 1, MPI_INT, MPI_PROC_NULL, 0, MPI_COMM_WORLD));
  TRY(MPI_Rsend(nowhere, 1, MPI_INT, MPI_PROC_NULL, 0, MPI_COMM_WORLD));
  TRY(MPI_Bsend(nowhere, 1, MPI_INT, MPI_PROC_NULL, 0, MPI_COMM_WORLD));
  TRY(MPI_Isend(nowhere, 1, MPI_INT, MPI_PROC_NULL, 0, MPI_COMM_WORLD, &request[0]));
  TRY(MPI_Issend(nowhere, 1, MPI_INT, MPI_PROC_NULL, 0, MPI_COMM_WORLD, &request[1]));
  TRY(MPI_Irsend(nowhere, 1, MPI_INT, MPI_PROC_NULL, 0, MPI_COMM_WORLD, &request[2]));
  TRY(MPI_Ibsend(nowhere, 1, MPI_INT, MPI_PROC_NULL, 0, MPI_COMM_WORLD, &request[3]));
  TRY(MPI_Waitall(4, request, MPI_STATUSES_IGNORE));
  TRY(MPI_Send_init(nowhere, 1, MPI_INT, MPI_PROC_NULL, 0, MPI_COMM_WORLD, &request[0]));
  TRY(MPI_Recv_init(nowhere, 1, MPI_INT, MPI_PROC_NULL, MPI_ANY_TAG, MPI_COMM_WORLD, &request[1]));
  for (int k = 0; k < 3; k++) {
    TRY(MPI_Startall(2, request));
    status = poisoned();
    TRY(MPI_Wait(&request[1], &status));
    TRY(MPI_Wait(&request[0], MPI_STATUS_IGNORE));
    say("persistent: %d %d", status.MPI_SOURCE == MPI_PROC_NULL, status.MPI_TAG == MPI_ANY_TAG);
  }
  MPI_Request_free(&request[0]);
  MPI_Request_free(&request[1]);
  TRY(MPI_Sendrecv(nowhere, 1, MPI_INT, MPI_PROC_NULL, 0, nowhere, 9, MPI_INT, MPI_PROC_NULL, 0, MPI_COMM_WORLD, &status));
  say_status("sendrecv", &status, MPI_INT);
  int halo[2] = {me, -1};
  TRY(MPI_Sendrecv(&halo[0], 1, MPI_INT, me == 0 ? 1 : MPI_PROC_NULL, 0, &halo[1], 1, MPI_INT, me == 0 ? MPI_PROC_NULL : 0,
                   MPI_ANY_TAG, MPI_COMM_WORLD, &status));
  say("halo %d", halo[1]);
  TRY(MPI_Sendrecv_replace(nowhere, 1, MPI_INT, MPI_PROC_NULL, 0, MPI_PROC_NULL, 0, MPI_COMM_WORLD, &status));
}

static void buffered(void) {
  int overhead = MPI_BSEND_OVERHEAD, size = 40000 * 4 + overhead, back, mine[100], theirs[100];
  char* room = malloc(size);
  void* detached = NULL;
  MPI_Request request, persistent;
  TRY(MPI_Buffer_attach(room, size));
  TRY(MPI_Bsend(big, 40000, MPI_INT, other, 60, MPI_COMM_WORLD));
  say("full: %d", class_of(MPI_Bsend(big, 40000, MPI_INT, other, 61, MPI_COMM_WORLD)));
  meet();  // a receive that was posted earlier would empty the other side's buffer before that call
  fill(big, sizeof(big), 3);  // the buffer is the program's again
  TRY(MPI_Recv(into, 40000, MPI_INT, other, 60, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
  TRY(MPI_Buffer_detach(&detached, &back));
  say("detached %d %d", detached == room, back == size);
  TRY(MPI_Buffer_attach(room, size));
  for (int k = 0; k < 20; k++) {
    fill(mine, sizeof(mine), k);
    MPI_Ibsend(mine, 100, MPI_INT, other, 62, MPI_COMM_WORLD, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    memset(mine, 0x77, sizeof(mine));
  }
  MPI_Bsend_init(mine, 100, MPI_INT, other, 62, MPI_COMM_WORLD, &persistent);
  fill(mine, sizeof(mine), 20);
  MPI_Start(&persistent);
  MPI_Wait(&persistent, MPI_STATUS_IGNORE);
  memset(mine, 0x66, sizeof(mine));
  MPI_Request_free(&persistent);
  for (int k = 0; k < 21; k++) {
    MPI_Recv(theirs, 100, MPI_INT, other, 62, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    say("%d: %u", k, sum_of(theirs, sizeof(theirs)));
  }
  meet();
  TRY(MPI_Buffer_detach(&detached, &back));
  memset(room, 0xee, size);
  free(room);
}

static void ready(void) {
  MPI_Request request;
  int mine = 3 + me, theirs;
  for (int k = 0; k < 10; k++) {
    MPI_Irecv(&theirs, 1, MPI_INT, other, 70, MPI_COMM_WORLD, &request);
    meet();
    TRY(MPI_Rsend(&mine, 1, MPI_INT, other, 70, MPI_COMM_WORLD));
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    say("%d", theirs);
  }
}

static void to_oneself(void) {
  MPI_Request request[4];
  MPI_Status status;
  int data[4] = {1, 2, 3, 4}, got[4] = {0};
  for (int k = 0; k < 3; k++) {
    MPI_Comm comm = k == 0 ? MPI_COMM_SELF : MPI_COMM_WORLD;
    int self = k == 0 ? 0 : me;
    MPI_Irecv(got, 4, MPI_INT, self, 1, comm, &request[0]);
    MPI_Ssend(data, 4, MPI_INT, self, 1, comm);
    MPI_Wait(&request[0], &status);
    MPI_Isend(data, 4, MPI_INT, self, 2, comm, &request[1]);
    MPI_Recv(got, 4, MPI_INT, self, 2, comm, &status);
    MPI_Wait(&request[1], MPI_STATUS_IGNORE);
    MPI_Sendrecv(data, 4, MPI_INT, self, 3, got, 4, MPI_INT, self, 3, comm, &status);
    MPI_Sendrecv_replace(got, 4, MPI_INT, self, 4, self, 4, comm, &status);
    status = poisoned();
    MPI_Isend(big, kBig, MPI_INT, self, 5, comm, &request[1]);
    MPI_Recv(into, kBig, MPI_INT, self, MPI_ANY_TAG, comm, &status);
    MPI_Wait(&request[1], MPI_STATUS_IGNORE);
    status.MPI_ERROR = 0;  // not said: MPICH sets it in a receive from oneself when it is quick
    say_status("self", &status, MPI_INT);
    say("%u %d", sum_of(into, sizeof(into)), got[3]);
  }
}

// One buffer under way many times, and parts of it that overlap.
static void overlapping_sends(void) {
  MPI_Request request[20];
  fill(big, sizeof(big), 9);
  for (int k = 0; k < 20; k++) MPI_Isend(big + k % 7, 5000, MPI_INT, other, 80, MPI_COMM_WORLD, &request[k]);
  for (int k = 0; k < 20; k++) {
    MPI_Recv(into, 5000, MPI_INT, other, 80, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    say("%u", sum_of(into, 20000));
  }
  MPI_Waitall(20, request, MPI_STATUSES_IGNORE);
}

// Handles are values: a copy does as well, in any order, wherever it lies.
static void handles_move(void) {
  enum { kNumber = 16 };
  MPI_Request* array = malloc(kNumber * sizeof(MPI_Request));
  int mine[kNumber], theirs[kNumber], index;
  for (int k = 0; k < kNumber; k++) {
    mine[k] = 100 * me + k;
    MPI_Irecv(&theirs[k], 1, MPI_INT, other, 90 + k, MPI_COMM_WORLD, &array[k]);
  }
  MPI_Request* moved = malloc(kNumber * sizeof(MPI_Request));
  for (int k = 0; k < kNumber; k++) moved[kNumber - 1 - k] = array[k];
  memset(array, 0xff, kNumber * sizeof(MPI_Request));
  free(array);
  for (int k = 0; k < kNumber; k++) MPI_Send(&mine[k], 1, MPI_INT, other, 90 + k, MPI_COMM_WORLD);
  for (int left = kNumber; left > 0; left--) {
    MPI_Waitany(left, moved, &index, MPI_STATUS_IGNORE);
    moved[index] = moved[left - 1];
  }
  free(moved);
  for (int k = 0; k < kNumber; k++) say("%d", theirs[k]);
}

// Freed while in use, as MPI permits: communicator, datatype, group; handles forgotten at once.
static void freed_early(void) {
  MPI_Comm comm;
  MPI_Datatype type;
  MPI_Request request[4];
  fill(big, sizeof(big), 11);
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  MPI_Type_vector(1000, 2, 3, MPI_INT, &type);
  MPI_Type_commit(&type);
  MPI_Irecv(into, 1, type, other, 1, comm, &request[0]);
  MPI_Irecv(into + 5000, 1, type, other, 2, comm, &request[1]);
  MPI_Isend(big, 1, type, other, 1, comm, &request[2]);
  MPI_Isend(big + 5000, 1, type, other, 2, comm, &request[3]);
  MPI_Type_free(&type);
  MPI_Comm_free(&comm);
  MPI_Waitall(4, request, MPI_STATUSES_IGNORE);
  int sum = 0;
  for (int k = 0; k < 8000; k++) sum = sum * 31 + (k % 5000 % 3 == 2 || k % 5000 > 2997 ? 0 : into[k]);
  say("%d", sum);
}

static void wildcards(void) {
  MPI_Status status;
  int data = 0, sum = 0;
  for (int k = 0; k < 50; k++) MPI_Send(&k, 1, MPI_INT, other, 100 + k % 3, MPI_COMM_WORLD);
  for (int k = 0; k < 50; k++) {
    if (k % 2) MPI_Probe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &status);
    MPI_Recv(&data, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &status);
    sum = sum * 31 + data + status.MPI_TAG;
  }
  say("%d", sum);
  int *bound, flag;
  MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &bound, &flag);
  MPI_Sendrecv(&sum, 1, MPI_INT, other, *bound, &data, 1, MPI_INT, other, MPI_ANY_TAG, MPI_COMM_WORLD, &status);
  say("%d", status.MPI_TAG == *bound);
}

static void empty_messages(void) {
  MPI_Status status = poisoned();
  MPI_Request request[2];
  TRY(MPI_Sendrecv(NULL, 0, MPI_INT, other, 1, NULL, 0, MPI_DOUBLE, other, 1, MPI_COMM_WORLD, &status));
  say_status("empty", &status, MPI_DOUBLE);
  MPI_Irecv((void*)16, 0, MPI_INT, other, 2, MPI_COMM_WORLD, &request[0]);
  MPI_Issend((void*)16, 0, MPI_INT, other, 2, MPI_COMM_WORLD, &request[1]);
  MPI_Waitall(2, request, MPI_STATUSES_IGNORE);
  int room[4] = {7, 7, 7, 7};
  MPI_Sendrecv(room, 0, MPI_INT, other, 3, room + 1, 3, MPI_INT, other, 3, MPI_COMM_WORLD, &status);
  say_status("into room", &status, MPI_INT);
  say("%d", room[1]);
}

static void persistent_restarts(void) {
  MPI_Request request[6];
  int mine[3], theirs[3], index;
  unsigned sum = 0;
  for (int k = 0; k < 3; k++) {
    MPI_Recv_init(&theirs[k], 1, MPI_INT, other, 110 + k, MPI_COMM_WORLD, &request[k]);
    if (k == 0) MPI_Send_init(&mine[k], 1, MPI_INT, other, 110 + k, MPI_COMM_WORLD, &request[3 + k]);
    if (k == 1) MPI_Ssend_init(&mine[k], 1, MPI_INT, other, 110 + k, MPI_COMM_WORLD, &request[3 + k]);
    if (k == 2) MPI_Send_init(&mine[k], 1, MPI_INT, other, 110 + k, MPI_COMM_WORLD, &request[3 + k]);
  }
  for (int round = 0; round < 500; round++) {
    for (int k = 0; k < 3; k++) mine[k] = round * 10 + k + me;
    MPI_Startall(3, request);
    for (int k = 0; k < 3; k++) MPI_Start(&request[3 + (k + round) % 3]);
    if (round % 3 == 0) MPI_Waitall(6, request, MPI_STATUSES_IGNORE);
    if (round % 3 == 1) for (int k = 5; k >= 0; k--) MPI_Wait(&request[k], MPI_STATUS_IGNORE);
    if (round % 3 == 2) for (int k = 0; k < 6; k++) MPI_Waitany(6, request, &index, MPI_STATUS_IGNORE);
    sum = sum * 31 + sum_of(theirs, sizeof(theirs));
    memset(mine, 0x11, sizeof(mine));
  }
  say("%u", sum);
  for (int k = 0; k < 6; k++) MPI_Request_free(&request[k]);
}

static const struct Case kCases[] = {
  CASE(truncation), CASE(truncation_large), CASE(truncation_to_nothing), CASE(truncation_others), CASE(freed_active),
  CASE(freed_many), CASE(cancelled), CASE(cancelled_late), CASE(cancelled_in_a_race), CASE(generalised),
  CASE(empty_completions), CASE(statuses), CASE(nobody), CASE(buffered), CASE(ready), CASE(to_oneself),
  CASE(overlapping_sends), CASE(handles_move), CASE(freed_early), CASE(wildcards), CASE(empty_messages),
  CASE(persistent_restarts), {NULL, NULL}};

int main(int argc, char** argv) { return run_cases(argc, argv, kCases, MPI_THREAD_MULTIPLE); }
