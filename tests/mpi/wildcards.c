// SPDX-License-Identifier: Apache-2.0
//
// Random traffic between all ranks: few tags, many lengths, every kind of receive and completion in random order. What
// comes is checked by the program itself; there is no collective, so that the number of messages is known exactly.
// Usage: wildcards [SEED [MESSAGES]]
#include <mpi.h>
#include <string.h>

#include "check.h"

enum { kTags = 3, kMost = 24000, kWindow = 12, kPersistent = 4 };

typedef struct {
  MPI_Request request;
  int persistent, is_matched;
  int* data;
} Pending;

static unsigned long long state;

static unsigned next_random(unsigned below) {
  state = state * 6364136223846793005ULL + 1442695040888963407ULL;
  return (unsigned)(state >> 33) % below;
}

static unsigned mix(unsigned a, unsigned b) { return (a ^ b * 2654435761u) * 2246822519u ^ a >> 15; }

static int rank, size, seed, messages;
static MPI_Datatype strided;
static int received;

// The plan of a rank: its message number `i` goes to `*to` with `*tag` and `*length`. All ranks can compute it.
static void plan(int from, int i, int* to, int* tag, int* length) {
  unsigned value = mix(mix((unsigned)seed, (unsigned)from), (unsigned)i);
  *to = (int)(value % (unsigned)size);
  value = mix(value, 77);
  *tag = (int)(value % kTags);
  value = mix(value, 78);
  *length = value % 16 == 0 ? kMost - (int)(value / 16 % 100) : value % 16 == 1 ? 0 : (int)(value / 16 % 700);
}

// The first number says which message it is.
static int content(int from, int i, int at) {
  return at == 0 ? i : (int)mix(mix((unsigned)from, (unsigned)i), (unsigned)at);
}

static void accept(const int* data, int step, const MPI_Status* status) {
  int count, to, tag, length, from = status->MPI_SOURCE;
  OK(MPI_Get_count((MPI_Status*)status, MPI_INT, &count));
  if (count > 0) {
    CHECK(data[0] >= 0 && data[0] < messages);
    plan(from, data[0], &to, &tag, &length);
    CHECK(to == rank && tag == status->MPI_TAG && count == length);
    for (int at = 0; at < length; at++) CHECK(data[at * step] == content(from, data[0], at));
  }
  received++;
}

static Pending pending[kWindow + kPersistent];
static MPI_Request requests[kWindow + kPersistent];

// The receives use the plain type, or the strided one, by their place.
static int step_of(int place) { return place % 3 == 0 ? 2 : 1; }
static MPI_Datatype type_of(int place) { return place % 3 == 0 ? strided : MPI_INT; }

static void post(int place) {
  Pending* one = &pending[place];
  int source = next_random(2) ? MPI_ANY_SOURCE : (int)next_random((unsigned)size);
  int tag = next_random(2) ? MPI_ANY_TAG : (int)next_random(kTags);
  if (place == 0) source = MPI_ANY_SOURCE, tag = MPI_ANY_TAG;  // so that every message matches something
  if (one->persistent) {
    OK(MPI_Start(&requests[place]));
    return;
  }
  one->is_matched = 0;
  if (place != 0 && next_random(4) == 0) {
    int flag;
    MPI_Message message;
    MPI_Status status;
    OK(MPI_Improbe(source, tag, MPI_COMM_WORLD, &flag, &message, &status));
    if (flag && next_random(2)) {
      OK(MPI_Imrecv(one->data, kMost, type_of(place), &message, &requests[place]));
      one->is_matched = 1;
      return;
    }
    if (flag) {
      OK(MPI_Mrecv(one->data, kMost, type_of(place), &message, &status));
      accept(one->data, step_of(place), &status);
    }
  } else if (place != 0 && next_random(4) == 0) {
    int flag;
    MPI_Status status;
    OK(MPI_Iprobe(source, tag, MPI_COMM_WORLD, &flag, &status));
    if (flag) {
      OK(MPI_Recv(one->data, kMost, type_of(place), status.MPI_SOURCE, status.MPI_TAG, MPI_COMM_WORLD, &status));
      accept(one->data, step_of(place), &status);
      return;
    }
  }
  OK(MPI_Irecv(one->data, kMost, type_of(place), source, tag, MPI_COMM_WORLD, &requests[place]));
}

static int done_count, done_places[kWindow + kPersistent];
static MPI_Status done_statuses[kWindow + kPersistent];

static void complete_some(int may_wait) {
  int flag, n = kWindow + kPersistent;
  done_count = 0;
  switch (next_random(may_wait ? 4 : 3)) {
    case 0:
      OK(MPI_Testany(n, requests, &done_places[0], &flag, &done_statuses[0]));
      done_count = flag && done_places[0] != MPI_UNDEFINED;
      break;
    case 1: OK(MPI_Testsome(n, requests, &done_count, done_places, done_statuses)); break;
    case 2: {
      int place = (int)next_random((unsigned)n);
      if (requests[place] == MPI_REQUEST_NULL) return;
      OK(MPI_Test(&requests[place], &flag, &done_statuses[0]));
      done_places[0] = place;
      done_count = flag && done_statuses[0].MPI_SOURCE >= 0;  // of an inactive persistent request: empty
      break;
    }
    default:
      // Place 0 takes whatever comes.
      OK(MPI_Waitany(n, requests, &done_places[0], &done_statuses[0]));
      done_count = done_places[0] != MPI_UNDEFINED;
  }
  if (done_count == MPI_UNDEFINED) done_count = 0;
}

