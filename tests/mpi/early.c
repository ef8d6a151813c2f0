// SPDX-License-Identifier: Apache-2.0
//
// A program that lets go of everything as early as both libraries permit: arrays of counts, displacements, datatypes
// and requests are unmapped as soon as the call has returned that was given them; datatypes, operators, communicators
// and info objects are freed while operations with them are under way. And receives from MPI_PROC_NULL of every kind,
// with wildcards. Two ranks. One line on standard output. With the argument "answers": see there.

#include <mpi.h>
#include <string.h>
#include <sys/mman.h>

#include "../which_mpi.h"
#include "check.h"

enum { kPage = 4096, kN = 96 };

static int late;  // Open MPI 4.1 looks at arrays of datatypes and at the communicator until the collective is complete
static int rank, size, right, left;
static unsigned long sum;
static MPI_Comm world;

/// Memory of its own page, so that whoever looks at it later is killed.
static void* page(void) {
  void* memory = mmap(NULL, kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(memory != MAP_FAILED);
  return memory;
}

static void gone(void* memory) {
  memset(memory, 0x7b, kPage);
  CHECK(munmap(memory, kPage) == 0);
}

static int* numbers(int first, int step) {
  int* list = page();
  for (int i = 0; i < size; i++) list[i] = first + i * step;
  return list;
}

static void fill(double* data, int n, double from) {
  for (int i = 0; i < n; i++) data[i] = from + 1.0 / (1 + i + 100 * rank);
}

/// The request moves to another place before it is waited for, and its first place goes.
static void complete(MPI_Request* first) {
  MPI_Request* second = page();
  *second = *first;
  gone(first);
  MPI_Status* status = page();
  OK(MPI_Wait(second, status));
  CHECK(*second == MPI_REQUEST_NULL);
  gone(second);
  gone(status);
}

static void finish(MPI_Request* request, const void* data, size_t bytes) {
  complete(request);
  sum ^= fingerprint(data, bytes) + (sum << 1);
}

static MPI_Datatype pairs(void) {
  MPI_Datatype type;
  OK(MPI_Type_vector(2, 1, 2, MPI_DOUBLE, &type));
  OK(MPI_Type_commit(&type));
  return type;
}

static double out[kN], in[2 * kN];

static void begin(void) {
  memset(in, 0, sizeof(in));
  fill(out, kN, 3);
}

static void vectors(void) {
  int *counts = numbers(3, 1), *places = numbers(1, 8), *counts2 = numbers(3 + rank, 0), *places2 = numbers(0, 12);
  MPI_Request* request = page();
  begin();
  OK(MPI_Iallgatherv(out, 3 + rank, MPI_DOUBLE, in, counts, places, MPI_DOUBLE, world, request));
  gone(counts), gone(places);
  finish(request, in, sizeof(in));
  counts = numbers(3, 1), places = numbers(1, 8), request = page();
  begin();
  OK(MPI_Ialltoallv(out, counts, places, MPI_DOUBLE, in, counts2, places2, MPI_DOUBLE, world, request));
  gone(counts), gone(places), gone(counts2), gone(places2);
  finish(request, in, sizeof(in));
  counts = numbers(3, 1), places = numbers(1, 8), request = page();
  begin();
  OK(MPI_Igatherv(out, 3 + rank, MPI_DOUBLE, in, counts, places, MPI_DOUBLE, 1, world, request));
  gone(counts), gone(places);
  finish(request, in, sizeof(in));
  counts = numbers(3, 1), places = numbers(1, 8), request = page();
  begin();
  OK(MPI_Iscatterv(out, counts, places, MPI_DOUBLE, in, 3 + rank, MPI_DOUBLE, 0, world, request));
  gone(counts), gone(places);
  finish(request, in, sizeof(in));
  counts = numbers(2, 1), request = page();
  begin();
  OK(MPI_Ireduce_scatter(out, in, counts, MPI_DOUBLE, MPI_SUM, world, request));
  gone(counts);
  finish(request, in, sizeof(in));
}

static void typed(void) {
  int *counts = numbers(2, 0), *places = numbers(0, 128);
  MPI_Datatype* types = page();
  MPI_Request* request = page();
  for (int i = 0; i < size; i++) types[i] = pairs();
  begin();
  OK(MPI_Ialltoallw(out, counts, places, types, in, counts, places, types, world, request));
  for (int i = 0; i < size; i++) {
    MPI_Datatype type = types[i];
    OK(MPI_Type_free(&type));
  }
  gone(counts), gone(places);
  if (!late) gone(types);
  finish(request, in, sizeof(in));
  if (late) gone(types);
}

static void neighbours(void) {
  const int dims = 2, periods = 1;
  MPI_Comm ring;
  OK(MPI_Cart_create(world, 1, &dims, &periods, 0, &ring));
  int *counts = numbers(4, 0), *places = numbers(0, 16);
  MPI_Request* request = page();
  begin();
  OK(MPI_Ineighbor_allgatherv(out, 4, MPI_DOUBLE, in, counts, places, MPI_DOUBLE, ring, request));
  gone(counts), gone(places);
  finish(request, in, sizeof(in));
  counts = numbers(4, 0), places = numbers(0, 16), request = page();
  begin();
  OK(MPI_Ineighbor_alltoallv(out, counts, places, MPI_DOUBLE, in, counts, places, MPI_DOUBLE, ring, request));
  gone(counts), gone(places);
  finish(request, in, sizeof(in));
  counts = numbers(4, 0), request = page();
  MPI_Aint* bytes = page();
  MPI_Datatype* types = page();
  for (int i = 0; i < 2; i++) bytes[i] = 64 * i, types[i] = MPI_DOUBLE;
  begin();
  OK(MPI_Ineighbor_alltoallw(out, counts, bytes, types, in, counts, bytes, types, ring, request));
  gone(counts), gone(bytes);
  if (!late) gone(types);
  finish(request, in, sizeof(in));
  if (late) gone(types);
  OK(MPI_Comm_free(&ring));
}

static void own_sum(void* a, void* b, int* count, MPI_Datatype* type) {
  (void)type;
  for (int i = 0; i < *count; i++) ((double*)b)[i] += ((double*)a)[i];
}

/// Datatypes, operators and communicators that are freed while they are in use.
static void objects(void) {
  MPI_Op op;
  MPI_Comm comm, other;
  MPI_Request *request = page(), *requests = page();
  OK(MPI_Op_create(own_sum, 1, &op));
  OK(MPI_Comm_dup(world, &comm));
  begin();
  OK(MPI_Iallreduce(out, in, kN, MPI_DOUBLE, op, comm, request));
  OK(MPI_Op_free(&op));
  if (!late) OK(MPI_Comm_free(&comm));
  OK(MPI_Comm_dup(world, &other));  // takes the place, perhaps the handle
  finish(request, in, sizeof(in));
  if (late) OK(MPI_Comm_free(&comm));
  begin();
  MPI_Datatype type = pairs();
  OK(MPI_Irecv(in, 5, type, MPI_ANY_SOURCE, 7, other, &requests[0]));
  OK(MPI_Isend(out, 5, type, right, 7, other, &requests[1]));
  OK(MPI_Type_free(&type));
  OK(MPI_Comm_free(&other));
  OK(MPI_Comm_dup(world, &other));
  MPI_Status* statuses = page();
  OK(MPI_Waitall(2, requests, statuses));
  CHECK(statuses[0].MPI_SOURCE == left && statuses[0].MPI_TAG == 7);
  gone(statuses), gone(requests);
  sum ^= fingerprint(in, sizeof(in)) + (sum << 1);
  // Persistent, and the communicator is gone before the second start.
  requests = page();
  type = pairs();
  OK(MPI_Recv_init(in, 5, type, MPI_ANY_SOURCE, MPI_ANY_TAG, other, &requests[0]));
  OK(MPI_Send_init(out, 5, type, right, 9, other, &requests[1]));
  OK(MPI_Type_free(&type));
  for (int i = 0; i < 2; i++) {
    begin();
    MPI_Request* starting = page();
    memcpy(starting, requests, 2 * sizeof(MPI_Request));
    OK(MPI_Startall(2, starting));
    gone(starting);
    if (i == 0) OK(MPI_Comm_free(&other));
    OK(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE));
    sum ^= fingerprint(in, sizeof(in)) + (sum << 1);
  }
  OK(MPI_Request_free(&requests[0]));
  OK(MPI_Request_free(&requests[1]));
  gone(requests);
  // A receive whose request is freed while it is active.
  begin();
  request = page();
  static double whenever[4];
  OK(MPI_Irecv(whenever, 4, MPI_DOUBLE, MPI_ANY_SOURCE, 11, world, request));
  OK(MPI_Request_free(request));
  gone(request);
  OK(MPI_Send(out, 4, MPI_DOUBLE, right, 11, world));
  OK(MPI_Barrier(world));
}

