// SPDX-License-Identifier: Apache-2.0
//
// Point-to-point messages with buffers on a device, at either end or both: what arrives, what statuses say, errors,
// order, every completion call. Two ranks. Usage: staging_p2p [PART...]: only those.

#include "staging_p2p.h"

typedef int send_call(const void*, int, MPI_Datatype, int, int, MPI_Comm);
typedef int isend_call(const void*, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request*);
static send_call* const sends[] = {MPI_Send, MPI_Ssend, MPI_Bsend, MPI_Rsend};
static isend_call* const isends[] = {MPI_Isend, MPI_Issend, MPI_Ibsend, MPI_Irsend};

static void modes(int from_device, int to_device) {
  static const int sizes[] = {0, 1, 100, 4096, 70000, 300001};
  for (unsigned s = 0; s < sizeof(sizes) / sizeof(*sizes); s++)
    for (int mode = 0; mode < 8; mode++) {
      const int bytes = sizes[s];
      const unsigned seed = s * 8 + mode + 1;
      MPI_Request request;
      MPI_Status status;
      if (rank == 0) {
        char* data = filled(from_device, bytes, seed);
        if (mode % 4 == 3) MPI_Recv(NULL, 0, MPI_BYTE, other, 9, comm, MPI_STATUS_IGNORE);  // the receive is there
        if (mode < 4) {
          OK(sends[mode](data, bytes, MPI_BYTE, other, mode, comm));
        } else {
          OK(isends[mode - 4](data, bytes, MPI_BYTE, other, mode, comm, &request));
          OK(MPI_Wait(&request, &status));
          CHECK(request == MPI_REQUEST_NULL);
        }
        memory_free(from_device, data);
      } else {
        char* data = filled(to_device, bytes + 50, 0);
        if (mode % 2) {
          OK(MPI_Irecv(data, bytes + 50, MPI_BYTE, other, mode, comm, &request));
          if (mode % 4 == 3) MPI_Send(NULL, 0, MPI_BYTE, other, 9, comm);
          OK(MPI_Wait(&request, &status));
        } else {
          OK(MPI_Recv(data, bytes + 50, MPI_BYTE, other, mode, comm, &status));
        }
        check_status(&status, other, mode, MPI_BYTE, bytes);
        check(to_device, data, bytes, bytes + 50, seed);
        memory_free(to_device, data);
      }
    }
}

enum { kSet = 16, kPacket = 40000 };

/// Sets of packets both ways; every second one from or to the host.
static void sets(int mixed) {
  char *out[kSet], *in[kSet];
  MPI_Request requests[2 * kSet];
  MPI_Status statuses[2 * kSet];
  for (int i = 0; i < kSet; i++) {
    out[i] = filled(!mixed || i % 2, kPacket, 100 + i + rank * kSet);
    in[i] = filled(!mixed || i % 3, kPacket, 0);
  }
  for (int round = 0; round < 3; round++) {
    for (int i = 0; i < kSet; i++) OK(MPI_Irecv(in[i], kPacket, MPI_BYTE, other, i % 5, comm, &requests[i]));
    for (int i = 0; i < kSet; i++) OK(MPI_Isend(out[i], kPacket, MPI_BYTE, other, i % 5, comm, &requests[kSet + i]));
    OK(MPI_Waitall(2 * kSet, requests, round == 1 ? MPI_STATUSES_IGNORE : statuses));
    for (int i = 0; i < kSet; i++) {
      CHECK(requests[i] == MPI_REQUEST_NULL && requests[kSet + i] == MPI_REQUEST_NULL);
      if (round != 1) check_status(&statuses[i], other, i % 5, MPI_BYTE, kPacket);
      check(!mixed || i % 3, in[i], kPacket, kPacket, 100 + i + other * kSet);
      fill(!mixed || i % 3, in[i], kPacket, 0);
    }
  }
  for (int i = 0; i < kSet; i++) {
    memory_free(!mixed || i % 2, out[i]);
    memory_free(!mixed || i % 3, in[i]);
  }
}

