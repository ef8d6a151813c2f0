// SPDX-License-Identifier: Apache-2.0
//
// Point-to-point: every send mode, blocking, nonblocking and persistent; sendrecv, probes, wildcards, PROC_NULL,
// cancel, and each of the completion calls.
//
// ranks: 2
// calls: MPI_Init=1 MPI_Finalize=1 MPI_Send=11 MPI_Ssend=1 MPI_Rsend=1 MPI_Bsend=1 MPI_Recv=8 MPI_Isend=12
// calls: MPI_Issend=1 MPI_Irsend=1 MPI_Ibsend=1 MPI_Irecv=20 MPI_Sendrecv=2 MPI_Sendrecv_replace=1 MPI_Probe=1
// calls: MPI_Mprobe=1 MPI_Mrecv=1 MPI_Imrecv=1 MPI_Send_init=1 MPI_Recv_init=1 MPI_Ssend_init=1 MPI_Bsend_init=1
// calls: MPI_Rsend_init=1 MPI_Start=5 MPI_Startall=2 MPI_Waitany=5 MPI_Cancel=1 MPI_Request_free=6
// calls: MPI_Request_get_status=1 MPI_Buffer_attach=2 MPI_Buffer_detach=2 MPI_Barrier=2 MPI_Test_cancelled=1
#include <mpi.h>
#include <string.h>

#include "check.h"

enum { kCount = 1000, kLarge = 200000 };

static int me, peer;
static int out[kLarge], in[kLarge];

static void fill(int* buffer, int count, int seed) {
  for (int i = 0; i < count; i++) buffer[i] = seed * 100003 + i;
}

static void expect(const int* buffer, int count, int seed) {
  for (int i = 0; i < count; i++) CHECK(buffer[i] == seed * 100003 + i);
}

// Rank 0: 5 sends, 5 receives.
static void blocking(void) {
  static const int counts[] = {0, 1, kCount, 20000, kLarge};
  for (int k = 0; k < 5; k++) {
    MPI_Status status;
    int received = -1;
    fill(out, counts[k], me + k);
    if (me == 0) OK(MPI_Send(out, counts[k], MPI_INT, peer, k, MPI_COMM_WORLD));
    OK(MPI_Recv(in, counts[k], MPI_INT, peer, k, MPI_COMM_WORLD, &status));
    if (me == 1) OK(MPI_Send(out, counts[k], MPI_INT, peer, k, MPI_COMM_WORLD));
    OK(MPI_Get_count(&status, MPI_INT, &received));
    CHECK(status.MPI_SOURCE == peer && status.MPI_TAG == k && received == counts[k]);
    expect(in, counts[k], peer + k);
  }
}

// Rank 0 sends with each mode; rank 1 receives with a receive posted beforehand (ready mode needs it).
static void modes(void) {
  static char buffer[4 * (kCount * sizeof(int) + MPI_BSEND_OVERHEAD)];
  MPI_Request requests[8];
  static int target[8][kCount];
  fill(out, kCount, 7);
  if (me == 1) {
    for (int k = 0; k < 8; k++) OK(MPI_Irecv(target[k], kCount, MPI_INT, 0, 100 + k, MPI_COMM_WORLD, &requests[k]));
    OK(MPI_Barrier(MPI_COMM_WORLD));
    OK(MPI_Waitall(8, requests, MPI_STATUSES_IGNORE));
    for (int k = 0; k < 8; k++) expect(target[k], kCount, 7);
    OK(MPI_Barrier(MPI_COMM_WORLD));
    return;
  }
  OK(MPI_Buffer_attach(buffer, sizeof buffer));
  OK(MPI_Barrier(MPI_COMM_WORLD));
  OK(MPI_Send(out, kCount, MPI_INT, 1, 100, MPI_COMM_WORLD));
  OK(MPI_Ssend(out, kCount, MPI_INT, 1, 101, MPI_COMM_WORLD));
  OK(MPI_Rsend(out, kCount, MPI_INT, 1, 102, MPI_COMM_WORLD));
  OK(MPI_Bsend(out, kCount, MPI_INT, 1, 103, MPI_COMM_WORLD));
  OK(MPI_Isend(out, kCount, MPI_INT, 1, 104, MPI_COMM_WORLD, &requests[0]));
  OK(MPI_Issend(out, kCount, MPI_INT, 1, 105, MPI_COMM_WORLD, &requests[1]));
  OK(MPI_Irsend(out, kCount, MPI_INT, 1, 106, MPI_COMM_WORLD, &requests[2]));
  OK(MPI_Ibsend(out, kCount, MPI_INT, 1, 107, MPI_COMM_WORLD, &requests[3]));
  OK(MPI_Waitall(4, requests, MPI_STATUSES_IGNORE));
  OK(MPI_Barrier(MPI_COMM_WORLD));
  void* detached;
  int size;
  OK(MPI_Buffer_detach(&detached, &size));
  CHECK(detached == buffer && size == (int)sizeof buffer);
}

