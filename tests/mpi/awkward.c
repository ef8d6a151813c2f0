// SPDX-License-Identifier: Apache-2.0
//
// What programs may do, or get away with, and what mode checksum once made of it: an abort, wrong data in a file, a
// long wait, an accusation. One case a run, on two ranks: awkward CASE FILE [POLLS]. With POLLS the program itself
// waits by MPI_Testall, as intercept.cpp would: how shim/model/request_class.h was measured.
#include <mpi.h>
#include <string.h>
#include <time.h>

#include "check.h"

enum { kMany = 10, kLong = 1000, kRounds = 10 };

static int rank, other, polls;
static const char* path;
static int out[kMany][kLong], in[kMany][kLong];

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static void wait_all(int count, MPI_Request* requests) {
  int done = 0;
  if (!polls) OK(MPI_Waitall(count, requests, MPI_STATUSES_IGNORE));
  else
    while (!done) OK(MPI_Testall(count, requests, &done, MPI_STATUSES_IGNORE));
}

static int value(int who, int round, int i, int k) { return ((round * 2 + who) * kMany + i) * kLong + k; }

static void fill(int round) {
  for (int i = 0; i < kMany; i++)
    for (int k = 0; k < kLong; k++) out[i][k] = value(rank, round, i, k);
}

static void came(int round) {
  for (int i = 0; i < kMany; i++)
    for (int k = 0; k < kLong; k++) CHECK(in[i][k] == value(other, round, i, k));
}

static MPI_Offset place(int who, int i) { return ((MPI_Offset)i * 2 + who) * (MPI_Offset)sizeof(out[0]); }

// Writes, and messages that go with them in one call if `mixed`. What the other rank wrote is read back.
static void writes(int collective, int mixed) {
  MPI_File file;
  MPI_Request requests[2 * kMany];
  OK(MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file));
  for (int round = 0; round < kRounds; round++) {
    int count = 0, from = -1;
    fill(round);
    for (int i = 0; i < kMany; i++) {
      if (collective) OK(MPI_File_iwrite_at_all(file, place(rank, i), out[i], kLong, MPI_INT, &requests[count++]));
      else OK(MPI_File_iwrite_at(file, place(rank, i), out[i], kLong, MPI_INT, &requests[count++]));
    }
    if (mixed) {
      OK(MPI_Irecv(&from, 1, MPI_INT, other, 5, MPI_COMM_WORLD, &requests[count++]));
      OK(MPI_Isend(&rank, 1, MPI_INT, other, 5, MPI_COMM_WORLD, &requests[count++]));
    }
    wait_all(count, requests);
    CHECK(!mixed || from == other);
    OK(MPI_Barrier(MPI_COMM_WORLD));
    for (int i = 0; i < kMany; i++)
      OK(MPI_File_read_at(file, place(other, i), in[i], kLong, MPI_INT, MPI_STATUS_IGNORE));
    came(round);
    OK(MPI_Barrier(MPI_COMM_WORLD));
  }
  OK(MPI_File_close(&file));
}