/// Messages do not overtake: a long one from the device, then short ones from the host, with one tag.
static void order(void) {
  enum { kLong = 400000 };
  MPI_Request requests[4];
  if (rank == 0) {
    char *first = filled(1, kLong, 1), *second = filled(0, 10, 2), *third = filled(1, 20, 3), *last = filled(0, 30, 4);
    for (int blocking = 0; blocking < 2; blocking++) {
      OK(MPI_Isend(first, kLong, MPI_BYTE, other, 5, comm, &requests[0]));
      OK(MPI_Isend(second, 10, MPI_BYTE, other, 5, comm, &requests[1]));
      OK(MPI_Isend(third, 20, MPI_BYTE, other, 5, comm, &requests[2]));
      requests[3] = MPI_REQUEST_NULL;
      if (blocking) OK(MPI_Send(last, 30, MPI_BYTE, other, 5, comm));
      else OK(MPI_Isend(last, 30, MPI_BYTE, other, 5, comm, &requests[3]));
      OK(MPI_Waitall(4, requests, MPI_STATUSES_IGNORE));
    }
    memory_free(1, first), memory_free(0, second), memory_free(1, third), memory_free(0, last);
  } else {
    static const int sizes[] = {kLong, 10, 20, 30};
    for (int i = 0; i < 8; i++) {
      char* data = filled(1, kLong, 0);
      MPI_Status status;
      OK(MPI_Recv(data, kLong, MPI_BYTE, i % 2 ? MPI_ANY_SOURCE : other, MPI_ANY_TAG, comm, &status));
      check_status(&status, other, 5, MPI_BYTE, sizes[i % 4]);
      check(1, data, sizes[i % 4], kLong, i % 4 + 1);
      memory_free(1, data);
    }
  }
}

/// Both send first, then block in something else: nobody may wait for a message that has not been posted.
static void head_on(void) {
  enum { kLong = 500000 };
  char *out = filled(1, kLong, 7 + rank), *in = filled(1, kLong, 0), *small = filled(0, 4, 0);
  MPI_Request request;
  OK(MPI_Isend(out, kLong, MPI_BYTE, other, 1, comm, &request));
  OK(MPI_Recv(in, kLong, MPI_BYTE, other, 1, comm, MPI_STATUS_IGNORE));
  OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
  check(1, in, kLong, kLong, 7 + other);
  // The other one waits for it in a receive into host memory, and only then enters the barrier.
  MPI_Request eager;
  OK(MPI_Isend(out, 1000, MPI_BYTE, other, 2, comm, &eager));
  if (rank == 0) {
    OK(MPI_Barrier(comm));
  } else {
    char host[1000];
    OK(MPI_Recv(host, 1000, MPI_BYTE, other, 2, comm, MPI_STATUS_IGNORE));
    OK(MPI_Barrier(comm));
  }
  if (rank == 0) OK(MPI_Recv(in, 1000, MPI_BYTE, other, 2, comm, MPI_STATUS_IGNORE));
  OK(MPI_Wait(&eager, MPI_STATUS_IGNORE));
  memory_free(1, out), memory_free(1, in), memory_free(0, small);
}