int main(int argc, char** argv) {
  OK(MPI_Init(&argc, &argv));
  OK(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
  OK(MPI_Comm_size(MPI_COMM_WORLD, &size));
  seed = argc > 1 ? atoi(argv[1]) : 1;
  messages = argc > 2 ? atoi(argv[2]) : 400;
  state = mix((unsigned)seed, 1000u + (unsigned)rank);
  MPI_Datatype gap;
  OK(MPI_Type_vector(1, 1, 2, MPI_INT, &gap));
  OK(MPI_Type_create_resized(gap, 0, 2 * sizeof(int), &strided));
  OK(MPI_Type_commit(&strided));
  OK(MPI_Type_free(&gap));

  int expected = 0, to, tag, length;
  for (int from = 0; from < size; from++)
    for (int i = 0; i < messages; i++) {
      plan(from, i, &to, &tag, &length);
      expected += to == rank;
    }
  for (int place = 0; place < kWindow + kPersistent; place++) {
    pending[place].data = malloc(2 * kMost * sizeof(int));
    CHECK(pending[place].data != NULL);
    requests[place] = MPI_REQUEST_NULL;
    if (place >= kWindow) {
      pending[place].persistent = 1;
      OK(MPI_Recv_init(pending[place].data, kMost, type_of(place),
                       place % 2 ? MPI_ANY_SOURCE : (int)next_random((unsigned)size),
                       place % 4 < 2 ? MPI_ANY_TAG : (int)next_random(kTags), MPI_COMM_WORLD, &requests[place]));
    }
  }
  int buffered = 64 * (kMost * (int)sizeof(int) + MPI_BSEND_OVERHEAD);
  void* room = malloc((size_t)buffered);
  OK(MPI_Buffer_attach(room, buffered));

  MPI_Request* sends = malloc((size_t)messages * sizeof(MPI_Request));
  int** data = calloc((size_t)messages, sizeof(int*));
  CHECK(sends != NULL && data != NULL);
  int sent = 0, small = 0;
  for (int place = 0; place < kWindow + kPersistent; place++) post(place);
  while (sent < messages || received < expected) {
    for (int burst = (int)next_random(4); burst > 0 && sent < messages; burst--, sent++) {
      plan(rank, sent, &to, &tag, &length);
      int wide = sent % 5 == 0, step = wide ? 2 : 1;
      MPI_Datatype type = wide ? strided : MPI_INT;
      data[sent] = malloc((2 * (size_t)length + 1) * sizeof(int));
      CHECK(data[sent] != NULL);
      for (int at = 0; at < length; at++) data[sent][at * step] = content(rank, sent, at);
      sends[sent] = MPI_REQUEST_NULL;
      switch (next_random(6)) {
        case 0: OK(MPI_Issend(data[sent], length, type, to, tag, MPI_COMM_WORLD, &sends[sent])); break;
        case 1:
          OK(MPI_Send_init(data[sent], length, type, to, tag, MPI_COMM_WORLD, &sends[sent]));
          OK(MPI_Start(&sends[sent]));
          break;
        case 2:
          if (length < 100 && small < 1000) {
            small++;
            OK(MPI_Bsend(data[sent], length, type, to, tag, MPI_COMM_WORLD));
            memset(data[sent], 0x5a, (2 * (size_t)length + 1) * sizeof(int));
            break;
          }
          __attribute__((fallthrough));
        default: OK(MPI_Isend(data[sent], length, type, to, tag, MPI_COMM_WORLD, &sends[sent])); break;
      }
    }
    if (received < expected) {
      complete_some(sent == messages);
      for (int i = 0; i < done_count; i++)
        accept(pending[done_places[i]].data, step_of(done_places[i]), &done_statuses[i]);
      for (int i = 0; i < done_count; i++) post(done_places[i]);
    }
  }
  for (int i = 0; i < messages; i++) {
    OK(MPI_Wait(&sends[i], MPI_STATUS_IGNORE));
    if (sends[i] != MPI_REQUEST_NULL) OK(MPI_Request_free(&sends[i]));
    free(data[i]);
  }
  // What is still posted gets nothing.
  for (int place = 0; place < kWindow + kPersistent; place++) {
    MPI_Status status;
    int cancelled;
    if (requests[place] == MPI_REQUEST_NULL) continue;
    if (!pending[place].is_matched) OK(MPI_Cancel(&requests[place]));
    OK(MPI_Wait(&requests[place], &status));
    OK(MPI_Test_cancelled(&status, &cancelled));
    CHECK(cancelled || pending[place].persistent);
    if (requests[place] != MPI_REQUEST_NULL) OK(MPI_Request_free(&requests[place]));
    free(pending[place].data);
  }
  OK(MPI_Buffer_detach(&room, &buffered));
  free(room);
  OK(MPI_Type_free(&strided));
  if (rank == 0) printf("wildcards %d messages\n", size * messages);
  OK(MPI_Finalize());
  free(sends);
  free(data);
  return 0;
}