/// MPICH has written the handle when the call returns; Open MPI does so later.
static void duplicate(void) {
  MPI_Comm *made = page(), copy = MPI_COMM_NULL;
  MPI_Request request;
  *made = MPI_COMM_NULL;
  OK(MPI_Comm_idup(world, made, &request));
  const int at_once = *made != MPI_COMM_NULL && request != MPI_REQUEST_NULL;
  if (on_mpich()) {
    CHECK(at_once || request == MPI_REQUEST_NULL);
    copy = *made;
    gone(made);
  }
  OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
  if (on_openmpi()) {
    copy = *made;
    gone(made);
  }
  int value = rank == 0 ? 5 : 0;
  OK(MPI_Bcast(&value, 1, MPI_INT, 0, copy));
  CHECK(value == 5);
  OK(MPI_Comm_free(&copy));
}

/// Four pairs of what that rank has filled in, and nothing between them.
static void from(int source, const double* got) {
  for (int i = 0; i < 12; i++) CHECK(got[i] == (i % 3 == 1 ? 0 : 3 + 1.0 / (1 + i + 100 * source)));
}

/// With its request complete the data of MPI_Rget must be there. MPICH 4.0 and 4.2 on UCX make a complete request when
/// a datatype is not contiguous, and the data comes by the end of the epoch: only then is it looked at.
static void fetch(MPI_Win win, int lock) {
  MPI_Request* request = page();
  MPI_Datatype type = pairs();
  begin();
  OK(MPI_Win_lock(lock, right, 0, win));
  OK(MPI_Rget(in, 4, type, right, 0, 4, type, win, request));
  OK(MPI_Type_free(&type));
  complete(request);
  if (on_openmpi()) from(rank, in);
  OK(MPI_Win_unlock(right, win));
  from(rank, in);
  sum ^= fingerprint(in, sizeof(in)) + (sum << 1);
}

