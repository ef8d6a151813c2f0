// SPDX-License-Identifier: Apache-2.0
//
// Device buffers with MPI_THREAD_MULTIPLE: threads with a partner thread on the other rank, each pair with a
// communicator of its own and all of them with a shared one, do a random mix of messages and collectives whose buffers
// lie on the device or on the host, by lot. Receives with wildcards show that messages keep their order; every byte is
// compared. One more thread per rank completes requests that others have started. Both ranks draw the same numbers.
// Usage: staging_threads ROUNDS [THREADS]
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include <mpi.h>
#include <string.h>

#include "device.h"

enum { kMostThreads = 8, kBatch = 8, kBytes = 20000, kRequests = 2 * kBatch + 2 };
static int me, peer, rounds, threads = 4;

struct Buffer {
  char* host;
  char* device;
};

struct Work {
  MPI_Comm comm;
  unsigned random;  // the same on both ranks
  unsigned lot;  // where buffers lie: each rank's own
  int id, round;
  struct Buffer out[kBatch], in[kBatch], sum[2];
  int bytes[kBatch], out_on[kBatch], in_on[kBatch];
};

static MPI_Comm shared;
static _Atomic(struct Handed*) handed_over;

/// Requests for the other thread to complete; or none: an answer to wait for inside the library.
struct Handed {
  int count;
  MPI_Request* requests;
  MPI_Comm comm;
  int answer;
  _Atomic int about_to, done;
};

static void hand_over(struct Handed* handed) {
  struct Handed* none = NULL;
  while (!atomic_compare_exchange_weak(&handed_over, &none, handed)) none = NULL, sched_yield();
}
/// Outside MPI.
static void await(_Atomic int* flag) {
  while (!atomic_load(flag)) sched_yield();
}
/// Until the thread that has set the flag is most likely inside its call; if it is not, there is nothing to be found.
static void await_inside(_Atomic int* about_to) {
  await(about_to);
  for (int i = 0; i < 20; i++) sched_yield();
}

static unsigned next(unsigned* state, unsigned below) {
  *state = *state * 1664525u + 1013904223u;
  return (*state >> 8) % below;
}
static unsigned draw(struct Work* w, unsigned below) { return next(&w->random, below); }
static char* at(const struct Buffer* b, int on_device) { return on_device ? b->device : b->host; }

static void pattern(char* data, int bytes, int rank, const struct Work* w, int number) {
  unsigned value = 2654435761u * (unsigned)(1 + rank + 2 * w->id + 16 * number + 256 * w->round);
  for (int i = 0; i < bytes; i++) data[i] = (char)((value += 0x9e3779b9u) >> 24);
}

static void prepare(struct Work* w, int messages) {
  char data[kBytes];
  for (int i = 0; i < messages; i++) {
    w->bytes[i] = 1 + (int)draw(w, draw(w, 2) ? kBytes : 200);
    w->out_on[i] = next(&w->lot, 4) != 0;
    w->in_on[i] = next(&w->lot, 4) != 0;
    pattern(data, w->bytes[i], me, w, i);
    memory_write(w->out_on[i], at(&w->out[i], w->out_on[i]), data, (size_t)w->bytes[i]);
    memset(data, 0xee, sizeof(data));
    memory_write(w->in_on[i], at(&w->in[i], w->in_on[i]), data, (size_t)w->bytes[i]);
  }
}

static void verify(struct Work* w, int messages) {
  char wanted[kBytes], found[kBytes];
  for (int i = 0; i < messages; i++) {
    pattern(wanted, w->bytes[i], peer, w, i);
    memory_read(w->in_on[i], found, at(&w->in[i], w->in_on[i]), (size_t)w->bytes[i]);
    CHECK(memcmp(wanted, found, (size_t)w->bytes[i]) == 0);
  }
}

static void check_status(const struct Work* w, const MPI_Status* status, int i, int tag) {
  int got;
  OK(MPI_Get_count(status, MPI_CHAR, &got));
  CHECK(got == w->bytes[i] && status->MPI_SOURCE == peer && status->MPI_TAG == tag);
}

