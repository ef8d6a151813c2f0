// SPDX-License-Identifier: Apache-2.0
//
// Large messages from a device that are cut into chunks, whatever receives them: what arrives, what statuses and probes
// say, order, errors, and that nobody waits who would not wait for the whole message. Two ranks; RESIL_STAGE_CHUNK is
// small, so that messages are. Usage: staging_chunks [PART...]: only those; staging_chunks random ROUNDS SEED.

#include <stdlib.h>

#include "staging_p2p.h"

enum { kLarge = 300000, kRounds = 6 };
static unsigned seed = 1;

/// Until grants have been made: messages of that size, there and back.
static void warm(int from_device) {
  for (int round = 0; round < kRounds; round++) {
    char* data = filled(from_device, kLarge, 7);
    char* room = memory_new(1, kLarge);
    MPI_Request request;
    OK(MPI_Irecv(room, kLarge, MPI_BYTE, other, 3, comm, &request));
    OK(MPI_Send(data, kLarge, MPI_BYTE, other, 3, comm));
    OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    check(1, room, kLarge, kLarge, 7);
    memory_free(from_device, data);
    memory_free(1, room);
  }
}

static void settle(void) { warm(1); }

#include "staging_persistent.h"

/// One way, all kinds of receive.
static void plain(int to_device) {
  for (int way = 0; way < 8; way++) {
    settle();
    ++seed;
    const int room = kLarge + (way % 2) * 100;
    MPI_Status status;
    MPI_Request request;
    if (rank == 0) {
      char* data = filled(1, kLarge, seed);
      if (way < 4) {
        OK(MPI_Send(data, kLarge, MPI_BYTE, other, way, comm));
      } else {
        OK((way < 6 ? MPI_Isend : MPI_Issend)(data, kLarge, MPI_BYTE, other, way, comm, &request));
        OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
      }
      memory_free(1, data);
    } else {
      char* data = filled(to_device, room, 0);
      const int source = way % 3 == 0 ? MPI_ANY_SOURCE : other, tag = way % 4 == 1 ? MPI_ANY_TAG : way;
      if (way % 2) {
        OK(MPI_Recv(data, room, MPI_BYTE, source, tag, comm, &status));
      } else {
        int flag = 0;
        OK(MPI_Irecv(data, room, MPI_BYTE, source, tag, comm, &request));
        while (!flag) OK(MPI_Request_get_status(request, &flag, &status));
        check_status(&status, other, way, MPI_BYTE, kLarge);
        OK(MPI_Wait(&request, &status));
      }
      check_status(&status, other, way, MPI_BYTE, kLarge);
      check(to_device, data, kLarge, room, seed);
      memory_free(to_device, data);
    }
  }
}

/// Probes say what the whole message has, and their messages are received like others.
static void probed(int to_device) {
  for (int way = 0; way < 6; way++) {
    settle();
    ++seed;
    MPI_Status status;
    MPI_Request request;
    MPI_Message message;
    int flag = 0;
    if (rank == 0) {
      char* data = filled(1, kLarge, seed);
      OK(MPI_Send(data, kLarge, MPI_BYTE, other, way, comm));
      memory_free(1, data);
      continue;
    }
    char* data = filled(to_device, kLarge + 10, 0);
    if (way == 0) OK(MPI_Probe(other, way, comm, &status));
    if (way == 1)
      while (!flag) OK(MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm, &flag, &status));
    if (way == 2 || way == 5) OK(MPI_Mprobe(other, way, comm, &message, way == 5 ? MPI_STATUS_IGNORE : &status));
    if (way == 3 || way == 4)
      while (!flag) OK(MPI_Improbe(other, MPI_ANY_TAG, comm, &flag, &message, &status));
    if (way != 5) check_status(&status, other, way, MPI_BYTE, kLarge);
    if (way < 2) OK(MPI_Recv(data, kLarge + 10, MPI_BYTE, other, way, comm, &status));
    if (way == 2 || way == 3) OK(MPI_Mrecv(data, kLarge + 10, MPI_BYTE, &message, &status));
    if (way >= 4) {
      OK(MPI_Imrecv(data, kLarge + 10, MPI_BYTE, &message, &request));
      OK(MPI_Wait(&request, &status));
    }
    check_status(&status, other, way, MPI_BYTE, kLarge);
    check(to_device, data, kLarge, kLarge + 10, seed);
    memory_free(to_device, data);
  }
}