static void derived(int from_device, int to_device) {
  // 500 blocks of 3 doubles, 5 apart; and a mixed structure with gaps.
  MPI_Datatype vector, structure, resized;
  OK(MPI_Type_vector(500, 3, 5, MPI_DOUBLE, &vector));
  OK(MPI_Type_commit(&vector));
  const int lengths[] = {3, 1, 5};
  const MPI_Aint places[] = {0, 16, 40};
  const MPI_Datatype types[] = {MPI_CHAR, MPI_DOUBLE, MPI_SHORT};
  OK(MPI_Type_create_struct(3, lengths, places, types, &structure));
  OK(MPI_Type_create_resized(structure, 0, 64, &resized));
  OK(MPI_Type_free(&structure));
  OK(MPI_Type_commit(&resized));
  enum { kBytes = 500 * 5 * 8 };
  for (int kind = 0; kind < 4; kind++) {
    // 0: vector to vector, 1: vector to contiguous, 2: contiguous to vector, and short, 3: structures
    const int elements = kind == 2 ? 700 : 1500;
    char* data = filled(rank == 0 ? from_device : to_device, kBytes, rank == 0 ? 40 + kind : 0);
    MPI_Request request;
    MPI_Status status;
    if (rank == 0) {
      if (kind == 3) OK(MPI_Isend(data, 100, resized, other, kind, comm, &request));
      else if (kind == 2) OK(MPI_Isend(data, elements, MPI_DOUBLE, other, kind, comm, &request));
      else OK(MPI_Isend(data, 1, vector, other, kind, comm, &request));
      OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    } else {
      int count = 0;
      if (kind == 3) OK(MPI_Irecv(data, 120, resized, other, kind, comm, &request));
      else if (kind == 1) OK(MPI_Irecv(data, 2000, MPI_DOUBLE, other, kind, comm, &request));
      else OK(MPI_Irecv(data, 1, vector, other, kind, comm, &request));
      OK(MPI_Wait(&request, &status));
      OK(MPI_Get_elements(&status, kind == 3 ? resized : vector, &count));
      CHECK(count == (kind == 3 ? 900 : elements));
      memory_read(to_device, found, data, kBytes);
      for (size_t i = 0; i < kBytes; i++) {
        int is_data = 1;
        size_t from = i;
        if (kind == 3) {
          const size_t in = i % 64;
          is_data = i < 6400 && (in < 3 || (in >= 16 && in < 24) || (in >= 40 && in < 50));
        } else if (kind == 0) {
          is_data = i % 40 < 24;
        } else if (kind == 1) {
          is_data = i < 1500 * 8;
          from = i / 24 * 40 + i % 24;
        } else {
          from = i / 40 * 24 + i % 40;
          is_data = i % 40 < 24 && from < 700 * 8;
        }
        CHECK(found[i] == (is_data ? byte_of(40 + kind, from) : 0xee));
      }
    }
    memory_free(rank == 0 ? from_device : to_device, data);
  }
  OK(MPI_Type_free(&vector));
  OK(MPI_Type_free(&resized));
}

/// What is freed while a message is under way lives until its end.
static void freed(void) {
  enum { kBytes = 200000 };
  MPI_Request request, free_me;
  MPI_Datatype type;
  OK(MPI_Type_vector(100, 1, 2, MPI_DOUBLE, &type));
  OK(MPI_Type_commit(&type));
  if (rank == 0) {
    char* data = filled(1, kBytes, 3);
    OK(MPI_Isend(data, kBytes, MPI_BYTE, other, 1, comm, &free_me));
    OK(MPI_Request_free(&free_me));
    CHECK(free_me == MPI_REQUEST_NULL);
    OK(MPI_Isend(data, 5, type, other, 2, comm, &request));
    OK(MPI_Type_free(&type));
    OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    OK(MPI_Barrier(comm));
    memory_free(1, data);
  } else {
    char* data = filled(1, kBytes, 0);
    OK(MPI_Irecv(data, kBytes, MPI_BYTE, other, 1, comm, &free_me));
    OK(MPI_Request_free(&free_me));
    double values[500];
    OK(MPI_Recv(values, 500, MPI_DOUBLE, other, 2, comm, MPI_STATUS_IGNORE));
    // The message before it on the same way has come as well; the data is there some time later.
    for (;;) {
      int flag = 0;
      OK(MPI_Iprobe(other, 77, comm, &flag, MPI_STATUS_IGNORE));
      memory_read(1, found, data, kBytes);
      if (found[kBytes - 1] == byte_of(3, kBytes - 1)) break;
    }
    check(1, data, kBytes, kBytes, 3);
    OK(MPI_Type_free(&type));
    OK(MPI_Barrier(comm));
    memory_free(1, data);
  }
}