static void windows(void) {
  MPI_Win win;
  MPI_Info info;
  double* memory;
  OK(MPI_Info_create(&info));
  OK(MPI_Info_set(info, "no_locks", "false"));
  OK(MPI_Win_allocate(kN * sizeof(double), sizeof(double), info, world, &memory, &win));
  OK(MPI_Info_free(&info));
  memset(memory, 0, kN * sizeof(double));
  OK(MPI_Win_fence(0, win));
  begin();
  MPI_Datatype type = pairs();
  OK(MPI_Put(out, 4, type, right, 0, 4, type, win));
  OK(MPI_Get(in, 1, type, right, 40, 1, type, win));
  OK(MPI_Type_free(&type));
  OK(MPI_Win_fence(0, win));
  from(right, memory);
  sum ^= fingerprint(memory, kN * sizeof(double)) + (sum << 1);
  OK(MPI_Barrier(world));
  for (int i = 0; i < 8; i++) fetch(win, MPI_LOCK_SHARED);
  OK(MPI_Barrier(world));
  for (int i = 0; i < 8; i++) fetch(win, MPI_LOCK_EXCLUSIVE);
  OK(MPI_Win_free(&win));
}

static void files(void) {
  const char* name = getenv("EARLY_FILE");
  if (name == NULL) return;
  MPI_File file;
  MPI_Request* request;
  MPI_Datatype type;
  char* path = page();
  snprintf(path, kPage, "%s", name);
  OK(MPI_File_open(world, path, MPI_MODE_CREATE | MPI_MODE_RDWR | MPI_MODE_DELETE_ON_CLOSE, MPI_INFO_NULL, &file));
  gone(path);
  type = pairs();
  request = page();
  begin();
  OK(MPI_File_iwrite_at(file, rank * 4096, out, 4, type, request));
  OK(MPI_Type_free(&type));
  finish(request, out, sizeof(out));
  request = page();
  type = pairs();
  OK(MPI_File_iread_at(file, rank * 4096, in, 4, type, request));
  OK(MPI_Type_free(&type));
  finish(request, in, sizeof(in));
  OK(MPI_File_close(&file));
}

