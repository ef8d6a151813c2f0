// SPDX-License-Identifier: Apache-2.0
//
// Point-to-point traffic of all kinds between neighbours on a ring: every send mode, blocking, nonblocking and
// persistent; sendrecv, probes, matched probes, wildcards; eight datatypes; 1 B to 1 MiB. Each packet has a content of
// its own and each receive a fresh buffer. Counts the packets that arrive wrong.
//
// messages ROUNDS [SEED [LARGEST]]
#include "traffic.h"

enum { kBatch = 8, kTagEnd = 30000 };

static int me, ranks, to, from;
static char *out[kBatch], *in[kBatch];
static uint64_t sent, received;  ///< packets so far, to `to` and from `from`
static uint64_t seed;

/// Number of packet `k` of a rank: what it holds follows from it.
static uint64_t number(int rank, uint64_t k) { return (seed << 52) ^ ((uint64_t)rank << 44) ^ k; }
static int tag_of(uint64_t k) { return (int)(k % kTagEnd); }

typedef struct {
  const Type* type;
  int count;
} Shape;

/// Both sides draw the same shape.
static Shape shape_of(uint64_t round, int k, size_t most) {
  const uint64_t draw = mixed(seed * 1000003 + round * 64 + (uint64_t)k);
  Shape s = {&types[draw % kTypes], 0};
  s.count = elements(s.type, some_size(draw / kTypes, most));
  return s;
}

static void fill_out(int k, Shape s) { fill(number(me, sent), s.type, s.count, out[k]); }
static void clear_in(int k, Shape s) { clear(number(from, received), s.type, s.count, in[k]); }
static void look_at(int k, Shape s) {
  look(number(from, received), s.type, s.count, in[k]);
  received++;
}

/// MPICH 4.0.2 fails by itself where it packs a datatype with holes (MPI_Bsend, MPI_Sendrecv_replace): not our subject.
static int dense(Shape s) { return s.type->runs == 1 && s.type->size == s.type->extent; }
static int allowed(int mode, Shape s) { return dense(s) ? mode : mode % 2; }

static void send_mode(int mode, const void* buffer, Shape s, int tag) {
  mode = allowed(mode, s);
  switch (mode) {
    case 0: MUST(MPI_Send(buffer, s.count, s.type->type, to, tag, MPI_COMM_WORLD)); break;
    case 1: MUST(MPI_Ssend(buffer, s.count, s.type->type, to, tag, MPI_COMM_WORLD)); break;
    default: MUST(MPI_Bsend(buffer, s.count, s.type->type, to, tag, MPI_COMM_WORLD)); break;
  }
}

static void isend_mode(int mode, const void* buffer, Shape s, int tag, MPI_Request* request) {
  mode = allowed(mode, s);
  switch (mode) {
    case 0: MUST(MPI_Isend(buffer, s.count, s.type->type, to, tag, MPI_COMM_WORLD, request)); break;
    case 1: MUST(MPI_Issend(buffer, s.count, s.type->type, to, tag, MPI_COMM_WORLD, request)); break;
    default: MUST(MPI_Ibsend(buffer, s.count, s.type->type, to, tag, MPI_COMM_WORLD, request)); break;
  }
}