/// Completes all requests in one of seven ways; `statuses` by request.
static void complete(unsigned way, int n, MPI_Request* requests, MPI_Status* statuses) {
  MPI_Status some[kRequests];
  int indices[kRequests], done = 0, flag = 0, index;
  switch (way % 7) {
    case 0: OK(MPI_Waitall(n, requests, statuses)); return;
    case 1:
      for (int i = 0; i < n; i++) {
        OK(MPI_Waitany(n, requests, &index, some));
        CHECK(index != MPI_UNDEFINED);
        statuses[index] = some[0];
      }
      return;
    case 2:
      for (int left = n; left > 0; left -= done) {
        OK(MPI_Waitsome(n, requests, &done, indices, some));
        CHECK(done > 0);
        for (int i = 0; i < done; i++) statuses[indices[i]] = some[i];
      }
      return;
    case 3:
      while (!flag) OK(MPI_Testall(n, requests, &flag, statuses));
      return;
    case 4:
      for (int left = n; left > 0; left -= flag) {
        OK(MPI_Testany(n, requests, &index, &flag, some));
        CHECK(!flag || index != MPI_UNDEFINED);
        if (flag) statuses[index] = some[0];
      }
      return;
    case 5:
      for (int left = n; left > 0; left -= done) {
        OK(MPI_Testsome(n, requests, &done, indices, some));
        CHECK(done >= 0);
        for (int i = 0; i < done; i++) statuses[indices[i]] = some[i];
      }
      return;
    default:
      for (int i = n - 1; i >= 0; i--) OK(MPI_Wait(&requests[i], &statuses[i]));
  }
}

/// All messages of the round at once. With wildcards posting order says which is which.
static void set(struct Work* w, MPI_Comm comm, int wildcards) {
  MPI_Request requests[kRequests];
  MPI_Status statuses[kRequests];
  const int messages = 1 + (int)draw(w, kBatch), tag = comm == shared ? 100 * w->id : 0;
  prepare(w, messages);
  for (int i = 0; i < messages; i++)
    OK(MPI_Irecv(at(&w->in[i], w->in_on[i]), w->bytes[i], MPI_CHAR, comm == shared || wildcards ? MPI_ANY_SOURCE : peer,
                 wildcards ? MPI_ANY_TAG : tag + i, comm, &requests[i]));
  for (int i = 0; i < messages; i++) {
    const char* out = at(&w->out[i], w->out_on[i]);
    if (draw(w, 8) == 0) OK(MPI_Issend(out, w->bytes[i], MPI_CHAR, peer, tag + i, comm, &requests[messages + i]));
    else OK(MPI_Isend(out, w->bytes[i], MPI_CHAR, peer, tag + i, comm, &requests[messages + i]));
  }
  const unsigned way = next(&w->lot, 7);
  if (next(&w->lot, 4) == 0) {
    MPI_Request* theirs = malloc(sizeof(requests));
    memcpy(theirs, requests, sizeof(requests));
    struct Handed handed = {2 * messages, theirs, w->comm, 0, 0, 0};
    hand_over(&handed);
    await(&handed.done);
    free(theirs);
  } else {
    complete(way, 2 * messages, requests, statuses);
    for (int i = 0; i < messages; i++) check_status(w, &statuses[i], i, tag + i);
  }
  verify(w, messages);
}

static void* work_for_others(void* argument) {
  unsigned random = 99;
  (void)argument;
  CHECK(device.set_current(device.context) == 0);
  for (;;) {
    MPI_Status statuses[kRequests];
    struct Handed* handed = atomic_exchange(&handed_over, NULL);
    if (handed == NULL) {
      sched_yield();
      continue;
    }
    if (handed->comm == MPI_COMM_NULL) return NULL;
    if (handed->count > 0) complete(next(&random, 7), handed->count, handed->requests, statuses);
    else
      atomic_store(&handed->about_to, 1),
          OK(MPI_Recv(&handed->answer, 1, MPI_INT, peer, 10, handed->comm, MPI_STATUS_IGNORE));
    atomic_store(&handed->done, 1);
  }
}

/// One rank sends, then the other; the receiver may not know what comes.
static void blocking(struct Work* w) {
  MPI_Status status;
  prepare(w, 2);
  const int probes = (int)draw(w, 3);
  for (int turn = 0; turn < 2; turn++) {
    if (turn == me) {
      const char* out = at(&w->out[0], w->out_on[0]);
      if (draw(w, 2)) OK(MPI_Send(out, w->bytes[0], MPI_CHAR, peer, 7, w->comm));
      else OK(MPI_Ssend(out, w->bytes[0], MPI_CHAR, peer, 7, w->comm));
      continue;
    }
    draw(w, 2);
    char* in = at(&w->in[0], w->in_on[0]);
    if (probes == 0) {
      OK(MPI_Recv(in, w->bytes[0], MPI_CHAR, MPI_ANY_SOURCE, MPI_ANY_TAG, w->comm, &status));
    } else if (probes == 1) {
      OK(MPI_Probe(MPI_ANY_SOURCE, MPI_ANY_TAG, w->comm, &status));
      check_status(w, &status, 0, 7);
      OK(MPI_Recv(in, w->bytes[0], MPI_CHAR, status.MPI_SOURCE, status.MPI_TAG, w->comm, &status));
    } else {
      MPI_Message message;
      int flag = 0;
      while (!flag) OK(MPI_Improbe(MPI_ANY_SOURCE, MPI_ANY_TAG, w->comm, &flag, &message, &status));
      OK(MPI_Mrecv(in, w->bytes[0], MPI_CHAR, &message, &status));
    }
    check_status(w, &status, 0, 7);
  }
  OK(MPI_Sendrecv(at(&w->out[1], w->out_on[1]), w->bytes[1], MPI_CHAR, peer, 8, at(&w->in[1], w->in_on[1]), w->bytes[1],
                  MPI_CHAR, peer, 8, w->comm, &status));
  check_status(w, &status, 1, 8);
  verify(w, 2);
}