#if MPI_VERSION >= 4
/// Persistent collectives and large counts.
static void newer(void) {
  int *counts = numbers(3, 1), *places = numbers(1, 8), *counts2 = numbers(3 + rank, 0), *places2 = numbers(0, 12);
  MPI_Request request;
  OK(MPI_Alltoallv_init(out, counts, places, MPI_DOUBLE, in, counts2, places2, MPI_DOUBLE, world, MPI_INFO_NULL,
                        &request));
  gone(counts), gone(places), gone(counts2), gone(places2);
  for (int i = 0; i < 2; i++) {
    begin();
    OK(MPI_Start(&request));
    OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    sum ^= fingerprint(in, sizeof(in)) + (sum << 1);
  }
  OK(MPI_Request_free(&request));
  counts = numbers(2, 1);
  OK(MPI_Reduce_scatter_init(out, in, counts, MPI_DOUBLE, MPI_SUM, world, MPI_INFO_NULL, &request));
  gone(counts);
  begin();
  OK(MPI_Start(&request));
  OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
  sum ^= fingerprint(in, sizeof(in)) + (sum << 1);
  OK(MPI_Request_free(&request));
  MPI_Count* many = page();
  MPI_Aint* bytes = page();
  for (int i = 0; i < size; i++) many[i] = 3 + i, bytes[i] = 1 + 8 * i;
  MPI_Request* moved = page();
  begin();
  OK(MPI_Iallgatherv_c(out, 3 + rank, MPI_DOUBLE, in, many, bytes, MPI_DOUBLE, world, moved));
  gone(many), gone(bytes);
  finish(moved, in, sizeof(in));
  moved = page();
  begin();
  OK(MPI_Isendrecv(out, 4, MPI_DOUBLE, right, 3, in, 4, MPI_DOUBLE, MPI_PROC_NULL, MPI_ANY_TAG, world, moved));
  OK(MPI_Recv(in + 8, 4, MPI_DOUBLE, left, 3, world, MPI_STATUS_IGNORE));
  finish(moved, in, sizeof(in));
}
#endif

static void is_null(const MPI_Status* status) {
  int count;
  OK(MPI_Get_count(status, MPI_DOUBLE, &count));
  CHECK(status->MPI_SOURCE == MPI_PROC_NULL && status->MPI_TAG == MPI_ANY_TAG && count == 0);
}

/// The same of a request: MPICH 4.0 leaves that status as it was.
static void waited_null(const MPI_Status* status) {
  if (on_openmpi()) is_null(status);
}

/// Borders of a halo: what comes from nobody is there at once.
static void from_nobody(void) {
  MPI_Status status, statuses[2];
  MPI_Request request, two[2];
  MPI_Message message;
  int flag, index;
  begin();
  OK(MPI_Irecv(in, 3, MPI_DOUBLE, MPI_PROC_NULL, MPI_ANY_TAG, world, &request));
  OK(MPI_Wait(&request, &status));
  waited_null(&status);
  OK(MPI_Irecv(in, 3, MPI_DOUBLE, MPI_PROC_NULL, MPI_ANY_TAG, world, &request));
  OK(MPI_Test(&request, &flag, &status));
  CHECK(flag);
  OK(MPI_Recv(in, 3, MPI_DOUBLE, MPI_PROC_NULL, MPI_ANY_TAG, world, &status));
  is_null(&status);
  OK(MPI_Recv_init(in, 3, MPI_DOUBLE, MPI_PROC_NULL, MPI_ANY_TAG, world, &two[0]));
  OK(MPI_Recv_init(in, 3, MPI_DOUBLE, MPI_ANY_SOURCE, MPI_ANY_TAG, world, &two[1]));
  for (int i = 0; i < 3; i++) {
    OK(MPI_Startall(2, two));
    OK(MPI_Send(out, 3, MPI_DOUBLE, right, 20 + i, world));
    if (i == 1) {
      OK(MPI_Waitany(2, two, &index, &status));
      OK(MPI_Waitany(2, two, &index, &status));
    } else {
      OK(MPI_Waitall(2, two, statuses));
      waited_null(&statuses[0]);
      CHECK(statuses[1].MPI_TAG == 20 + i);
    }
  }
  OK(MPI_Request_free(&two[0]));
  OK(MPI_Request_free(&two[1]));
  OK(MPI_Probe(MPI_PROC_NULL, MPI_ANY_TAG, world, &status));
  is_null(&status);
  OK(MPI_Iprobe(MPI_PROC_NULL, MPI_ANY_TAG, world, &flag, &status));
  CHECK(flag);
  is_null(&status);
  OK(MPI_Mprobe(MPI_PROC_NULL, MPI_ANY_TAG, world, &message, &status));
  CHECK(message == MPI_MESSAGE_NO_PROC);
  OK(MPI_Mrecv(in, 3, MPI_DOUBLE, &message, &status));
  is_null(&status);
  OK(MPI_Improbe(MPI_PROC_NULL, MPI_ANY_TAG, world, &flag, &message, &status));
  CHECK(flag);
  OK(MPI_Imrecv(in, 3, MPI_DOUBLE, &message, &request));
  OK(MPI_Wait(&request, &status));
  waited_null(&status);
  OK(MPI_Sendrecv(out, 3, MPI_DOUBLE, MPI_PROC_NULL, 1, in, 3, MPI_DOUBLE, MPI_PROC_NULL, MPI_ANY_TAG, world, &status));
  is_null(&status);
  OK(MPI_Sendrecv_replace(in, 3, MPI_DOUBLE, MPI_PROC_NULL, 1, MPI_PROC_NULL, MPI_ANY_TAG, world, &status));
  is_null(&status);
  // One side at the border, the other not.
  const int up = rank == 0 ? 1 : MPI_PROC_NULL, down = rank == 1 ? 0 : MPI_PROC_NULL;
  OK(MPI_Sendrecv(out, 3, MPI_DOUBLE, up, 1, in, 3, MPI_DOUBLE, down, MPI_ANY_TAG, world, &status));
  sum ^= fingerprint(in, sizeof(in)) + (sum << 1);
}