// A rank that waits in the MPI's own MPI_Waitall owes nobody anything: the other's checked receive comes first.
static void waits_beside(void) {
  MPI_File file;
  MPI_Request requests[2];
  OK(MPI_File_open(MPI_COMM_SELF, path, MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file));
  for (int round = 0; round < 200; round++) {
    int said = round, heard = -1;
    if (rank == 0) {
      OK(MPI_Send(&said, 1, MPI_INT, 1, 1, MPI_COMM_WORLD));
      OK(MPI_File_iwrite_at(file, 0, out[0], kLong, MPI_INT, &requests[0]));
      OK(MPI_Irecv(&heard, 1, MPI_INT, 1, 2, MPI_COMM_WORLD, &requests[1]));
      OK(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE));
    } else {
      OK(MPI_Recv(&heard, 1, MPI_INT, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
      OK(MPI_Send(&said, 1, MPI_INT, 0, 2, MPI_COMM_WORLD));
    }
    CHECK(heard == round);
  }
  OK(MPI_File_close(&file));
}

static void messages(int persistent) {
  MPI_Request requests[2 * kMany];
  for (int i = 0; persistent && i < kMany; i++) {
    OK(MPI_Recv_init(in[i], kLong, MPI_INT, other, i, MPI_COMM_WORLD, &requests[i]));
    OK(MPI_Send_init(out[i], kLong, MPI_INT, other, i, MPI_COMM_WORLD, &requests[kMany + i]));
  }
  for (int round = 0; round < kRounds; round++) {
    fill(round);
    for (int i = 0; !persistent && i < kMany; i++) {
      OK(MPI_Irecv(in[i], kLong, MPI_INT, other, i, MPI_COMM_WORLD, &requests[i]));
      OK(MPI_Isend(out[i], kLong, MPI_INT, other, i, MPI_COMM_WORLD, &requests[kMany + i]));
    }
    if (persistent) OK(MPI_Startall(2 * kMany, requests));
    wait_all(2 * kMany, requests);
    came(round);
  }
  for (int i = 0; persistent && i < 2 * kMany; i++) OK(MPI_Request_free(&requests[i]));
}

static void collectives(void) {
  MPI_Request requests[kMany];
  for (int round = 0; round < kRounds; round++) {
    fill(round);
    for (int i = 0; i < kMany; i++)
      OK(MPI_Iallreduce(out[i], in[i], kLong, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &requests[i]));
    wait_all(kMany, requests);
    for (int i = 0; i < kMany; i++)
      for (int k = 0; k < kLong; k++) CHECK(in[i][k] == value(0, round, i, k) + value(1, round, i, k));
  }
}

#if MPI_VERSION >= 4
static void partitioned(void) {
  MPI_Request requests[2];
  OK(MPI_Psend_init(out, kMany, kLong, MPI_INT, other, 3, MPI_COMM_WORLD, MPI_INFO_NULL, &requests[0]));
  OK(MPI_Precv_init(in, kMany, kLong, MPI_INT, other, 3, MPI_COMM_WORLD, MPI_INFO_NULL, &requests[1]));
  for (int round = 0; round < kRounds; round++) {
    OK(MPI_Startall(2, requests));
    fill(round);
    for (int i = 0; i < kMany; i++) OK(MPI_Pready(i, requests[0]));
    wait_all(2, requests);
    came(round);
  }
  OK(MPI_Request_free(&requests[0]));
  OK(MPI_Request_free(&requests[1]));
}

static void persistent_collectives(void) {
  MPI_Request requests[kMany];
  for (int i = 0; i < kMany; i++)
    OK(MPI_Allreduce_init(out[i], in[i], kLong, MPI_INT, MPI_SUM, MPI_COMM_WORLD, MPI_INFO_NULL, &requests[i]));
  for (int round = 0; round < kRounds; round++) {
    fill(round);
    OK(MPI_Startall(kMany, requests));
    wait_all(kMany, requests);
    for (int i = 0; i < kMany; i++)
      CHECK(in[i][kLong - 1] == value(0, round, i, kLong - 1) + value(1, round, i, kLong - 1));
  }
  for (int i = 0; i < kMany; i++) OK(MPI_Request_free(&requests[i]));
}

static void exchanges(int length) {
  MPI_Request requests[kMany];
  for (int round = 0; round < kRounds; round++) {
    fill(round);
    for (int i = 0; i < kMany; i++)
      OK(MPI_Isendrecv(out[i], length, MPI_INT, other, i, in[i], length, MPI_INT, other, i, MPI_COMM_WORLD,
                       &requests[i]));
    wait_all(kMany, requests);
    for (int i = 0; i < kMany; i++)
      for (int k = 0; k < length; k++) CHECK(in[i][k] == value(other, round, i, k));
  }
}
#endif

// Ranks of one world meet once more, as strangers do.
static void joined(void) {
  char port[MPI_MAX_PORT_NAME];
  MPI_Comm inter, merged, copy;
  int sum, heard, there;
  for (int round = 0; round < 2; round++) {
    if (rank == 0) {
      OK(MPI_Open_port(MPI_INFO_NULL, port));
      OK(MPI_Send(port, MPI_MAX_PORT_NAME, MPI_CHAR, 1, 0, MPI_COMM_WORLD));
      OK(MPI_Comm_accept(port, MPI_INFO_NULL, 0, MPI_COMM_SELF, &inter));
    } else {
      OK(MPI_Recv(port, MPI_MAX_PORT_NAME, MPI_CHAR, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
      OK(MPI_Comm_connect(port, MPI_INFO_NULL, 0, MPI_COMM_SELF, &inter));
    }
    OK(MPI_Sendrecv(&rank, 1, MPI_INT, 0, 1, &heard, 1, MPI_INT, 0, 1, inter, MPI_STATUS_IGNORE));
    CHECK(heard == other);
    OK(MPI_Intercomm_merge(inter, rank, &merged));
    OK(MPI_Comm_dup(merged, &copy));
    OK(MPI_Comm_rank(merged, &there));
    OK(MPI_Sendrecv(&rank, 1, MPI_INT, 1 - there, 1, &heard, 1, MPI_INT, 1 - there, 1, copy, MPI_STATUS_IGNORE));
    OK(MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, merged));
    CHECK(heard == other && sum == 1);
    OK(MPI_Comm_free(&copy));
    OK(MPI_Comm_free(&merged));
    OK(MPI_Comm_disconnect(&inter));
    if (rank == 0) OK(MPI_Close_port(port));
  }
}

// MPI forbids what these do, but what they receive does not matter to them: two receives into one place,
static void same_room(void) {
  MPI_Request requests[4];
  for (int round = 0; round < kRounds; round++) {
    fill(round);
    for (int i = 0; i < 2; i++) OK(MPI_Irecv(in[0], kLong, MPI_INT, other, i, MPI_COMM_WORLD, &requests[i]));
    OK(MPI_Barrier(MPI_COMM_WORLD));
    for (int i = 0; i < 2; i++) OK(MPI_Isend(out[i], kLong, MPI_INT, other, i, MPI_COMM_WORLD, &requests[2 + i]));
    OK(MPI_Waitall(4, requests, MPI_STATUSES_IGNORE));
  }
}

// ten pending sums into one place,
static void same_result(void) {
  MPI_Request requests[kMany];
  for (int round = 0; round < kRounds; round++) {
    fill(round);
    for (int i = 0; i < kMany; i++)
      OK(MPI_Iallreduce(out[i], in[0], kLong, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &requests[i]));
    OK(MPI_Waitall(kMany, requests, MPI_STATUSES_IGNORE));
  }
}

// and blocks of one call.
static void same_blocks(void) {
  const int counts[2] = {kLong, kLong}, given[2] = {0, kLong * (int)sizeof(int)}, got[2] = {0, 8};
  const MPI_Datatype types[2] = {MPI_INT, MPI_INT};
  MPI_Request request;
  for (int round = 0; round < kRounds; round++) {
    fill(round);
    OK(MPI_Ialltoallw(out, counts, given, types, in, counts, got, types, MPI_COMM_WORLD, &request));
    OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
  }
}

// Blocking calls that receive where a pending receive, or sum, does.
static void same_beside(void) {
  enum { kHalf = kLong / 2 };
  MPI_Request requests[2];
  for (int round = 0; round < 10 * kRounds; round++) {
    const int sums = round % 5 == 4;
    fill(round);
    if (sums) OK(MPI_Iallreduce(out[0], in[0], kLong, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &requests[0]));
    else OK(MPI_Irecv(in[0], kLong, MPI_INT, other, 0, MPI_COMM_WORLD, &requests[0]));
    OK(MPI_Isend(out[0], kLong, MPI_INT, other, sums, MPI_COMM_WORLD, &requests[1]));
    switch (round % 5) {
      case 0:
        OK(MPI_Sendrecv(out[1], kLong, MPI_INT, other, 1, in[0], kLong, MPI_INT, other, 1, MPI_COMM_WORLD,
                        MPI_STATUS_IGNORE));
        break;
      case 1: OK(MPI_Allgather(out[1], kHalf, MPI_INT, in[0], kHalf, MPI_INT, MPI_COMM_WORLD)); break;
      case 2: OK(MPI_Alltoall(out[1], kHalf, MPI_INT, in[0], kHalf, MPI_INT, MPI_COMM_WORLD)); break;
      case 3: OK(MPI_Allreduce(out[1], in[0], kLong, MPI_INT, MPI_SUM, MPI_COMM_WORLD)); break;
      default: OK(MPI_Recv(in[0], kLong, MPI_INT, other, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    }
    OK(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE));
  }
}

// The same on two communicators: what is pending on one, and what comes to the same memory by the other.
static void same_elsewhere(void) {
  enum { kHalf = kLong / 2, kKinds = 9 };
  MPI_Comm one, two;
  MPI_Datatype column;
  MPI_Request requests[4];
  OK(MPI_Comm_dup(MPI_COMM_WORLD, &one));
  OK(MPI_Comm_dup(MPI_COMM_WORLD, &two));
  OK(MPI_Type_vector(kHalf, 1, 2, MPI_INT, &column));
  OK(MPI_Type_commit(&column));
  for (int round = 0; round < kKinds * kRounds; round++) {
    const int kind = round % kKinds, derived = kind == 6 || kind == 7, sum = kind == 8;
    int *to = in[0], *late = in[0] + (kind == 1 ? kHalf : 0);
    int count = 1;
    fill(round);
    if (sum) OK(MPI_Iallreduce(out[0], to, kLong, MPI_INT, MPI_SUM, one, &requests[0]));
    else if (derived) OK(MPI_Irecv(to, 1, column, other, 0, one, &requests[0]));
    else OK(MPI_Irecv(to, kLong, MPI_INT, other, 0, one, &requests[0]));
    if (!sum) OK(MPI_Isend(out[0], derived ? kHalf : kLong, MPI_INT, other, 0, one, &requests[count++]));
    switch (kind) {
      case 0:
      case 1:
        OK(MPI_Sendrecv(out[1], kLong, MPI_INT, other, 1, late, kLong, MPI_INT, other, 1, two, MPI_STATUS_IGNORE));
        break;
      case 2: OK(MPI_Allgather(out[1], kHalf, MPI_INT, to, kHalf, MPI_INT, two)); break;
      case 3: OK(MPI_Alltoall(out[1], kHalf, MPI_INT, to, kHalf, MPI_INT, two)); break;
      case 4: OK(MPI_Allreduce(out[1], to, kLong, MPI_INT, MPI_SUM, two)); break;
      case 6:
        OK(MPI_Sendrecv(out[1], kHalf, MPI_INT, other, 1, to, 1, column, other, 1, two, MPI_STATUS_IGNORE));
        break;
      default:
        OK(MPI_Isend(out[1], kLong, MPI_INT, other, 1, two, &requests[count++]));
        OK(MPI_Irecv(to, kLong, MPI_INT, other, 1, two, &requests[count++]));
    }
    OK(MPI_Waitall(count, requests, MPI_STATUSES_IGNORE));
  }
  OK(MPI_Type_free(&column));
  OK(MPI_Comm_free(&one));
  OK(MPI_Comm_free(&two));
}

// The ranks call different collectives, and neither MPI minds.
static void mismatched(void) {
  int mine = rank, sum;
  if (rank == 0) OK(MPI_Bcast(&mine, 1, MPI_INT, 0, MPI_COMM_WORLD));
  else OK(MPI_Reduce(&mine, &sum, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD));
}

// What can be left unpaired by then, and how long files and the end take.
static double synchronised(int files) {
  MPI_File file;
  char mine[4096];
  int token = 0;
  const double start = now();
  snprintf(mine, sizeof mine, "%s.%d", path, rank);
  OK(MPI_File_open(MPI_COMM_SELF, mine, MPI_MODE_CREATE | MPI_MODE_RDWR | MPI_MODE_DELETE_ON_CLOSE, MPI_INFO_NULL,
                   &file));
  for (int i = 0; rank == 0 && i < files; i++) OK(MPI_File_sync(file));
  OK(MPI_File_close(&file));
  if (rank == 0)  // until then the other one is in MPI, and not at its end
    OK(MPI_Send(&token, 1, MPI_INT, 1, 77, MPI_COMM_WORLD));
  else OK(MPI_Recv(&token, 1, MPI_INT, 0, 77, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
  return now() - start;
}

int main(int argc, char** argv) {
  CHECK(argc >= 3);
  const char* name = argv[1];
  path = argv[2];
  polls = argc > 3;
  double seconds = 0;
  OK(MPI_Init(&argc, &argv));
  OK(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
  other = 1 - rank;
  if (!strcmp(name, "writes")) writes(0, 0);
  else if (!strcmp(name, "writes-all")) writes(1, 0);
  else if (!strcmp(name, "writes-and-messages")) writes(0, 1);
  else if (!strcmp(name, "waits-beside")) waits_beside();
  else if (!strcmp(name, "messages")) messages(0);
  else if (!strcmp(name, "persistent")) messages(1);
  else if (!strcmp(name, "collectives")) collectives();
  else if (!strcmp(name, "same-room")) same_room();
  else if (!strcmp(name, "same-result")) same_result();
  else if (!strcmp(name, "same-blocks")) same_blocks();
  else if (!strcmp(name, "same-beside")) same_beside();
  else if (!strcmp(name, "same-elsewhere")) same_elsewhere();
  else if (!strcmp(name, "joined")) joined(), seconds = synchronised(100);
  else if (!strcmp(name, "mismatched")) mismatched(), seconds = synchronised(100);
#if MPI_VERSION >= 4
  else if (!strcmp(name, "partitioned")) partitioned();
  else if (!strcmp(name, "persistent-collectives")) persistent_collectives();
  else if (!strcmp(name, "exchanges")) exchanges(kLong);
  else if (!strcmp(name, "empty-exchanges")) exchanges(0), seconds = synchronised(100);
#endif
  else CHECK(!"a case");
  const double end = now();
  OK(MPI_Finalize());
  if (rank == 0) printf("awkward %s: files %.3f s, MPI_Finalize %.3f s\n", name, seconds, now() - end);
  return 0;
}
