// SPDX-License-Identifier: Apache-2.0
//
// MPI_THREAD_MULTIPLE, everything at once: six threads per rank, each with a partner thread on the other rank, do a
// random mix of transfers, ways to complete them, probes, persistent requests, and communicators and datatypes that
// come and go, so that handles are reused across threads. Both sides draw the same numbers, so they stay in step;
// every message is compared byte by byte, and the last line is one number that must never change. The program counts
// its own calls: `numbers` as argument prints them, which is where the table below comes from.
//
// ranks: 2
// calls: MPI_Isend=3703 MPI_Irecv=3586 MPI_Recv=117 MPI_Waitall=153 MPI_Comm_dup=228 MPI_Comm_idup=246
// calls: MPI_Comm_free=474 MPI_Type_contiguous=131 MPI_Type_free=131 MPI_Send_init=113 MPI_Recv_init=113 MPI_Start=678
// calls: MPI_Request_free=226 MPI_Sendrecv=131 MPI_Allreduce=117 MPI_Gather=1 MPI_Init_thread=1 MPI_Finalize=1
#include <mpi.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "check.h"

enum { kThreads = 6, kRounds = 200, kBatch = 12, kBytes = 3000 };
enum Counted {
  kIsend,
  kIrecv,
  kWaitall,
  kDup,
  kIdup,
  kFree,
  kContiguous,
  kTypeFree,
  kSendInit,
  kStart,
  kRequestFree,
  kSendrecv,
  kAllreduce,
  kCounted
};
static const char* const names[kCounted] = {"MPI_Isend",     "MPI_Irecv",     "MPI_Waitall",         "MPI_Comm_dup",
                                            "MPI_Comm_idup", "MPI_Comm_free", "MPI_Type_contiguous", "MPI_Type_free",
                                            "MPI_Send_init", "MPI_Start",     "MPI_Request_free",    "MPI_Sendrecv",
                                            "MPI_Allreduce"};
static atomic_long counted[kCounted];
static int me, peer;

struct Lane {
  MPI_Comm comm;
  unsigned random;
  unsigned long sum;
  int id, round;
  unsigned char out[kBatch][kBytes], in[kBatch][kBytes];
  int bytes[kBatch];
};

static unsigned draw(struct Lane* lane, unsigned below) {
  lane->random = lane->random * 1664525u + 1013904223u;
  return (lane->random >> 8) % below;
}

static void count(enum Counted what) { atomic_fetch_add_explicit(&counted[what], 1, memory_order_relaxed); }

static void fill(unsigned char* data, int bytes, int rank, int id, int round, int number) {
  unsigned value = 2654435761u * (unsigned)(1 + rank + 2 * id + 16 * number + 256 * round);
  for (int i = 0; i < bytes; i++) data[i] = (unsigned char)((value += 0x9e3779b9u) >> 24);
}

/// Messages `first` to `last` of this round: what to send, where to receive, how long.
static void prepare(struct Lane* lane, int messages) {
  for (int i = 0; i < messages; i++) {
    lane->bytes[i] = 8 * (int)(1 + draw(lane, kBytes / 8 - 1));
    fill(lane->out[i], lane->bytes[i], me, lane->id, lane->round, i);
    memset(lane->in[i], 0, (size_t)lane->bytes[i]);
  }
}

static void verify(struct Lane* lane, int messages) {
  unsigned char wanted[kBytes];
  for (int i = 0; i < messages; i++) {
    fill(wanted, lane->bytes[i], peer, lane->id, lane->round, i);
    CHECK(memcmp(wanted, lane->in[i], (size_t)lane->bytes[i]) == 0);
    lane->sum += fingerprint(lane->in[i], (size_t)lane->bytes[i]);
  }
}

/// Completes all requests in one of seven ways.
static void complete(struct Lane* lane, int n, MPI_Request* requests) {
  MPI_Status statuses[2 * kBatch];
  int indices[2 * kBatch], done = 0, flag = 0, index;
  switch (draw(lane, 7)) {
    case 0:
      count(kWaitall);
      OK(MPI_Waitall(n, requests, statuses));
      return;
    case 1:
      for (int i = 0; i < n; i++) {
        OK(MPI_Waitany(n, requests, &index, statuses));
        CHECK(index != MPI_UNDEFINED);
      }
      return;
    case 2:
      for (int left = n; left > 0; left -= done) OK(MPI_Waitsome(n, requests, &done, indices, statuses));
      return;
    case 3:
      while (!flag) OK(MPI_Testall(n, requests, &flag, statuses));
      return;
    case 4:
      for (int left = n; left > 0; left -= flag) {
        OK(MPI_Testany(n, requests, &index, &flag, statuses));
        CHECK(!flag || index != MPI_UNDEFINED);
      }
      return;
    case 5:
      for (int left = n; left > 0; left -= done) OK(MPI_Testsome(n, requests, &done, indices, statuses));
      return;
    default:
      for (int i = n - 1; i >= 0; i--)
        for (flag = 0; !flag;) OK(MPI_Test(&requests[i], &flag, statuses));
  }
}

static void transfers(struct Lane* lane, MPI_Comm comm, int messages) {
  MPI_Request requests[2 * kBatch];
  prepare(lane, messages);
  for (int i = 0; i < messages; i++) {
    count(kIrecv);
    OK(MPI_Irecv(lane->in[i], lane->bytes[i], MPI_BYTE, peer, i, comm, &requests[i]));
  }
  for (int i = messages - 1; i >= 0; i--) {  // tags, not order, say which is which
    count(kIsend);
    OK(MPI_Isend(lane->out[i], lane->bytes[i], MPI_BYTE, peer, i, comm, &requests[messages + i]));
  }
  complete(lane, 2 * messages, requests);
  verify(lane, messages);
}