/// Between groups: wildcards, and the roots that are none.
static void between(void) {
  MPI_Comm own, inter;
  MPI_Request request;
  MPI_Status status;
  double value = rank;
  OK(MPI_Comm_split(world, rank, 0, &own));
  OK(MPI_Intercomm_create(own, 0, world, right, 4, &inter));
  OK(MPI_Irecv(in, 3, MPI_DOUBLE, MPI_ANY_SOURCE, MPI_ANY_TAG, inter, &request));
  OK(MPI_Send(out, 3, MPI_DOUBLE, 0, 2, inter));
  OK(MPI_Wait(&request, &status));
  CHECK(status.MPI_SOURCE == 0 && status.MPI_TAG == 2);
  OK(MPI_Irecv(in, 3, MPI_DOUBLE, MPI_PROC_NULL, MPI_ANY_TAG, inter, &request));
  OK(MPI_Wait(&request, &status));
  waited_null(&status);
  OK(MPI_Bcast(&value, 1, MPI_DOUBLE, rank == 0 ? MPI_ROOT : 0, inter));
  CHECK(value == 0);
  OK(MPI_Comm_free(&inter));
  OK(MPI_Comm_free(&own));
}

/// Rank 1 has received a message, and asks about it, while rank 0 waits for it in a reduction.
static int answers(void) {
  double value = 1, all = 0;
  OK(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
  fill(out, kN, 1);
  for (int i = 0; i < 20; i++) {
    if (rank == 0) OK(MPI_Send(out, kN, MPI_DOUBLE, 1, 1, MPI_COMM_WORLD));
    else OK(MPI_Recv(in, kN, MPI_DOUBLE, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    OK(MPI_Allreduce(&value, &all, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD));
  }
  return MPI_Finalize();
}

/// Addresses, which are others in each run.
static void addresses(void) {
  MPI_Aint own, got[2];
  MPI_Request request;
  void* memory = page();
  OK(MPI_Get_address(memory, &own));
  OK(MPI_Allgather(&own, 1, MPI_AINT, got, 1, MPI_AINT, world));
  CHECK(got[rank] == own);
  OK(MPI_Irecv(got, 1, MPI_AINT, left, 30, world, &request));
  OK(MPI_Send(&own, 1, MPI_AINT, right, 30, world));
  OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
  gone(memory);
}

int main(int argc, char** argv) {
  OK(MPI_Init(&argc, &argv));
  late = on_openmpi();
  if (argc > 1 && strcmp(argv[1], "answers") == 0) return answers();
  OK(MPI_Comm_dup(MPI_COMM_WORLD, &world));
  OK(MPI_Comm_rank(world, &rank));
  OK(MPI_Comm_size(world, &size));
  CHECK(size == 2);
  right = (rank + 1) % size, left = right;
  vectors();
  typed();
  neighbours();
  objects();
  duplicate();
  windows();
  files();
#if MPI_VERSION >= 4
  newer();
#endif
  from_nobody();
  between();
  addresses();
  unsigned long all[2];
  OK(MPI_Allgather(&sum, 1, MPI_UNSIGNED_LONG, all, 1, MPI_UNSIGNED_LONG, world));
  if (rank == 0) printf("%016lx %016lx\n", all[0], all[1]);
  OK(MPI_Comm_free(&world));
  OK(MPI_Finalize());
  return 0;
}