/// Into layouts with gaps, one of which resil does not flatten.
static void derived(int to_device) {
  for (int way = 0; way < 3; way++) {
    settle();
    ++seed;
    if (rank == 0) {
      char* data = filled(1, kLarge, seed);
      OK(MPI_Send(data, way == 2 ? kLarge / 96 * 12 : kLarge, way == 2 ? MPI_DOUBLE : MPI_BYTE, other, way, comm));
      memory_free(1, data);
      continue;
    }
    MPI_Datatype type, inner;
    if (way == 0) {
      OK(MPI_Type_vector(3000, 100, 150, MPI_BYTE, &type));
    } else if (way == 1) {  // mixed types
      const int lengths[] = {40, 15};
      const MPI_Aint places[] = {8, 80};
      const MPI_Datatype types[] = {MPI_CHAR, MPI_INT};
      OK(MPI_Type_create_struct(2, lengths, places, types, &inner));
      OK(MPI_Type_create_resized(inner, 0, 150, &type));
      OK(MPI_Type_free(&inner));
    } else {  // of doubles
      OK(MPI_Type_vector(3, 4, 6, MPI_DOUBLE, &inner));
      OK(MPI_Type_create_resized(inner, 0, 144, &type));
      OK(MPI_Type_free(&inner));
    }
    OK(MPI_Type_commit(&type));
    const int count = way == 0 ? 1 : way == 1 ? kLarge / 100 : kLarge / 96;
    const size_t span = way == 2 ? 144 * (size_t)count : 150 * (size_t)kLarge / 100;
    MPI_Status status;
    MPI_Request request;
    char* data = filled(to_device, span, 0);
    OK(MPI_Irecv(data, count, type, other, way, comm, &request));
    OK(MPI_Type_free(&type));
    OK(MPI_Wait(&request, &status));
    check_status(&status, other, way, MPI_BYTE, kLarge);
    memory_read(to_device, found, data, span);
    size_t k = 0;
    for (size_t i = 0; i < span; i++) {
      const size_t at = i % (way == 2 ? 48 : 150);
      const int is_data = way == 0 ? at < 100 : way == 1 ? (at >= 8 && at < 48) || (at >= 80 && at < 140) : at < 32;
      CHECK(found[i] == (is_data ? byte_of(seed, k) : 0xee));
      k += is_data;
    }
    CHECK(k == kLarge);
    memory_free(to_device, data);
  }
}

/// Both ways at the same time, in one call.
static void exchanged(int from_device, int to_device) {
  for (int way = 0; way < 3; way++) {
    settle();
    ++seed;
    MPI_Status status;
    if (way < 2) {
      char *out = filled(from_device, kLarge, seed + rank), *in = filled(to_device, kLarge, 0);
      const int to = way == 1 && rank == 1 ? MPI_PROC_NULL : other,
                from = way == 1 && rank == 0 ? MPI_PROC_NULL : other;
      OK(MPI_Sendrecv(out, kLarge, MPI_BYTE, to, 5, in, kLarge, MPI_BYTE, from, 5, comm, &status));
      if (from != MPI_PROC_NULL) {
        check_status(&status, other, 5, MPI_BYTE, kLarge);
        check(to_device, in, kLarge, kLarge, seed + other);
      }
      memory_free(from_device, out);
      memory_free(to_device, in);
    } else {
      const int where = rank == 0 ? from_device : to_device;
      char* both = filled(where, kLarge, seed + rank);
      OK(MPI_Sendrecv_replace(both, kLarge, MPI_BYTE, other, 6, other, 6, comm, &status));
      check_status(&status, other, 6, MPI_BYTE, kLarge);
      check(where, both, kLarge, kLarge, seed + other);
      memory_free(where, both);
    }
  }
}