/// The receive of one packet in one of seven ways.
static void receive_one(int way, Shape s) {
  MPI_Status status;
  MPI_Message message;
  MPI_Request request;
  const int tag = tag_of(received);
  int flag = 0;
  clear_in(0, s);
  switch (way) {
    case 0: MUST(MPI_Recv(in[0], s.count, s.type->type, from, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE)); break;
    case 1: MUST(MPI_Recv(in[0], s.count, s.type->type, MPI_ANY_SOURCE, tag, MPI_COMM_WORLD, &status)); break;
    case 2: MUST(MPI_Recv(in[0], s.count, s.type->type, from, MPI_ANY_TAG, MPI_COMM_WORLD, &status)); break;
    case 3:
      MUST(MPI_Probe(from, MPI_ANY_TAG, MPI_COMM_WORLD, &status));
      MUST(MPI_Recv(in[0], s.count, s.type->type, status.MPI_SOURCE, status.MPI_TAG, MPI_COMM_WORLD, &status));
      break;
    case 4:
      MUST(MPI_Mprobe(from, tag, MPI_COMM_WORLD, &message, MPI_STATUS_IGNORE));
      MUST(MPI_Mrecv(in[0], s.count, s.type->type, &message, &status));
      break;
    case 5:
      while (!flag) MUST(MPI_Improbe(from, tag, MPI_COMM_WORLD, &flag, &message, MPI_STATUS_IGNORE));
      MUST(MPI_Imrecv(in[0], s.count, s.type->type, &message, &request));
      MUST(MPI_Wait(&request, &status));
      break;
    default:
      MUST(MPI_Irecv(in[0], s.count, s.type->type, from, tag, MPI_COMM_WORLD, &request));
      while (!flag) MUST(MPI_Test(&request, &flag, MPI_STATUS_IGNORE));
  }
  look_at(0, s);
}

/// Blocking sends: even ranks first send, odd ranks first receive (rank counts are even).
static void blocking(uint64_t round, uint64_t draw, size_t most) {
  const Shape s = shape_of(round, 0, most);
  for (int turn = 0; turn < 2; turn++) {
    if ((me + turn) % 2 == 0) {
      fill_out(0, s);
      send_mode((int)(draw % 3), out[0], s, tag_of(sent));
      sent++;
    } else {
      receive_one((int)(draw / 3 % 7), s);
    }
  }
}

/// Receives posted first, then ready sends.
static void ready(uint64_t round, uint64_t draw, size_t most) {
  const Shape s = shape_of(round, 0, most);
  MPI_Request requests[2];
  clear_in(0, s);
  MUST(MPI_Irecv(in[0], s.count, s.type->type, from, tag_of(received), MPI_COMM_WORLD, &requests[0]));
  MUST(MPI_Barrier(MPI_COMM_WORLD));
  fill_out(0, s);
  if (draw % 2 == 0) {
    MUST(MPI_Rsend(out[0], s.count, s.type->type, to, tag_of(sent), MPI_COMM_WORLD));
    MUST(MPI_Wait(&requests[0], MPI_STATUS_IGNORE));
  } else {
    MUST(MPI_Irsend(out[0], s.count, s.type->type, to, tag_of(sent), MPI_COMM_WORLD, &requests[1]));
    MUST(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE));
  }
  sent++;
  look_at(0, s);
}

/// A batch of equal shape, nonblocking, completed in one of five ways.
static void batch(uint64_t round, uint64_t draw, size_t most) {
  const Shape s = shape_of(round, 0, most < kRoom / 8 ? most : kRoom / 8);
  MPI_Request requests[2 * kBatch];
  MPI_Status statuses[2 * kBatch];
  int indices[2 * kBatch], index, flag = 0, done = 0;
  const uint64_t first = received;
  for (int k = 0; k < kBatch; k++, received++) {
    clear_in(k, s);
    MUST(MPI_Irecv(in[k], s.count, s.type->type, from, tag_of(received), MPI_COMM_WORLD, &requests[k]));
  }
  for (int k = 0; k < kBatch; k++, sent++) {
    fill_out(k, s);
    isend_mode((int)(draw / 8 % 3), out[k], s, tag_of(sent), &requests[kBatch + k]);
  }
  switch (draw % 5) {
    case 0: MUST(MPI_Waitall(2 * kBatch, requests, MPI_STATUSES_IGNORE)); break;
    case 1: MUST(MPI_Waitall(2 * kBatch, requests, statuses)); break;
    case 2:
      for (int k = 0; k < 2 * kBatch; k++) MUST(MPI_Waitany(2 * kBatch, requests, &index, MPI_STATUS_IGNORE));
      break;
    case 3:
      for (int left = 2 * kBatch; left > 0; left -= done)
        MUST(MPI_Waitsome(2 * kBatch, requests, &done, indices, MPI_STATUSES_IGNORE));
      break;
    default:
      while (!flag) MUST(MPI_Testall(2 * kBatch, requests, &flag, statuses));
  }
  received = first;
  for (int k = 0; k < kBatch; k++) look_at(k, s);
}