static void errors(void) {
  MPI_Request requests[3];
  MPI_Status statuses[3];
  MPI_Comm quiet;
  OK(MPI_Comm_dup(comm, &quiet));
  OK(MPI_Comm_set_errhandler(quiet, MPI_ERRORS_RETURN));
  OK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));  // where MPICH raises errors of completion calls
  for (int way = 0; way < 3; way++) {
    if (rank == 0) {
      char* data = filled(1, 1000, 5);
      OK(MPI_Send(data, 1000, MPI_BYTE, other, 1, quiet));
      OK(MPI_Send(data, 100, MPI_BYTE, other, 2, quiet));
      memory_free(1, data);
    } else {
      char *small = filled(1, 600, 0), *enough = filled(1, 600, 0);
      if (way == 0) {
        CHECK(class_of(MPI_Recv(small, 500, MPI_BYTE, other, 1, quiet, &statuses[0])) == MPI_ERR_TRUNCATE);
        OK(MPI_Recv(enough, 500, MPI_BYTE, other, 2, quiet, &statuses[1]));
      } else {
        OK(MPI_Irecv(small, 500, MPI_BYTE, other, 1, quiet, &requests[0]));
        OK(MPI_Irecv(enough, 500, MPI_BYTE, other, 2, quiet, &requests[1]));
        if (way == 1) {
          CHECK(class_of(MPI_Wait(&requests[0], &statuses[0])) == MPI_ERR_TRUNCATE);
          OK(MPI_Wait(&requests[1], &statuses[1]));
        } else {
          CHECK(class_of(MPI_Waitall(2, requests, statuses)) == MPI_ERR_IN_STATUS);
          CHECK(class_of(statuses[0].MPI_ERROR) == MPI_ERR_TRUNCATE);
          // MPICH looks no further than the first error, and says that the others are pending.
          CHECK(statuses[1].MPI_ERROR == MPI_SUCCESS || class_of(statuses[1].MPI_ERROR) == MPI_ERR_PENDING);
          if (statuses[1].MPI_ERROR != MPI_SUCCESS) OK(MPI_Wait(&requests[1], &statuses[1]));
        }
        CHECK(requests[0] == MPI_REQUEST_NULL && requests[1] == MPI_REQUEST_NULL);
      }
      check(1, enough, 100, 600, 5);
      memory_read(1, found, small, 600);
      for (int i = 500; i < 600; i++) CHECK(found[i] == 0xee);
      memory_free(1, small), memory_free(1, enough);
    }
  }
  char* data = filled(1, 100, 1);
  CHECK(class_of(MPI_Isend(data, 100, MPI_BYTE, 99, 1, quiet, &requests[0])) == MPI_ERR_RANK);
  CHECK(class_of(MPI_Send(data, 100, MPI_BYTE, 99, 1, quiet)) == MPI_ERR_RANK);
  CHECK(class_of(MPI_Irecv(data, 100, MPI_BYTE, 99, 1, quiet, &requests[0])) == MPI_ERR_RANK);
  OK(MPI_Sendrecv(data, 100, MPI_BYTE, MPI_PROC_NULL, 1, data, 100, MPI_BYTE, MPI_PROC_NULL, 1, quiet, &statuses[0]));
  check_status(&statuses[0], MPI_PROC_NULL, MPI_ANY_TAG, MPI_BYTE, 0);
  OK(MPI_Irecv(data, 100, MPI_BYTE, MPI_PROC_NULL, 1, quiet, &requests[0]));
  OK(MPI_Isend(data, 100, MPI_BYTE, MPI_PROC_NULL, 1, quiet, &requests[1]));
  OK(MPI_Waitall(2, requests, statuses));
  check(1, data, 100, 100, 1);
  memory_free(1, data);
  OK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL));
  OK(MPI_Comm_free(&quiet));
}

static void cancelled(void) {
  char* data = filled(1, 1000, 0);
  MPI_Request requests[2];
  MPI_Status status;
  int flag = 0;
  OK(MPI_Irecv(data, 1000, MPI_BYTE, other, 50, comm, &requests[0]));
  OK(MPI_Request_get_status(requests[0], &flag, &status));
  CHECK(!flag);
  OK(MPI_Test(&requests[0], &flag, &status));
  CHECK(!flag && requests[0] != MPI_REQUEST_NULL);
  OK(MPI_Cancel(&requests[0]));
  OK(MPI_Wait(&requests[0], &status));
  OK(MPI_Test_cancelled(&status, &flag));
  CHECK(flag && requests[0] == MPI_REQUEST_NULL);
  check(1, data, 0, 1000, 1);
  // MPI_Request_get_status says no before the data is there, and leaves the request.
  if (rank == 0) {
    fill(1, data, 1000, 9);
    OK(MPI_Send(data, 1000, MPI_BYTE, other, 51, comm));
  } else {
    OK(MPI_Irecv(data, 1000, MPI_BYTE, other, 51, comm, &requests[0]));
    for (flag = 0; !flag;) OK(MPI_Request_get_status(requests[0], &flag, &status));
    check_status(&status, other, 51, MPI_BYTE, 1000);
    check(1, data, 1000, 1000, 9);
    CHECK(requests[0] != MPI_REQUEST_NULL);
    OK(MPI_Test(&requests[0], &flag, &status));
    CHECK(flag && requests[0] == MPI_REQUEST_NULL);
  }
  memory_free(1, data);
}