/// A message that is too long for its receive, between heads and whole ones.
static void too_long(int to_device) {
  static const int rooms[] = {kLarge - 1, kLarge - 20000, 100};
  for (int way = 0; way < 6; way++) {
    settle();
    ++seed;
    MPI_Status status;
    MPI_Request requests[2];
    const int room = rooms[way / 2];
    OK(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN));
    OK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));  // MPICH's MPI_Waitall
    if (rank == 0) {
      char* data = filled(1, kLarge, seed);
      OK(MPI_Send(data, kLarge, MPI_BYTE, other, 1, comm));
      OK(MPI_Send(NULL, 0, MPI_BYTE, other, 2, comm));
      memory_free(1, data);
    } else {
      char* data = filled(to_device, kLarge, 0);
      OK(MPI_Irecv(data, room, MPI_BYTE, other, 1, comm, &requests[0]));
      if (way % 2) {
        CHECK(class_of(MPI_Wait(&requests[0], &status)) == MPI_ERR_TRUNCATE);
        OK(MPI_Recv(NULL, 0, MPI_BYTE, other, 2, comm, MPI_STATUS_IGNORE));
      } else {
        MPI_Status both[2];
        OK(MPI_Irecv(NULL, 0, MPI_BYTE, other, 2, comm, &requests[1]));
        CHECK(class_of(MPI_Waitall(2, requests, both)) == MPI_ERR_IN_STATUS);
        CHECK(class_of(both[0].MPI_ERROR) == MPI_ERR_TRUNCATE);
        if (requests[1] != MPI_REQUEST_NULL) OK(MPI_Wait(&requests[1], MPI_STATUS_IGNORE));
      }
      memory_read(to_device, found, data, kLarge);
      for (int i = room; to_device && i < kLarge; i++) CHECK(found[i] == 0xee);  // Open MPI 4.1 writes beyond a receive
      memory_free(to_device, data);
    }
    OK(MPI_Comm_set_errhandler(comm, MPI_ERRORS_ARE_FATAL));
    OK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL));
  }
}

/// Messages of one lane are matched in the order of their sends: cut, whole and small ones.
static void ordered(int to_device) {
  enum { kMessages = 9 };
  static const int sizes[] = {kLarge, 10, kLarge, 90001, kLarge, 0, kLarge, kLarge - 1, kLarge};
  settle();
  MPI_Request requests[kMessages];
  MPI_Status status;
  char* data[kMessages];
  if (rank == 0) {
    for (int i = 0; i < kMessages; i++) {
      data[i] = filled(i != 3, sizes[i], 50 + i);
      OK(MPI_Isend(data[i], sizes[i], MPI_BYTE, other, 4, comm, &requests[i]));
    }
    OK(MPI_Waitall(kMessages, requests, MPI_STATUSES_IGNORE));
    for (int i = 0; i < kMessages; i++) memory_free(i != 3, data[i]);
  } else {
    for (int i = 0; i < kMessages; i++) {
      data[i] = filled(to_device || i % 2, kLarge, 0);
      OK(MPI_Irecv(data[i], kLarge, MPI_BYTE, MPI_ANY_SOURCE, MPI_ANY_TAG, comm, &requests[i]));
    }
    for (int done = 0; done < kMessages; done++) {
      int i = -1;
      OK(MPI_Waitany(kMessages, requests, &i, &status));
      check_status(&status, other, 4, MPI_BYTE, sizes[i]);
      check(to_device || i % 2, data[i], sizes[i], kLarge, 50 + i);
      memory_free(to_device || i % 2, data[i]);
    }
  }
}