/// A send goes away while this thread, or another one since before or after, blocks in a call of the library's, with
/// host memory, whose end depends on it.
static void answered(struct Work* w) {
  MPI_Request request;
  int token = w->round;
  prepare(w, 1);
  w->out_on[0] = w->in_on[0] = 1;
  char data[kBytes];
  pattern(data, w->bytes[0], me, w, 0);
  memory_write(1, w->out[0].device, data, (size_t)w->bytes[0]);
  for (int turn = 0; turn < 2; turn++) {
    if (turn == me) {
      struct Handed handed = {0, NULL, w->comm, 0, 0, 0};
      const unsigned who = next(&w->lot, 3);
      if (who == 0) {
        hand_over(&handed);
        await_inside(&handed.about_to);
      }
      OK(MPI_Isend(w->out[0].device, w->bytes[0], MPI_CHAR, peer, 9, w->comm, &request));
      if (draw(w, 2)) OK(MPI_Request_free(&request));
      if (who < 2) {
        if (who == 1) hand_over(&handed);
        await(&handed.done);
        token = handed.answer;
      } else {
        OK(MPI_Recv(&token, 1, MPI_INT, peer, 10, w->comm, MPI_STATUS_IGNORE));
      }
      CHECK(token == 3 * w->round + w->id);
      if (request != MPI_REQUEST_NULL) OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    } else {
      draw(w, 2);
      OK(MPI_Recv(w->in[0].device, w->bytes[0], MPI_CHAR, peer, 9, w->comm, MPI_STATUS_IGNORE));
      token = 3 * w->round + w->id;
      OK(MPI_Send(&token, 1, MPI_INT, peer, 10, w->comm));
    }
  }
  verify(w, 1);
}

static void persistent(struct Work* w) {
  MPI_Request requests[2];
  MPI_Status statuses[kRequests];
  prepare(w, 1);
  OK(MPI_Send_init(at(&w->out[0], w->out_on[0]), w->bytes[0], MPI_CHAR, peer, 5, w->comm, &requests[1]));
  OK(MPI_Recv_init(at(&w->in[0], w->in_on[0]), w->bytes[0], MPI_CHAR, peer, 5, w->comm, &requests[0]));
  for (int i = 0; i < 2; i++) {
    OK(MPI_Startall(2, requests));
    complete(next(&w->lot, 7), 2, requests, statuses);
    check_status(w, &statuses[0], 0, 5);
    verify(w, 1);
  }
  for (int i = 0; i < 2; i++) OK(MPI_Request_free(&requests[i]));
}

/// Also completed together with messages.
static void collectives(struct Work* w) {
  MPI_Request requests[3];
  MPI_Status statuses[kRequests];
  const int on = next(&w->lot, 2) == 0, count = 1 + (int)draw(w, 500);
  long values[500];
  for (int i = 0; i < count; i++) values[i] = 1000 * w->round + 10 * i + me;
  memory_write(on, at(&w->sum[0], on), values, sizeof(long) * (size_t)count);
  if (draw(w, 2)) {
    OK(MPI_Allreduce(at(&w->sum[0], on), at(&w->sum[1], !on), count, MPI_LONG, MPI_SUM, w->comm));
  } else {
    prepare(w, 1);
    OK(MPI_Irecv(at(&w->in[0], w->in_on[0]), w->bytes[0], MPI_CHAR, MPI_ANY_SOURCE, 3, w->comm, &requests[0]));
    OK(MPI_Iallreduce(at(&w->sum[0], on), at(&w->sum[1], !on), count, MPI_LONG, MPI_SUM, w->comm, &requests[1]));
    OK(MPI_Isend(at(&w->out[0], w->out_on[0]), w->bytes[0], MPI_CHAR, peer, 3, w->comm, &requests[2]));
    complete(next(&w->lot, 7), 3, requests, statuses);
    check_status(w, &statuses[0], 0, 3);
    verify(w, 1);
  }
  memory_read(!on, values, at(&w->sum[1], !on), sizeof(long) * (size_t)count);
  for (int i = 0; i < count; i++) CHECK(values[i] == 2000L * w->round + 20 * i + 1);
  for (int i = 0; i < count; i++) values[i] = me == 0 ? w->round + i : -1;
  memory_write(on, at(&w->sum[0], on), values, sizeof(long) * (size_t)count);
  OK(MPI_Bcast(at(&w->sum[0], on), count, MPI_LONG, 0, w->comm));
  memory_read(on, values, at(&w->sum[0], on), sizeof(long) * (size_t)count);
  for (int i = 0; i < count; i++) CHECK(values[i] == w->round + i);
}

