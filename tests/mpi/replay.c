// SPDX-License-Identifier: Apache-2.0
//
// A pool of workers whose answers depend on the order in which rank 0 takes their messages, and so do the messages that
// follow. Delays of random length make that order another one in every run. Prints what it computed, bit for bit.
// Usage: replay KIND[,KIND...] ROUNDS; KIND: how rank 0 receives. Of several, one after the other, a line each.
//
// REPLAY_FLIP=RANK:ROUND flips one bit of that worker's state in that round: silent corruption of memory.
// REPLAY_WAY=RANK:ROUND makes that worker send one message more, of another tag, before it (a program that is not
// deterministic).
// REPLAY_STOP=RANK:ROUND makes it leave the loop there.
// REPLAY_TIME=RANK:0 multiplies its state by MPI_Wtime, more or less, in every round.
#include <mpi.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

enum { kMost = 64, kWay = 7 };

static int rank, size, rounds, taken;
static double sum = 1;
static double values[kMost], answers[kMost];
static MPI_Request requests[kMost], sends[kMost];
static unsigned long long noise;

static void delay(void) {
  noise = noise * 6364136223846793005ULL + 1442695040888963407ULL;
  const unsigned turns = (unsigned)(noise >> 33) % 20000;
  for (volatile unsigned i = 0; i < turns; i++) {}
}

static int asked(const char* name, int round) {
  int of = -1, at = -1;
  const char* text = getenv(name);
  return text != NULL && sscanf(text, "%d:%d", &of, &at) == 2 && of == rank && at == round;
}

// A message of `value` from `source` has been taken.
static void take(int source, int tag, double value) {
  if (tag == kWay) return;
  sum = sum * 0.9990234375 + value * source + tag;
  taken++;
  OK(MPI_Wait(&sends[source], MPI_STATUS_IGNORE));
  answers[source] = sum;
  OK(MPI_Isend(&answers[source], 1, MPI_DOUBLE, source, 1, MPI_COMM_WORLD, &sends[source]));
}

static int expected(void) { return rounds * (size - 1); }

static void by_recv(void) {
  while (taken < expected()) {
    MPI_Status status;
    double value;
    OK(MPI_Recv(&value, 1, MPI_DOUBLE, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &status));
    take(status.MPI_SOURCE, status.MPI_TAG, value);
  }
}

static void by_probe(int matched, int waits) {
  long polls = 0;
  while (taken < expected()) {
    MPI_Status status;
    MPI_Message message;
    double value;
    int flag = 1;
    if (waits && matched) OK(MPI_Mprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &message, &status));
    else if (waits) OK(MPI_Probe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &status));
    else if (matched) OK(MPI_Improbe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &flag, &message, &status));
    else OK(MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &flag, &status));
    if (!flag) {
      polls++;
      continue;
    }
    if (matched) OK(MPI_Mrecv(&value, 1, MPI_DOUBLE, &message, MPI_STATUS_IGNORE));
    else OK(MPI_Recv(&value, 1, MPI_DOUBLE, status.MPI_SOURCE, status.MPI_TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    sum += (double)(polls % 5);  // how often nothing was there is a decision of MPI's, too
    take(status.MPI_SOURCE, status.MPI_TAG, value);
  }
}

// Requests 1 .. size-1: from each worker, or `wild` from anybody; `persistent` ones are started again.
static void post(int i, int wild, int persistent, int again) {
  const int source = wild ? MPI_ANY_SOURCE : i, tag = wild ? MPI_ANY_TAG : 0;
  if (!persistent) {
    OK(MPI_Irecv(&values[i], 1, MPI_DOUBLE, source, tag, MPI_COMM_WORLD, &requests[i]));
    return;
  }
  if (!again) OK(MPI_Recv_init(&values[i], 1, MPI_DOUBLE, source, tag, MPI_COMM_WORLD, &requests[i]));
  OK(MPI_Start(&requests[i]));
}

static void by_requests(const char* how, int wild, int persistent) {
  const int count = size - 1;
  int posted = 0;
  for (int i = 1; i <= count; i++) requests[i] = MPI_REQUEST_NULL;
  // As many as messages that are still to come, so that none is left pending at the end.
  for (int i = 1; i <= count && posted < expected(); i++, posted++) post(i, wild, persistent, 0);
  while (taken < expected()) {
    MPI_Status statuses[kMost];
    int indices[kMost], done = 0, flag = 0;
    if (strcmp(how, "waitany") == 0) {
      OK(MPI_Waitany(count, requests + 1, indices, statuses));
      done = 1;
    } else if (strcmp(how, "testany") == 0) {
      OK(MPI_Testany(count, requests + 1, indices, &flag, statuses));
      done = flag;
    } else if (strcmp(how, "waitsome") == 0) {
      OK(MPI_Waitsome(count, requests + 1, &done, indices, statuses));
    } else if (strcmp(how, "testsome") == 0) {
      OK(MPI_Testsome(count, requests + 1, &done, indices, statuses));
    } else {  // one after the other
      for (int i = 0; i < count; i++) {
        if (requests[i + 1] == MPI_REQUEST_NULL) continue;
        OK(MPI_Request_get_status(requests[i + 1], &flag, MPI_STATUS_IGNORE));
        if (!flag) continue;
        OK(MPI_Test(&requests[i + 1], &flag, &statuses[done]));
        CHECK(flag);
        indices[done++] = i;
        if (persistent) break;  // inactive ones look complete
      }
    }
    for (int k = 0; k < done; k++) {
      const int i = indices[k] + 1;
      take(statuses[k].MPI_SOURCE, statuses[k].MPI_TAG, values[i]);
      if (wild && posted == expected()) continue;
      posted++;
      post(i, wild, persistent, 1);
    }
  }
  for (int i = 1; i <= count; i++) {
    if (!wild) OK(MPI_Cancel(&requests[i]));  // one more than there are messages
    if (!wild) OK(MPI_Wait(&requests[i], MPI_STATUS_IGNORE));
    if (persistent) OK(MPI_Request_free(&requests[i]));
  }
}