/// The receiver is inside MPI while chunks are to come, and the sender waits for its own.
static void blocked(int to_device) {
  settle();
  ++seed;
  MPI_Request request;
  if (rank == 0) {
    char* data = filled(1, kLarge, seed);
    MPI_Recv(NULL, 0, MPI_BYTE, other, 8, comm, MPI_STATUS_IGNORE);
    OK(MPI_Ssend(data, kLarge, MPI_BYTE, other, 7, comm));
    OK(MPI_Barrier(comm));
    OK(MPI_Isend(data, kLarge, MPI_BYTE, other, 7, comm, &request));
    OK(MPI_Barrier(comm));  // the receiver takes it before it comes here
    OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    memory_free(1, data);
  } else {
    char* data = filled(to_device, kLarge, 0);
    OK(MPI_Irecv(data, kLarge, MPI_BYTE, other, 7, comm, &request));
    MPI_Send(NULL, 0, MPI_BYTE, other, 8, comm);
    OK(MPI_Barrier(comm));  // entered by the sender when its message is gone
    OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    check(to_device, data, kLarge, kLarge, seed);
    fill(to_device, data, kLarge, 0);
    OK(MPI_Recv(data, kLarge, MPI_BYTE, other, 7, comm, MPI_STATUS_IGNORE));
    check(to_device, data, kLarge, kLarge, seed);
    OK(MPI_Barrier(comm));
    memory_free(to_device, data);
  }
}

/// Requests that are freed, or cancelled, while their message is under way.
static void left_alone(int to_device) {
  settle();
  ++seed;
  MPI_Request request;
  if (rank == 0) {
    char* data = filled(1, kLarge, seed);
    OK(MPI_Isend(data, kLarge, MPI_BYTE, other, 1, comm, &request));
    OK(MPI_Request_free(&request));
    OK(MPI_Recv(NULL, 0, MPI_BYTE, other, 2, comm, MPI_STATUS_IGNORE));
    OK(MPI_Isend(data, kLarge, MPI_BYTE, other, 1, comm, &request));
    OK(MPI_Cancel(&request));
    MPI_Status status;
    OK(MPI_Wait(&request, &status));
    int cancelled = 1;
    OK(MPI_Test_cancelled(&status, &cancelled));
    OK(MPI_Send(&cancelled, 1, MPI_INT, other, 3, comm));
    memory_free(1, data);
  } else {
    char* data = filled(to_device, kLarge, 0);
    OK(MPI_Recv(data, kLarge, MPI_BYTE, other, 1, comm, MPI_STATUS_IGNORE));
    check(to_device, data, kLarge, kLarge, seed);
    OK(MPI_Send(NULL, 0, MPI_BYTE, other, 2, comm));
    fill(to_device, data, kLarge, 0);
    int cancelled = 0;
    OK(MPI_Irecv(data, kLarge, MPI_BYTE, other, 1, comm, &request));
    OK(MPI_Recv(&cancelled, 1, MPI_INT, other, 3, comm, MPI_STATUS_IGNORE));
    if (cancelled) OK(MPI_Cancel(&request));
    OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    if (!cancelled) check(to_device, data, kLarge, kLarge, seed);
    memory_free(to_device, data);
  }
}

/// Ordinary messages of every size that a head may have, alone and beside cut ones, probed or not.
static void alike(int to_device) {
  const int least = atoi(getenv("RESIL_STAGE_CHUNK")) * 128;
  if (least > 512) return;  // too many sizes: the test sets it small
  for (int size = least; size < 2 * least; size += 16) {
    settle();
    MPI_Status status;
    if (rank == 0) {
      char *large = filled(1, kLarge, 5), *small = filled(size % 32 == 0, size, 6);
      MPI_Request requests[2];
      OK(MPI_Isend(large, kLarge, MPI_BYTE, other, 1, comm, &requests[0]));
      OK(MPI_Isend(small, size, MPI_BYTE, other, 2, comm, &requests[1]));
      OK(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE));
      memory_free(1, large);
      memory_free(size % 32 == 0, small);
    } else {
      char *large = filled(to_device, kLarge, 0), *small = filled(to_device, 2 * least, 0);
      if (size % 48 != 0) {
        OK(MPI_Probe(other, 2, comm, &status));
        check_status(&status, other, 2, MPI_BYTE, size);
      }
      OK(MPI_Recv(small, 2 * least, MPI_BYTE, other, 2, comm, &status));
      check_status(&status, other, 2, MPI_BYTE, size);
      check(to_device, small, size, 2 * least, 6);
      OK(MPI_Recv(large, kLarge, MPI_BYTE, other, 1, comm, &status));
      check_status(&status, other, 1, MPI_BYTE, kLarge);
      check(to_device, large, kLarge, kLarge, 5);
      memory_free(to_device, large);
      memory_free(to_device, small);
    }
  }
}