/// Completes 12 requests of all sorts by one of the calls that complete; each comes once, with its own status.
static void completions(int way) {
  enum { kCount = 12, kBytes = 30000 };
  MPI_Request requests[kCount];
  MPI_Status statuses[kCount];
  char* data[kCount];
  int seen[kCount] = {0}, indices[kCount], left = 0;
  for (int i = 0; i < kCount; i++) {
    const int on_device = i % 3 != 0, sends = i % 2;
    data[i] = filled(on_device, kBytes, sends ? 60 + i + rank : 0);
    requests[i] = MPI_REQUEST_NULL;
    if (i == 6) continue;
    left++;
    const int bytes = i * 2500;
    if (i == 8 || i == 9) {  // persistent requests of the program's own, from and to the host
      memory_free(on_device, data[i]);
      data[i] = filled(0, kBytes, sends ? 60 + i + rank : 0);
      if (sends) OK(MPI_Send_init(data[i], bytes, MPI_BYTE, other, i - 1, comm, &requests[i]));
      else OK(MPI_Recv_init(data[i], kBytes, MPI_BYTE, other, i, comm, &requests[i]));
      OK(MPI_Start(&requests[i]));
    } else if (sends) {
      OK(MPI_Isend(data[i], bytes, MPI_BYTE, other, i - 1, comm, &requests[i]));
    } else {
      OK(MPI_Irecv(data[i], kBytes, MPI_BYTE, i % 4 ? MPI_ANY_SOURCE : other, i, comm, &requests[i]));
    }
  }
  // The partner of 6 (none) is 7: its message is taken by hand.
  char* taken = filled(1, kBytes, 0);
  MPI_Request extra;
  OK(MPI_Irecv(taken, kBytes, MPI_BYTE, other, 6, comm, &extra));
  while (left > 0) {
    int flag = 0, index = -1, count = 0;
    switch (way) {
      case 0:
        OK(MPI_Waitany(kCount, requests, &index, &statuses[0]));
        indices[0] = index, count = 1;
        break;
      case 1:
        OK(MPI_Testany(kCount, requests, &index, &flag, &statuses[0]));
        indices[0] = index, count = flag;
        break;
      case 2: OK(MPI_Waitsome(kCount, requests, &count, indices, statuses)); break;
      case 3: OK(MPI_Testsome(kCount, requests, &count, indices, statuses)); break;
      case 4:
        OK(MPI_Testall(kCount, requests, &flag, statuses));
        for (int i = 0; flag && i < kCount; i++)
          if (i != 6) indices[count++] = i;
        break;
      case 5:
        for (int i = 0; i < kCount; i++) {
          if (requests[i] == MPI_REQUEST_NULL || seen[i]) continue;
          OK(MPI_Test(&requests[i], &flag, &statuses[count]));
          if (flag) indices[count++] = i;
        }
        break;
      default:
        OK(MPI_Waitall(kCount, requests, statuses));
        for (int i = 0; i < kCount; i++)
          if (i != 6) indices[count++] = i;
    }
    CHECK(count >= 0 && count <= left);
    for (int k = 0; k < count; k++) {
      const int i = indices[k];
      CHECK(i >= 0 && i < kCount && i != 6 && !seen[i]);
      seen[i] = 1, left--;
      const MPI_Status* status = &statuses[way == 4 || way > 5 ? i : k];
      if (i % 2 == 0) {
        check_status(status, other, i, MPI_BYTE, (i + 1) * 2500);
        check(i != 8 && i % 3 != 0, data[i], (i + 1) * 2500, kBytes, 60 + i + 1 + other);
      }
      if (i == 8 || i == 9) OK(MPI_Request_free(&requests[i]));
      CHECK(requests[i] == MPI_REQUEST_NULL);
    }
  }
  OK(MPI_Wait(&extra, &statuses[0]));
  check_status(&statuses[0], other, 6, MPI_BYTE, 7 * 2500);
  check(1, taken, 7 * 2500, kBytes, 67 + other);
  memory_free(1, taken);
  for (int i = 0; i < kCount; i++) memory_free(i != 8 && i != 9 && i % 3 != 0, data[i]);
  int index, flag, count;
  OK(MPI_Testany(kCount, requests, &index, &flag, &statuses[0]));
  CHECK(flag && index == MPI_UNDEFINED);
  OK(MPI_Testsome(kCount, requests, &count, indices, statuses));
  CHECK(count == MPI_UNDEFINED);
}