static void both_ways(uint64_t round, uint64_t draw, size_t most) {
  const Shape s = shape_of(round, 0, most);
  MPI_Status status;
  fill_out(0, s);
  if (draw % 2 == 0 || !dense(s)) {
    clear_in(0, s);
    MUST(MPI_Sendrecv(out[0], s.count, s.type->type, to, tag_of(sent), in[0], s.count, s.type->type, from,
                      tag_of(received), MPI_COMM_WORLD, &status));
    look_at(0, s);
  } else {
    MUST(MPI_Sendrecv_replace(out[0], s.count, s.type->type, to, tag_of(sent), from, tag_of(received), MPI_COMM_WORLD,
                              MPI_STATUS_IGNORE));
    look(number(from, received), s.type, s.count, out[0]);
    received++;
  }
  sent++;
}

/// One pair of persistent requests, started several times. The tag stays the first packet's.
static void persistent(uint64_t round, uint64_t draw, size_t most) {
  const Shape s = shape_of(round, 0, most);
  MPI_Request requests[2];
  const int tag = tag_of(received);  // equal to the sender's: both have counted the same packets
  MUST(MPI_Recv_init(in[0], s.count, s.type->type, from, tag, MPI_COMM_WORLD, &requests[0]));
  if (draw % 2 == 0) MUST(MPI_Send_init(out[0], s.count, s.type->type, to, tag_of(sent), MPI_COMM_WORLD, &requests[1]));
  else MUST(MPI_Ssend_init(out[0], s.count, s.type->type, to, tag_of(sent), MPI_COMM_WORLD, &requests[1]));
  for (int k = 0; k < 4; k++) {
    clear_in(0, s);
    fill_out(0, s);
    if (k % 2 == 0) {
      MUST(MPI_Startall(2, requests));
    } else {
      MUST(MPI_Start(&requests[0]));
      MUST(MPI_Start(&requests[1]));
    }
    MUST(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE));
    sent++;
    look_at(0, s);
  }
  MUST(MPI_Request_free(&requests[0]));
  MUST(MPI_Request_free(&requests[1]));
}

int main(int argc, char** argv) {
  MUST(MPI_Init(&argc, &argv));
  MPI_Comm_rank(MPI_COMM_WORLD, &me);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const unsigned long rounds = argc > 1 ? strtoul(argv[1], NULL, 10) : 100;
  seed = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
  const size_t largest = argc > 3 ? strtoul(argv[3], NULL, 10) : kLargest;
  to = (me + 1) % ranks;
  from = (me + ranks - 1) % ranks;
  scratch = malloc(kRoom);
  for (int k = 0; k < kBatch; k++) {
    out[k] = malloc(kRoom);
    in[k] = malloc(kRoom);
  }
  const int attached = 2 * kBatch * kRoom / 4;
  MPI_Buffer_attach(malloc((size_t)attached), attached);
  make_types();
  for (uint64_t round = 0; round < rounds; round++) {
    const uint64_t draw = mixed(seed * 7919 + round + 12345) / 16;
    switch (mixed(seed * 7919 + round) % 6) {
      case 0:
      case 1: blocking(round, draw, largest); break;
      case 2: batch(round, draw, largest); break;
      case 3: both_ways(round, draw, largest); break;
      case 4: persistent(round, draw, largest); break;
      default: ready(round, draw, largest);
    }
  }
  report_counts("messages", me);
  free_types();
  MUST(MPI_Finalize());
  return 0;
}