/// Rounds of messages both ways, of sizes that are cut, whole, or like a head's, received in every way, out of order by
/// tags, completed in any order. Both ranks make the same plan.
static unsigned long long chance_state;

static unsigned chance(unsigned below) {
  chance_state = chance_state * 6364136223846793005u + 1442695040888963407u;
  return (unsigned)(chance_state >> 33) % below;
}

struct message {
  int bytes, tag, from_device, to_device, synchronous, way, any;
};

enum { kEach = 12 };

static void make_plan(struct message* plan, int with_devices) {
  for (int i = 0; i < kEach; i++) {
    struct message* m = &plan[i];
    const unsigned kind = chance(10);
    m->bytes = kind < 5 ? kLarge : kind < 7 ? 200000 : kind < 9 ? 16 * (int)(16 + chance(16)) : (int)chance(5000);
    m->tag = chance(3);
    m->from_device = with_devices && chance(4) != 0;
    m->to_device = with_devices && chance(3) != 0;
    m->synchronous = chance(4) == 0;
    m->way = chance(6);
    m->any = chance(3);
  }
}

/// Sends are only tested: their receives may not have been posted yet.
static void finish_some(int count, MPI_Request* requests, int sends) {
  MPI_Status statuses[2 * kEach];
  int indices[2 * kEach], some, flag;
  const int one = chance(count);
  switch (chance(3) + (sends ? 0 : 3 * chance(2))) {
    case 3: OK(MPI_Wait(&requests[one], MPI_STATUS_IGNORE)); break;
    case 0: OK(MPI_Test(&requests[one], &flag, statuses)); break;
    case 4: OK(MPI_Waitany(count, requests, &some, statuses)); break;
    case 1: OK(MPI_Testsome(count, requests, &some, indices, MPI_STATUSES_IGNORE)); break;
    case 5: OK(MPI_Waitsome(count, requests, &some, indices, statuses)); break;
    default: OK(MPI_Testall(count, requests, &flag, statuses));
  }
}