// Everybody draws tickets from a counter of rank 0, and what a ticket is worth depends on who draws it.
static void tickets(void) {
  MPI_Win window;
  long counter = 0, one = 1;
  OK(MPI_Win_create(&counter, sizeof counter, sizeof counter, MPI_INFO_NULL, MPI_COMM_WORLD, &window));
  for (int round = 0; round < rounds; round++) {
    long ticket = -1;
    delay();
    OK(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, window));
    OK(MPI_Fetch_and_op(&one, &ticket, MPI_LONG, 0, 0, MPI_SUM, window));
    OK(MPI_Win_unlock(0, window));
    sum = sum * 0.9990234375 + (double)ticket * (rank + 1);
  }
  OK(MPI_Win_free(&window));
  double others = 0;
  OK(MPI_Reduce(&sum, &others, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD));
  if (rank == 0) sum = others;
}

static void master(const char* kind) {
  MPI_Request listener;
  double nothing = 0;
  OK(MPI_Irecv(&nothing, 1, MPI_DOUBLE, MPI_ANY_SOURCE, 99, MPI_COMM_WORLD, &listener));  // nobody sends this
  for (int i = 0; i < size; i++) sends[i] = MPI_REQUEST_NULL;
  if (strcmp(kind, "recv") == 0) by_recv();
  else if (strcmp(kind, "probe") == 0) by_probe(0, 1);
  else if (strcmp(kind, "iprobe") == 0) by_probe(0, 0);
  else if (strcmp(kind, "mprobe") == 0) by_probe(1, 1);
  else if (strcmp(kind, "improbe") == 0) by_probe(1, 0);
  else if (strncmp(kind, "any-", 4) == 0) by_requests(kind + 4, 1, 0);
  else if (strncmp(kind, "persistent-", 11) == 0) by_requests(kind + 11, 1, 1);
  else by_requests(kind, 0, 0);
  OK(MPI_Waitall(size, sends, MPI_STATUSES_IGNORE));
  OK(MPI_Cancel(&listener));
  MPI_Status status;
  int cancelled = 0;
  OK(MPI_Wait(&listener, &status));
  OK(MPI_Test_cancelled(&status, &cancelled));
  CHECK(cancelled);
}

static void worker(int tags) {
  double state = rank, answer;
  for (int round = 0; round < rounds; round++) {
    delay();
    if (asked("REPLAY_FLIP", round)) {
      unsigned long long bits;
      memcpy(&bits, &state, 8);
      bits ^= 1ULL << 20;
      memcpy(&state, &bits, 8);
    }
    if (asked("REPLAY_STOP", round)) break;
    // Not a sum: Open MPI's clock begins with 0, and where the others were first, the answer is far too large for
    // seconds.
    if (asked("REPLAY_TIME", 0)) state *= 1 + MPI_Wtime();
    if (asked("REPLAY_WAY", round)) OK(MPI_Send(&state, 1, MPI_DOUBLE, 0, kWay, MPI_COMM_WORLD));
    OK(MPI_Send(&state, 1, MPI_DOUBLE, 0, tags ? round % 3 : 0, MPI_COMM_WORLD));
    OK(MPI_Recv(&answer, 1, MPI_DOUBLE, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    state = state * 0.5 + answer * 1.0001;
  }
  sum = state;
}

static void play(const char* kind) {
  const int own = !strstr(kind, "-") && !strstr(kind, "probe") && strcmp(kind, "recv") != 0;
  sum = 1;
  taken = 0;
  if (strcmp(kind, "tickets") == 0) tickets();
  else if (rank == 0) master(kind);
  else worker(!own);
  double all = 0;
  OK(MPI_Allreduce(&sum, &all, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD));
  if (rank == 0) printf("%s %a %a\n", kind, sum, all);
}

int main(int argc, char** argv) {
  OK(MPI_Init(&argc, &argv));
  OK(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
  OK(MPI_Comm_size(MPI_COMM_WORLD, &size));
  CHECK(argc > 2 && size > 1 && size <= kMost);
  rounds = atoi(argv[2]);
  noise = processor_ticks() * 2654435761ULL + (unsigned long long)rank;
  for (const char* kind = strtok(argv[1], ","); kind != NULL; kind = strtok(NULL, ",")) play(kind);
  OK(MPI_Finalize());
  return 0;
}