static void exchanges(int from_device, int to_device) {
  enum { kBytes = 100000 };
  char *out = filled(from_device, kBytes, 20 + rank), *in = filled(to_device, kBytes, 0);
  MPI_Status status;
  OK(MPI_Sendrecv(out, kBytes - rank, MPI_BYTE, other, 3, in, kBytes, MPI_BYTE, other, 3, comm, &status));
  check_status(&status, other, 3, MPI_BYTE, kBytes - other);
  check(to_device, in, kBytes - other, kBytes, 20 + other);
  fill(to_device, in, kBytes, 0);
  if (rank == 0) {  // what it gets is sent when what it sends has been received, and with strict checks verified
    OK(MPI_Sendrecv(out, kBytes, MPI_BYTE, other, 8, in, kBytes, MPI_BYTE, other, 9, comm, &status));
  } else {
    OK(MPI_Recv(in, kBytes, MPI_BYTE, other, 8, comm, &status));
    OK(MPI_Send(out, kBytes, MPI_BYTE, other, 9, comm));
  }
  check(to_device, in, kBytes, kBytes, 20 + other);
  fill(to_device, in, kBytes, 0);
  OK(MPI_Sendrecv(out, 100, MPI_BYTE, rank, 4, in, 200, MPI_BYTE, rank, 4, comm, MPI_STATUS_IGNORE));  // to itself
  check(to_device, in, 100, kBytes, 20 + rank);
  OK(MPI_Sendrecv_replace(out, kBytes, MPI_BYTE, other, 5, other, 5, comm, &status));
  check_status(&status, other, 5, MPI_BYTE, kBytes);
  check(from_device, out, kBytes, kBytes, 20 + other);
  OK(MPI_Sendrecv_replace(out, kBytes, MPI_BYTE, rank == 0 ? other : MPI_PROC_NULL, 5,
                          rank == 0 ? MPI_PROC_NULL : other, 5, comm, &status));
  check(from_device, out, kBytes, kBytes, 21);
  OK(MPI_Sendrecv(out, 100, MPI_BYTE, rank == 0 ? other : MPI_PROC_NULL, 6, in, 100, MPI_BYTE,
                  rank == 0 ? MPI_PROC_NULL : other, 6, comm, &status));
  check_status(&status, rank == 0 ? MPI_PROC_NULL : other, rank == 0 ? MPI_ANY_TAG : 6, MPI_BYTE, rank == 0 ? 0 : 100);
#if MPI_VERSION >= 4
  if (from_device &&
      to_device) {  // else MPICH 4.0 carries some of it out, and leaves the status of MPI_Isendrecv as it was
    MPI_Request request;
    fill(1, out, kBytes, 30 + rank), fill(1, in, kBytes, 0);
    OK(MPI_Isendrecv(out, kBytes - rank, MPI_BYTE, other, 3, in, kBytes, MPI_BYTE, other, 3, comm, &request));
    OK(MPI_Wait(&request, &status));
    check_status(&status, other, 3, MPI_BYTE, kBytes - other);
    check(1, in, kBytes - other, kBytes, 30 + other);
    OK(MPI_Isendrecv_replace(out, kBytes, MPI_BYTE, other, 5, other, 5, comm, &request));
    OK(MPI_Wait(&request, &status));
    check_status(&status, other, 5, MPI_BYTE, kBytes);
    check(1, out, kBytes, kBytes, 30 + other);
    OK(MPI_Isendrecv(out, 100, MPI_BYTE, rank == 0 ? other : MPI_PROC_NULL, 3, in, 100, MPI_BYTE,
                     rank == 0 ? MPI_PROC_NULL : other, 3, comm, &request));
    OK(MPI_Waitall(1, &request, &status));
    check_status(&status, rank == 0 ? MPI_PROC_NULL : other, rank == 0 ? MPI_ANY_TAG : 3, MPI_BYTE,
                 rank == 0 ? 0 : 100);
    fill(1, out, kBytes, 33);
    OK(MPI_Isend_c(out, 1000, MPI_BYTE, other, 8, comm, &request));
    OK(MPI_Recv_c(in, 2000, MPI_BYTE, other, 8, comm, &status));
    OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    check_status(&status, other, 8, MPI_BYTE, 1000);
    memory_read(1, found, in, 1000);
    for (int i = 0; i < 1000; i++) CHECK(found[i] == byte_of(33, i));
  }
#endif
  memory_free(from_device, out), memory_free(to_device, in);
}