static void one_round(unsigned number) {
  struct message plans[2][kEach];
  char *out[kEach], *in[kEach];
  MPI_Request requests[2 * kEach];
  make_plan(plans[0], 1);
  make_plan(plans[1], 1);
  struct message *mine = plans[rank], *theirs = plans[other];
  int order[kEach], received = 0;  // those of tag 2 first, by name; the others in the order of their sends
  for (int pass = 0; pass < 2; pass++)
    for (int i = 0; i < kEach; i++)
      if ((theirs[i].tag == 2) == (pass == 0)) order[received++] = i;
  for (int i = 0; i < 2 * kEach; i++) requests[i] = MPI_REQUEST_NULL;
  for (int i = 0; i < kEach; i++) {
    out[i] = filled(mine[i].from_device, mine[i].bytes, number * 31 + i + 1);
    in[i] = filled(theirs[i].to_device, theirs[i].bytes + 32, 0);
  }
  for (int i = 0; i < kEach; i++)
    OK((mine[i].synchronous ? MPI_Issend : MPI_Isend)(out[i], mine[i].bytes, MPI_BYTE, other, mine[i].tag, comm,
                                                      &requests[i]));
  for (int k = 0; k < kEach; k++) {
    const int i = order[k];
    const struct message* m = &theirs[i];
    MPI_Status status;
    MPI_Message message;
    const int tag = m->tag != 2 && m->any == 0 ? MPI_ANY_TAG : m->tag, source = m->any == 1 ? MPI_ANY_SOURCE : other;
    // Only a posted receive takes a message before those that follow it: the others must come when all are posted.
    const int room = m->bytes + 32, way = k < kEach / 2 ? 5 : m->way;
    int flag = 0;
    switch (way) {
      case 0: OK(MPI_Recv(in[i], room, MPI_BYTE, source, tag, comm, &status)); break;
      case 1: OK(MPI_Probe(source, tag, comm, &status)); break;
      case 2:
        while (!flag) OK(MPI_Improbe(source, tag, comm, &flag, &message, &status));
        break;
      case 3: OK(MPI_Mprobe(source, tag, comm, &message, &status)); break;
      default: OK(MPI_Irecv(in[i], room, MPI_BYTE, source, tag, comm, &requests[kEach + i]));
    }
    if (way < 4) check_status(&status, other, m->tag, MPI_BYTE, m->bytes);
    if (way == 1) OK(MPI_Recv(in[i], room, MPI_BYTE, source, tag, comm, &status));
    if (way == 2) OK(MPI_Mrecv(in[i], room, MPI_BYTE, &message, &status));
    if (way == 3) OK(MPI_Imrecv(in[i], room, MPI_BYTE, &message, &requests[kEach + i]));
    if (way < 3) check_status(&status, other, m->tag, MPI_BYTE, m->bytes);
    if (chance(3) == 0) {
      const int sends = chance(2);
      finish_some(kEach, requests + (sends ? 0 : kEach), sends);
    }
  }
  OK(MPI_Waitall(2 * kEach, requests, MPI_STATUSES_IGNORE));
  for (int i = 0; i < kEach; i++) {
    check(theirs[i].to_device, in[i], theirs[i].bytes, theirs[i].bytes + 32, number * 31 + i + 1);
    memory_free(theirs[i].to_device, in[i]);
    memory_free(mine[i].from_device, out[i]);
  }
}

static void at_random(int rounds, unsigned first) {
  for (int round = 0; round < rounds; round++) {
    chance_state = first + round;
    one_round(first + round);
  }
}

/// Messages of a rank to itself.
static void itself(int to_device) {
  for (int round = 0; round < kRounds; round++) {
    MPI_Request requests[2];
    MPI_Status status;
    const int room = kLarge - (round == 4 ? 1000 : 0);
    char *out = filled(1, kLarge, 30 + round), *in = filled(to_device, kLarge, 0);
    OK(MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN));
    OK(MPI_Irecv(in, room, MPI_BYTE, 0, 1, MPI_COMM_SELF, &requests[0]));
    OK(MPI_Isend(out, kLarge, MPI_BYTE, 0, 1, MPI_COMM_SELF, &requests[1]));
    if (room == kLarge) {
      OK(MPI_Wait(&requests[0], &status));
      check_status(&status, 0, 1, MPI_BYTE, kLarge);
      check(to_device, in, kLarge, kLarge, 30 + round);
    } else {
      CHECK(class_of(MPI_Wait(&requests[0], &status)) == MPI_ERR_TRUNCATE);
      memory_read(to_device, found, in, kLarge);
      for (int i = room; i < kLarge; i++) CHECK(found[i] == 0xee);
    }
    OK(MPI_Wait(&requests[1], MPI_STATUS_IGNORE));
    memory_free(1, out);
    memory_free(to_device, in);
  }
}