// Both: 2 sendrecv (one with PROC_NULL on one side), 1 replace; 1 send and 1 receive with PROC_NULL.
static void exchange(void) {
  MPI_Status status;
  fill(out, kCount, me);
  OK(MPI_Sendrecv(out, kCount, MPI_INT, peer, 1, in, kCount, MPI_INT, peer, MPI_ANY_TAG, MPI_COMM_WORLD, &status));
  CHECK(status.MPI_TAG == 1);
  expect(in, kCount, peer);
  OK(MPI_Sendrecv(out, kCount, MPI_INT, me == 0 ? 1 : MPI_PROC_NULL, 2, in, kCount, MPI_INT,
                  me == 0 ? MPI_PROC_NULL : 0, 2, MPI_COMM_WORLD, &status));
  CHECK(status.MPI_SOURCE == (me == 0 ? MPI_PROC_NULL : 0));
  OK(MPI_Sendrecv_replace(out, kCount, MPI_INT, peer, 3, peer, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
  expect(out, kCount, peer);
  OK(MPI_Send(out, 1, MPI_INT, MPI_PROC_NULL, 0, MPI_COMM_WORLD));
  OK(MPI_Recv(in, 1, MPI_INT, MPI_PROC_NULL, 0, MPI_COMM_WORLD, &status));
  CHECK(status.MPI_SOURCE == MPI_PROC_NULL && status.MPI_TAG == MPI_ANY_TAG);
}

// Rank 0 probes and receives what rank 1 sends with 4 sends, then sends 4 that rank 1 takes with wildcards.
static void probes(void) {
  MPI_Status status;
  MPI_Message message;
  MPI_Request request;
  int count, flag = 0;
  if (me == 1) {
    for (int k = 0; k < 4; k++) {
      fill(out, 10 + k, k);
      OK(MPI_Send(out, 10 + k, MPI_INT, 0, 20 + k, MPI_COMM_WORLD));
    }
    for (int k = 0; k < 4; k++) {
      OK(MPI_Recv(in, kCount, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &status));
      CHECK(status.MPI_TAG == 30 + k && status.MPI_SOURCE == 0);
    }
    return;
  }
  OK(MPI_Probe(MPI_ANY_SOURCE, 20, MPI_COMM_WORLD, &status));
  OK(MPI_Get_count(&status, MPI_INT, &count));
  CHECK(count == 10 && status.MPI_SOURCE == 1);
  OK(MPI_Recv(in, count, MPI_INT, status.MPI_SOURCE, status.MPI_TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
  expect(in, 10, 0);
  OK(MPI_Mprobe(1, 21, MPI_COMM_WORLD, &message, &status));
  OK(MPI_Mrecv(in, 11, MPI_INT, &message, &status));
  CHECK(message == MPI_MESSAGE_NULL);
  expect(in, 11, 1);
  while (!flag) OK(MPI_Improbe(1, 22, MPI_COMM_WORLD, &flag, &message, &status));
  OK(MPI_Imrecv(in, 12, MPI_INT, &message, &request));
  OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
  expect(in, 12, 2);
  for (flag = 0; !flag;) OK(MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &flag, &status));
  CHECK(status.MPI_TAG == 23);
  OK(MPI_Recv(in, 13, MPI_INT, 1, 23, MPI_COMM_WORLD, &status));
  for (int k = 0; k < 4; k++) OK(MPI_Send(out, k, MPI_INT, 1, 30 + k, MPI_COMM_WORLD));
}

// Eight receives of rank 0 completed by Waitany (4), then Waitsome (3 or more calls), Testany, Testsome, Testall.
static void completions(void) {
  static int target[16][4];
  MPI_Request requests[16];
  MPI_Status statuses[16];
  int index, flag, done, indices[16];
  if (me == 1) {
    for (int k = 0; k < 16; k++) {
      fill(out, 4, k);
      OK(MPI_Send(out, 4, MPI_INT, 0, 40 + k, MPI_COMM_WORLD));
    }
    return;
  }
  for (int k = 0; k < 16; k++) OK(MPI_Irecv(target[k], 4, MPI_INT, 1, 40 + k, MPI_COMM_WORLD, &requests[k]));
  for (int k = 0; k < 4; k++) {
    OK(MPI_Waitany(4, requests, &index, &statuses[0]));
    CHECK(index >= 0 && index < 4 && requests[index] == MPI_REQUEST_NULL && statuses[0].MPI_TAG == 40 + index);
  }
  for (int left = 4; left > 0; left -= done) {
    OK(MPI_Waitsome(4, requests + 4, &done, indices, statuses));
    CHECK(done > 0);
    for (int k = 0; k < done; k++) CHECK(statuses[k].MPI_TAG == 44 + indices[k]);
  }
  for (int left = 2; left > 0; left -= flag) {
    OK(MPI_Testany(2, requests + 8, &index, &flag, &statuses[0]));
    if (flag) CHECK(statuses[0].MPI_TAG == 48 + index);
  }
  for (int left = 2; left > 0; left -= done) OK(MPI_Testsome(2, requests + 10, &done, indices, statuses));
  for (flag = 0; !flag;) OK(MPI_Testall(2, requests + 12, &flag, MPI_STATUSES_IGNORE));
  OK(MPI_Request_get_status(requests[14], &flag, &statuses[0]));
  OK(MPI_Wait(&requests[14], &statuses[0]));
  CHECK(requests[14] == MPI_REQUEST_NULL && statuses[0].MPI_TAG == 54);
  for (flag = 0; !flag;) OK(MPI_Test(&requests[15], &flag, &statuses[0]));
  for (int k = 0; k < 16; k++) expect(target[k], 4, k);
  OK(MPI_Waitany(16, requests, &index, &statuses[0]));
  CHECK(index == MPI_UNDEFINED);
}

// Persistent requests, started one by one and together, used three times, and every init call.
static void persistent(void) {
  static char buffer[kCount * sizeof(int) + MPI_BSEND_OVERHEAD];
  MPI_Request pair[2], others[3];
  OK(MPI_Send_init(out, kCount, MPI_INT, peer, 60, MPI_COMM_WORLD, &pair[0]));
  OK(MPI_Recv_init(in, kCount, MPI_INT, peer, 60, MPI_COMM_WORLD, &pair[1]));
  for (int round = 0; round < 3; round++) {
    fill(out, kCount, 10 * me + round);
    if (round < 1) {
      OK(MPI_Start(&pair[1]));
      OK(MPI_Start(&pair[0]));
    } else {
      OK(MPI_Startall(2, pair));
    }
    OK(MPI_Waitall(2, pair, MPI_STATUSES_IGNORE));
    CHECK(pair[0] != MPI_REQUEST_NULL && pair[1] != MPI_REQUEST_NULL);
    expect(in, kCount, 10 * peer + round);
  }
  // To itself, so that the ready send has its receive.
  MPI_Request receives[3];
  void* detached;
  int size;
  OK(MPI_Buffer_attach(buffer, sizeof buffer));
  OK(MPI_Ssend_init(out, 1, MPI_INT, me, 61, MPI_COMM_WORLD, &others[0]));
  OK(MPI_Bsend_init(out, 1, MPI_INT, me, 62, MPI_COMM_WORLD, &others[1]));
  OK(MPI_Rsend_init(out, 1, MPI_INT, me, 63, MPI_COMM_WORLD, &others[2]));
  for (int k = 0; k < 3; k++) OK(MPI_Irecv(&in[k], 1, MPI_INT, me, 61 + k, MPI_COMM_WORLD, &receives[k]));
  for (int k = 0; k < 3; k++) OK(MPI_Start(&others[k]));
  OK(MPI_Waitall(3, receives, MPI_STATUSES_IGNORE));
  OK(MPI_Waitall(3, others, MPI_STATUSES_IGNORE));
  for (int k = 0; k < 3; k++) OK(MPI_Request_free(&others[k]));
  OK(MPI_Buffer_detach(&detached, &size));
  OK(MPI_Request_free(&pair[0]));
  OK(MPI_Request_free(&pair[1]));
}

// A receive that nothing matches is cancelled; a started send is freed while active.
static void cancel(void) {
  MPI_Request request;
  MPI_Status status;
  int cancelled = 0;
  OK(MPI_Irecv(in, 1, MPI_INT, peer, 999, MPI_COMM_WORLD, &request));
  OK(MPI_Cancel(&request));
  OK(MPI_Wait(&request, &status));
  OK(MPI_Test_cancelled(&status, &cancelled));
  CHECK(cancelled);
  if (me == 0) {
    OK(MPI_Isend(out, 1, MPI_INT, 1, 70, MPI_COMM_WORLD, &request));
    OK(MPI_Request_free(&request));
    CHECK(request == MPI_REQUEST_NULL);
  } else {
    OK(MPI_Recv(in, 1, MPI_INT, 0, 70, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
  }
}

// A window of nonblocking sends against blocking receives, in order.
static void window(void) {
  MPI_Request requests[10];
  static int values[10];
  for (int k = 0; k < 10; k++) {
    values[k] = k * k;
    if (me == 0) OK(MPI_Isend(&values[k], 1, MPI_INT, 1, 80, MPI_COMM_WORLD, &requests[k]));
  }
  for (int k = 0; me == 1 && k < 10; k++) {
    int value;
    OK(MPI_Recv(&value, 1, MPI_INT, 0, 80, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    CHECK(value == k * k);
  }
  if (me == 0) OK(MPI_Waitall(10, requests, MPI_STATUSES_IGNORE));
}

int main(int argc, char** argv) {
  int size;
  OK(MPI_Init(&argc, &argv));
  OK(MPI_Comm_rank(MPI_COMM_WORLD, &me));
  OK(MPI_Comm_size(MPI_COMM_WORLD, &size));
  CHECK(size == 2);
  peer = 1 - me;
  blocking();
  modes();
  exchange();
  probes();
  completions();
  persistent();
  cancel();
  window();
  OK(MPI_Finalize());
  if (me == 0) printf("p2p %016lx\n", fingerprint(in, sizeof in));
  return 0;
}