static void probes(int from_device, int to_device) {
  enum { kBytes = 50000 };
  MPI_Status status;
  for (int way = 0; way < 4; way++) {
    if (rank == 0) {
      char* data = filled(from_device, kBytes, 70 + way);
      MPI_Request request;
      OK(MPI_Isend(data, kBytes, MPI_BYTE, other, 10 + way, comm, &request));
      OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
      memory_free(from_device, data);
    } else {
      char* data = filled(to_device, kBytes + 10, 0);
      MPI_Message message;
      MPI_Request request;
      int flag = 0;
      if (way == 0) OK(MPI_Probe(MPI_ANY_SOURCE, 10, comm, &status));
      while (way == 1 && !flag) OK(MPI_Iprobe(other, 11, comm, &flag, &status));
      if (way == 2) OK(MPI_Mprobe(other, MPI_ANY_TAG, comm, &message, &status));
      while (way == 3 && !flag) OK(MPI_Improbe(other, 13, comm, &flag, &message, &status));
      check_status(&status, other, 10 + way, MPI_BYTE, kBytes);
      if (way < 2) {
        OK(MPI_Recv(data, kBytes + 10, MPI_BYTE, other, 10 + way, comm, &status));
      } else if (way == 2) {
        OK(MPI_Mrecv(data, kBytes + 10, MPI_BYTE, &message, &status));
      } else {
        OK(MPI_Imrecv(data, kBytes + 10, MPI_BYTE, &message, &request));
        OK(MPI_Wait(&request, &status));
      }
      if (way >= 2) CHECK(message == MPI_MESSAGE_NULL);
      check_status(&status, other, 10 + way, MPI_BYTE, kBytes);
      check(to_device, data, kBytes, kBytes + 10, 70 + way);
      memory_free(to_device, data);
    }
  }
}

/// Messages of a rank to itself, and more of them than there are lanes or bits anywhere.
static void itself(void) {
  enum { kCount = 300, kBytes = 700 };
  static MPI_Request requests[2 * kCount];
  char *out = filled(1, kCount * kBytes, 11), *in = filled(1, kCount * kBytes, 0);
  for (int i = 0; i < kCount; i++) OK(MPI_Isend(out + i * kBytes, kBytes, MPI_BYTE, rank, i % 7, comm, &requests[i]));
  for (int i = 0; i < kCount; i++)
    OK(MPI_Irecv(in + i * kBytes, kBytes, MPI_BYTE, rank, i % 7, comm, &requests[kCount + i]));
  OK(MPI_Waitall(2 * kCount, requests, MPI_STATUSES_IGNORE));
  check(1, in, kCount * kBytes, kCount * kBytes, 11);
  memory_free(1, out), memory_free(1, in);
}

/// More pinned memory than there is (16 MiB): nobody waits for ever, and everything arrives.
static void memory(void) {
  enum { kCount = 10, kLong = 4 << 20 };
  MPI_Request requests[2 * kCount];
  char *in[kCount], *out = memory_new(1, kLong), *data = malloc(kLong), *came = malloc(kLong);
  for (int i = 0; i < kLong; i++) data[i] = (char)byte_of(5 + rank, i);
  memory_write(1, out, data, kLong);
  for (int i = 0; i < kLong; i++) data[i] = (char)byte_of(5 + other, i);
  for (int i = 0; i < kCount; i++) {
    in[i] = memory_new(1, kLong);
    OK(MPI_Irecv(in[i], kLong, MPI_BYTE, other, i, comm, &requests[i]));
  }
  for (int i = 0; i < kCount; i++) OK(MPI_Isend(out, kLong, MPI_BYTE, other, i, comm, &requests[kCount + i]));
  OK(MPI_Waitall(2 * kCount, requests, MPI_STATUSES_IGNORE));
  for (int i = 0; i < kCount; i++) {
    memory_read(1, came, in[i], kLong);
    CHECK(memcmp(came, data, kLong) == 0);
    memory_free(1, in[i]);
  }
  memory_free(1, out);
  free(data), free(came);
}