static void probes(struct Lane* lane) {
  MPI_Request request;
  MPI_Status status;
  int flag = 0, bytes;
  prepare(lane, 1);
  count(kIsend);
  OK(MPI_Isend(lane->out[0], lane->bytes[0], MPI_BYTE, peer, 77, lane->comm, &request));
  while (!flag) OK(MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, lane->comm, &flag, &status));
  OK(MPI_Get_count(&status, MPI_BYTE, &bytes));
  CHECK(bytes == lane->bytes[0] && status.MPI_TAG == 77 && status.MPI_SOURCE == peer);
  OK(MPI_Recv(lane->in[0], bytes, MPI_BYTE, peer, 77, lane->comm, MPI_STATUS_IGNORE));
  OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
  verify(lane, 1);
}

static void communicators(struct Lane* lane, int nonblocking) {
  MPI_Comm made[2];
  for (int i = 0; i < 2; i++) {
    if (nonblocking) {
      MPI_Request request;
      count(kIdup);
      OK(MPI_Comm_idup(lane->comm, &made[i], &request));
      OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    } else {
      count(kDup);
      OK(MPI_Comm_dup(lane->comm, &made[i]));
    }
  }
  transfers(lane, made[1], 2);
  for (int i = 0; i < 2; i++) {
    count(kFree);
    OK(MPI_Comm_free(&made[i]));
  }
}

static void datatypes(struct Lane* lane) {
  MPI_Datatype type;
  prepare(lane, 1);
  const int size = 8 * (int)(1 + draw(lane, 4));  // the same handle stands for types of different sizes
  const int elements = lane->bytes[0] / size;
  lane->bytes[0] = elements * size;
  count(kContiguous), count(kTypeFree), count(kSendrecv);
  OK(MPI_Type_contiguous(size, MPI_BYTE, &type));
  OK(MPI_Type_commit(&type));
  OK(MPI_Sendrecv(lane->out[0], elements, type, peer, 3, lane->in[0], elements, type, peer, 3, lane->comm,
                  MPI_STATUS_IGNORE));
  OK(MPI_Type_free(&type));
  verify(lane, 1);
}

static void persistent(struct Lane* lane) {
  MPI_Request requests[2];
  prepare(lane, 1);
  count(kSendInit);
  OK(MPI_Send_init(lane->out[0], lane->bytes[0], MPI_BYTE, peer, 5, lane->comm, &requests[0]));
  OK(MPI_Recv_init(lane->in[0], lane->bytes[0], MPI_BYTE, peer, 5, lane->comm, &requests[1]));
  for (int i = 0; i < 3; i++) {
    memset(lane->in[0], 0, (size_t)lane->bytes[0]);
    for (int k = 0; k < 2; k++) {
      count(kStart);
      OK(MPI_Start(&requests[k]));
    }
    complete(lane, 2, requests);
    verify(lane, 1);
  }
  for (int k = 0; k < 2; k++) {
    count(kRequestFree);
    OK(MPI_Request_free(&requests[k]));
  }
}

static void reductions(struct Lane* lane) {
  long mine = 100 * lane->round + me, sum = 0;
  count(kAllreduce);
  OK(MPI_Allreduce(&mine, &sum, 1, MPI_LONG, MPI_SUM, lane->comm));
  CHECK(sum == 200 * lane->round + 1);
  lane->sum += (unsigned long)sum;
}

static void* work(void* argument) {
  struct Lane* lane = argument;
  for (lane->round = 0; lane->round < kRounds; lane->round++) {
    switch (draw(lane, 10)) {
      case 0: communicators(lane, 0); break;
      case 1: communicators(lane, 1); break;
      case 2: datatypes(lane); break;
      case 3: persistent(lane); break;
      case 4: reductions(lane); break;
      case 5: probes(lane); break;
      default: transfers(lane, lane->comm, 1 + (int)draw(lane, kBatch));
    }
  }
  return NULL;
}

int main(int argc, char** argv) {
  static struct Lane lanes[kThreads];
  pthread_t threads[kThreads];
  unsigned long sum = 0, both[2];
  int provided;
  OK(MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided));
  CHECK(provided == MPI_THREAD_MULTIPLE);
  OK(MPI_Comm_rank(MPI_COMM_WORLD, &me));
  peer = 1 - me;
  for (int t = 0; t < kThreads; t++) {
    lanes[t].id = t;
    lanes[t].random = 4711u + 17u * (unsigned)t;
    count(kDup);
    OK(MPI_Comm_dup(MPI_COMM_WORLD, &lanes[t].comm));
  }
  for (int t = 0; t < kThreads; t++) CHECK(pthread_create(&threads[t], NULL, work, &lanes[t]) == 0);
  for (int t = 0; t < kThreads; t++) {
    CHECK(pthread_join(threads[t], NULL) == 0);
    sum = sum * 31 + lanes[t].sum;
    count(kFree);
    OK(MPI_Comm_free(&lanes[t].comm));
  }
  OK(MPI_Gather(&sum, 1, MPI_UNSIGNED_LONG, both, 1, MPI_UNSIGNED_LONG, 0, MPI_COMM_WORLD));
  OK(MPI_Finalize());
  if (me == 0) {
    if (argc > 1)
      for (int i = 0; i < kCounted; i++) printf("%s=%ld\n", names[i], atomic_load(&counted[i]));
    printf("stress_threads: %lu %lu\n", both[0], both[1]);
  }
  return 0;
}