static void* work(void* argument) {
  struct Work* w = argument;
  CHECK(device.set_current(device.context) == 0);
  for (w->round = 0; w->round < rounds; w->round++) {
    switch (draw(w, 8)) {
      case 0: blocking(w); break;
      case 1: answered(w); break;
      case 2: persistent(w); break;
      case 3: collectives(w); break;
      case 4: set(w, w->comm, 1); break;
      case 5: set(w, w->comm, 0); break;
      default: set(w, shared, 0);
    }
  }
  return NULL;
}

/// The first device buffer of the process, sent while a thread is inside the library since before anybody knew of
/// devices.
static void* wait_early(void* argument) {
  int token = 0;
  atomic_store((_Atomic int*)argument, 1);
  OK(MPI_Recv(&token, 1, MPI_INT, peer, 12, shared, MPI_STATUS_IGNORE));
  CHECK(token == 5);
  return NULL;
}

static void early(void) {
  pthread_t waiting;
  MPI_Request request;
  _Atomic int about_to = 0;
  char *out = memory_new(1, kBytes), *in = memory_new(1, kBytes);
  if (me == 0) {
    CHECK(pthread_create(&waiting, NULL, wait_early, &about_to) == 0);
    await_inside(&about_to);
    OK(MPI_Isend(out, kBytes, MPI_CHAR, peer, 11, shared, &request));
    CHECK(pthread_join(waiting, NULL) == 0);
    OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
  } else {
    int token = 5;
    OK(MPI_Recv(in, kBytes, MPI_CHAR, peer, 11, shared, MPI_STATUS_IGNORE));
    OK(MPI_Send(&token, 1, MPI_INT, peer, 12, shared));
  }
  memory_free(1, out);
  memory_free(1, in);
}

static void on_error(MPI_Comm* comm, int* code, ...) {
  (void)comm;
  fprintf(stderr, "staging_threads: error %d\n", *code);
  _exit(1);
}

static struct Buffer both(size_t bytes) { return (struct Buffer){memory_new(0, bytes), memory_new(1, bytes)}; }

int main(int argc, char** argv) {
  static struct Work works[kMostThreads];
  pthread_t running[kMostThreads], completing;
  int provided;
  rounds = argc > 1 ? atoi(argv[1]) : 30;
  threads = argc > 2 ? atoi(argv[2]) : threads;
  CHECK(threads >= 1 && threads <= kMostThreads);
  device_open();
  OK(MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided));
  CHECK(provided == MPI_THREAD_MULTIPLE);
  OK(MPI_Comm_rank(MPI_COMM_WORLD, &me));
  peer = 1 - me;
  MPI_Errhandler own, found;  // on MPICH resil sets another one while it asks
  OK(MPI_Comm_create_errhandler(on_error, &own));
  OK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, own));
  OK(MPI_Comm_dup(MPI_COMM_WORLD, &shared));
  early();
  for (int t = 0; t < threads; t++) {
    struct Work* w = &works[t];
    w->id = t;
    w->random = 4711u + 17u * (unsigned)t;
    w->lot = w->random + 99991u * (unsigned)(1 + me);
    OK(MPI_Comm_dup(MPI_COMM_WORLD, &w->comm));
    for (int i = 0; i < kBatch; i++) w->out[i] = both(kBytes), w->in[i] = both(kBytes);
    for (int i = 0; i < 2; i++) w->sum[i] = both(500 * sizeof(long));
  }
  CHECK(pthread_create(&completing, NULL, work_for_others, NULL) == 0);
  for (int t = 0; t < threads; t++) CHECK(pthread_create(&running[t], NULL, work, &works[t]) == 0);
  for (int t = 0; t < threads; t++) CHECK(pthread_join(running[t], NULL) == 0);
  struct Handed end = {0, NULL, MPI_COMM_NULL, 0, 0, 0};
  atomic_store(&handed_over, &end);
  CHECK(pthread_join(completing, NULL) == 0);
  for (int t = 0; t < threads; t++) OK(MPI_Comm_free(&works[t].comm));
  OK(MPI_Comm_free(&shared));
  OK(MPI_Comm_get_errhandler(MPI_COMM_WORLD, &found));
  CHECK(found == own);
  OK(MPI_Errhandler_free(&found));
  OK(MPI_Errhandler_free(&own));
  OK(MPI_Finalize());
  if (me == 0) printf("staging_threads: ok\n");
  return 0;
}