/// The context is destroyed under way, with slow copies: an error, to the communicator's handler; nothing else goes
/// wrong.
static void gone(void) {
  enum { kLong = 1 << 20 };
  MPI_Comm quiet;
  MPI_Request requests[3];
  MPI_Status statuses[3];
  OK(MPI_Comm_dup(comm, &quiet));
  OK(MPI_Comm_set_errhandler(quiet, MPI_ERRORS_RETURN));
  for (int way = 0; way < 2; way++) {
    if (rank == 0) {
      char *first = memory_new(1, kLong), *second = filled(0, 100, 3);
      OK(MPI_Irecv(second, 100, MPI_BYTE, other, 8, quiet, &requests[1]));
      OK(MPI_Isend(first, kLong, MPI_BYTE, other, 7, quiet, &requests[0]));
      CHECK(device.destroy(device.context) == 0);
      OK(MPI_Send(NULL, 0, MPI_BYTE, other, 9, quiet));
      if (way == 0) {
        CHECK(class_of(MPI_Wait(&requests[0], &statuses[0])) == MPI_ERR_OTHER);
        OK(MPI_Wait(&requests[1], &statuses[1]));
      } else {
        CHECK(class_of(MPI_Waitall(2, requests, statuses)) == MPI_ERR_IN_STATUS);
        CHECK(class_of(statuses[0].MPI_ERROR) == MPI_ERR_OTHER && statuses[1].MPI_ERROR == MPI_SUCCESS);
      }
      CHECK(requests[0] == MPI_REQUEST_NULL && requests[1] == MPI_REQUEST_NULL);
      memory_free(0, second);
      device_open();
    } else {
      char* data = filled(1, 100, 4);
      OK(MPI_Recv(NULL, 0, MPI_BYTE, other, 9, quiet, MPI_STATUS_IGNORE));
      OK(MPI_Send(data, 100, MPI_BYTE, other, 8, quiet));
      memory_free(1, data);
    }
  }
  OK(MPI_Comm_free(&quiet));
  head_on();  // with the new context
}

int main(int argc, char** argv) {
  parts = argv + 1;
  device_open();
  OK(MPI_Init(&argc, &argv));
  int size = 0;
  OK(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
  OK(MPI_Comm_size(MPI_COMM_WORLD, &size));
  CHECK(size == 2);
  other = 1 - rank;
  OK(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
  static char room[1 << 20];
  OK(MPI_Buffer_attach(room, sizeof(room)));
  for (int ends = 0; ends < 4; ends++) {
    if (wanted("modes")) modes(ends & 1, ends & 2);
    if (wanted("derived")) derived(ends & 1, ends & 2);
    if (wanted("exchanges")) exchanges(ends & 1, ends & 2);
    if (wanted("probes")) probes(ends & 1, ends & 2);
  }
  for (int mixed = 0; mixed < 2; mixed++)
    if (wanted("sets")) sets(mixed);
  if (wanted("order")) order();
  if (wanted("head_on")) head_on();
  if (wanted("freed")) freed();
  if (wanted("errors")) errors();
  if (wanted("cancelled")) cancelled();
  for (int way = 0; way < 7; way++)
    if (wanted("completions")) completions(way);
  if (wanted("itself")) itself();
  if (*parts != NULL && wanted("memory")) memory();
  if (*parts != NULL && wanted("gone")) gone();
  void* detached;
  int bytes;
  OK(MPI_Buffer_detach(&detached, &bytes));
  OK(MPI_Comm_free(&comm));
  OK(MPI_Finalize());
  if (rank == 0) puts("ok");
  return 0;
}