/// To itself and to the other rank, which counts as of another node: the copy between devices is not even ordered while
/// the program starts messages, and then comes after the one that has to leave the node. `down` is slow, in GB/s.
static void deferred(double down) {
  double (*now)(void);
  uint64_t (*count)(const char*);
  void* library = dlopen("libcuda.so.1", RTLD_NOW);
  *(void**)&now = device_symbol(library, "fakegpu_now");
  *(void**)&count = device_symbol(library, "fakegpu_count");
  char *out = filled(1, kLarge, 5), *far = filled(1, kLarge, 6), *in = filled(1, kLarge, 0),
       *room = filled(1, kLarge, 0);
  for (int round = 0; round < kRounds + 2; round++) {
    MPI_Request requests[4];
    OK(MPI_Irecv(in, kLarge, MPI_BYTE, 0, 1, MPI_COMM_SELF, &requests[0]));
    OK(MPI_Irecv(room, kLarge, MPI_BYTE, other, 2, comm, &requests[1]));
    const uint64_t before = count("inside") + count("peer");
    const double start = now();
    OK(MPI_Isend(out, kLarge, MPI_BYTE, 0, 1, MPI_COMM_SELF, &requests[2]));
    OK(MPI_Isend(far, kLarge, MPI_BYTE, other, 2, comm, &requests[3]));
    CHECK(count("inside") + count("peer") == before);
    OK(MPI_Wait(&requests[0], MPI_STATUS_IGNORE));
    if (round >= kRounds) {
      CHECK(count("inside") + count("peer") >= before + 2);  // into the entry, and out of it
      CHECK(now() - start >= kLarge / (down * 1e9));
    }
    OK(MPI_Waitall(3, requests + 1, MPI_STATUSES_IGNORE));
    check(1, in, kLarge, kLarge, 5);
    check(1, room, kLarge, kLarge, 6);
  }
  memory_free(1, out), memory_free(1, far), memory_free(1, in), memory_free(1, room);
}

/// The receiver's context goes, with what has been granted in it: the message that was on its way there is lost, and
/// that is said; later ones are not.
static void lost(void) {
  settle();
  CHECK(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN) == MPI_SUCCESS);
  MPI_Status status;
  if (rank == 0) {
    char* data = filled(1, kLarge, 3);
    OK(MPI_Send(data, kLarge, MPI_BYTE, other, 1, comm));
    memory_free(1, data);
  } else {
    OK(MPI_Probe(other, 1, comm, &status));
    CHECK(device.destroy(device.context) == 0);
    device_open();
    char* data = filled(1, kLarge, 0);
    MPI_Request request;
    OK(MPI_Irecv(data, kLarge, MPI_BYTE, other, 1, comm, &request));
    const int result = MPI_Wait(&request, &status);  // it may have been sent whole
    if (result == MPI_SUCCESS) check(1, data, kLarge, kLarge, 3);
    else CHECK(class_of(result) == MPI_ERR_OTHER);
    memory_free(1, data);
  }
  OK(MPI_Comm_set_errhandler(comm, MPI_ERRORS_ARE_FATAL));
  settle();
  plain(1);
}

int main(int argc, char** argv) {
  parts = argv + 1;
  device_open();
  OK(MPI_Init(&argc, &argv));
  OK(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
  OK(MPI_Comm_split(MPI_COMM_WORLD, 0, -rank, &comm));  // ranks are not the world's
  OK(MPI_Comm_rank(comm, &rank));
  other = 1 - rank;
  for (int to_device = 1; to_device >= 0; to_device--) {
    if (wanted("plain")) plain(to_device);
    if (wanted("probed")) probed(to_device);
    if (wanted("derived")) derived(to_device);
    for (int from_device = 0; from_device < 2; from_device++)
      if (wanted("exchanged")) exchanged(from_device, to_device);
    if (wanted("too_long")) too_long(to_device);
    if (wanted("ordered")) ordered(to_device);
    if (wanted("blocked")) blocked(to_device);
    if (wanted("left_alone")) left_alone(to_device);
    if (wanted("persistent")) persistent(to_device);
    if (wanted("persistent")) persistent_truncated(to_device);
    if (wanted("persistent")) from_nobody(to_device);
    if (wanted("alike")) alike(to_device);
    if (wanted("itself")) itself(to_device);
  }
  if (*parts != NULL && strcmp(*parts, "random") == 0) at_random(atoi(parts[1]), atoi(parts[2]));
  if (*parts != NULL && wanted("deferred")) deferred(0.01);
  if (*parts != NULL && wanted("lost")) lost();
  OK(MPI_Comm_free(&comm));
  OK(MPI_Finalize());
  if (rank == 0) puts("ok");
  return 0;
}
