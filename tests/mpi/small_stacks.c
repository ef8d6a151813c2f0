// SPDX-License-Identifier: Apache-2.0
//
// How much stack MPI calls use: each kind of call is made on a stack of its own (ucontext, as Argobots and
// Boost.Context have them) that was painted before, and the lowest byte that lost its colour says how deep it went. The
// first calls from their places count as well. Then the same in a thread that has not called MPI before. One line a
// kind: "NAME BYTES". Two ranks; each prints its own to the file that STACKS_FILE names, with its rank behind it.

#include <mpi.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

#include "check.h"

enum { kStack = 1 << 18, kPaint = 0xa5, kN = 300 };

static int rank, right;
static double out[1 << 16], in[1 << 16], all[1 << 16];
static int counts[2] = {kN, kN}, places[2] = {0, kN};
static MPI_Comm comm;
static MPI_Win win;
static MPI_File file;
static MPI_Datatype strided;

static void send_receive(void) {
  if (rank == 0) OK(MPI_Send(out, kN, MPI_DOUBLE, right, 1, comm));
  else OK(MPI_Recv(in, kN, MPI_DOUBLE, right, 1, comm, MPI_STATUS_IGNORE));
  if (rank == 1) OK(MPI_Send(out, kN, MPI_DOUBLE, right, 1, comm));
  else OK(MPI_Recv(in, kN, MPI_DOUBLE, MPI_ANY_SOURCE, MPI_ANY_TAG, comm, MPI_STATUS_IGNORE));
}

static void nonblocking(void) {
  MPI_Request two[2];
  OK(MPI_Irecv(in, kN, MPI_DOUBLE, MPI_ANY_SOURCE, 2, comm, &two[0]));
  OK(MPI_Isend(out, kN, MPI_DOUBLE, right, 2, comm, &two[1]));
  OK(MPI_Waitall(2, two, MPI_STATUSES_IGNORE));
  OK(MPI_Irecv(in, 1 << 16, MPI_DOUBLE, right, 2, comm, &two[0]));
  OK(MPI_Isend(out, 1 << 16, MPI_DOUBLE, right, 2, comm, &two[1]));
  for (int i = 0, which; i < 2; i++) OK(MPI_Waitany(2, two, &which, MPI_STATUS_IGNORE));
}

static void exchange(void) {
  OK(MPI_Sendrecv(out, kN, MPI_DOUBLE, right, 3, in, kN, MPI_DOUBLE, right, 3, comm, MPI_STATUS_IGNORE));
  OK(MPI_Sendrecv(out, 5, strided, right, 3, in, 5, strided, right, MPI_ANY_TAG, comm, MPI_STATUS_IGNORE));
}

static void persistent(void) {
  MPI_Request two[2];
  OK(MPI_Recv_init(in, kN, MPI_DOUBLE, MPI_ANY_SOURCE, MPI_ANY_TAG, comm, &two[0]));
  OK(MPI_Send_init(out, kN, MPI_DOUBLE, right, 4, comm, &two[1]));
  OK(MPI_Startall(2, two));
  OK(MPI_Waitall(2, two, MPI_STATUSES_IGNORE));
  OK(MPI_Request_free(&two[0]));
  OK(MPI_Request_free(&two[1]));
}

static void probes(void) {
  MPI_Status status;
  MPI_Request request;
  OK(MPI_Isend(out, kN, MPI_DOUBLE, right, 5, comm, &request));
  OK(MPI_Probe(MPI_ANY_SOURCE, 5, comm, &status));
  OK(MPI_Recv(in, kN, MPI_DOUBLE, right, 5, comm, &status));
  OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
}

static void moving(void) {
  OK(MPI_Bcast(out, kN, MPI_DOUBLE, 0, comm));
  OK(MPI_Allgather(out, kN, MPI_DOUBLE, in, kN, MPI_DOUBLE, comm));
  OK(MPI_Alltoallv(out, counts, places, MPI_DOUBLE, in, counts, places, MPI_DOUBLE, comm));
  OK(MPI_Gatherv(out, kN, MPI_DOUBLE, in, counts, places, MPI_DOUBLE, 1, comm));
  OK(MPI_Barrier(comm));
}

static void nonblocking_collectives(void) {
  MPI_Request request;
  OK(MPI_Iallgatherv(out, kN, MPI_DOUBLE, in, counts, places, MPI_DOUBLE, comm, &request));
  OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
  OK(MPI_Iallreduce(out, in, kN, MPI_DOUBLE, MPI_SUM, comm, &request));
  OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
}

static void add(void* a, void* b, int* count, MPI_Datatype* type) {
  (void)type;
  for (int i = 0; i < *count; i++) ((double*)b)[i] += ((double*)a)[i];
}

static void reductions(void) {
  static MPI_Op op;
  OK(MPI_Allreduce(out, in, 1, MPI_DOUBLE, MPI_SUM, comm));
  OK(MPI_Allreduce(out, in, 1 << 14, MPI_DOUBLE, MPI_SUM, comm));
  OK(MPI_Allreduce(out, in, kN, MPI_FLOAT, MPI_SUM, comm));
  OK(MPI_Allreduce(out, in, kN / 2, MPI_LONG_DOUBLE, MPI_SUM, comm));
  OK(MPI_Reduce(out, in, kN, MPI_DOUBLE, MPI_PROD, 1, comm));
  OK(MPI_Scan(out, in, kN, MPI_DOUBLE, MPI_SUM, comm));
  OK(MPI_Reduce_scatter(out, in, counts, MPI_DOUBLE, MPI_MAX, comm));
  OK(MPI_Allreduce(MPI_IN_PLACE, in, kN, MPI_INT, MPI_SUM, comm));
  OK(MPI_Op_create(add, 0, &op));
  OK(MPI_Allreduce(out, in, kN, MPI_DOUBLE, op, comm));
  OK(MPI_Op_free(&op));
}

static void communicators(void) {
  MPI_Comm copy;
  OK(MPI_Comm_dup(comm, &copy));
  OK(MPI_Barrier(copy));
  OK(MPI_Comm_free(&copy));
  OK(MPI_Comm_split(comm, rank, 0, &copy));
  OK(MPI_Comm_free(&copy));
}

static void one_sided(void) {
  OK(MPI_Win_fence(0, win));
  OK(MPI_Put(out, kN, MPI_DOUBLE, right, 0, kN, MPI_DOUBLE, win));
  OK(MPI_Win_fence(0, win));
  OK(MPI_Get(in, kN, MPI_DOUBLE, right, 0, kN, MPI_DOUBLE, win));
  OK(MPI_Accumulate(out, 8, MPI_DOUBLE, right, kN, 8, MPI_DOUBLE, MPI_SUM, win));
  OK(MPI_Win_fence(0, win));
}

static void files(void) {
  if (file == MPI_FILE_NULL) return;
  OK(MPI_File_write_at(file, rank * 65536, out, kN, MPI_DOUBLE, MPI_STATUS_IGNORE));
  OK(MPI_File_read_at(file, rank * 65536, in, kN, MPI_DOUBLE, MPI_STATUS_IGNORE));
  OK(MPI_File_write_at_all(file, rank * 65536, out, kN, MPI_DOUBLE, MPI_STATUS_IGNORE));
}

static const struct {
  const char* name;
  void (*run)(void);
} kinds[] = {{"send_receive", send_receive},
             {"nonblocking", nonblocking},
             {"exchange", exchange},
             {"persistent", persistent},
             {"probes", probes},
             {"moving", moving},
             {"nonblocking_collectives", nonblocking_collectives},
             {"reductions", reductions},
             {"communicators", communicators},
             {"one_sided", one_sided},
             {"files", files}};
enum { kKinds = sizeof(kinds) / sizeof(kinds[0]) };

static ucontext_t back, there;
static void (*to_run)(void);

static void body(void) {
  to_run();
  OK(MPI_Barrier(comm));  // a switch of stacks lies between two calls
}

/// Bytes of a painted stack that `run` used.
static long depth_of(void (*run)(void)) {
  unsigned char* stack = mmap(NULL, kStack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(stack != MAP_FAILED);
  memset(stack, kPaint, kStack);
  CHECK(getcontext(&there) == 0);
  there.uc_stack.ss_sp = stack;
  there.uc_stack.ss_size = kStack;
  there.uc_link = &back;
  to_run = run;
  makecontext(&there, body, 0);
  CHECK(swapcontext(&back, &there) == 0);
  long low = 0;
  while (low < kStack && stack[low] == kPaint) low++;
  CHECK(low > 1024);
  CHECK(munmap(stack, kStack) == 0);
  return kStack - low;
}

/// The first calls of a thread: on its own stack, which is painted from inside. What the C library has used of it
/// before, and thread-local storage, lie above.
static void* in_thread(void* stack) {
  unsigned char* here = (unsigned char*)__builtin_frame_address(0) - 512;
  for (unsigned char* p = stack; p < here; p++) *p = kPaint;
  send_receive();
  OK(MPI_Allreduce(out, in, 16, MPI_DOUBLE, MPI_SUM, comm));
  unsigned char* low = stack;
  while (*low == kPaint) low++;
  return (void*)(here - low + 512);
}

int main(int argc, char** argv) {
  int provided;
  OK(MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &provided));
  OK(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
  right = 1 - rank;
  const int other_data = getenv("STACKS_OTHER_DATA") != NULL;
  for (int i = 0; i < 1 << 16; i++) out[i] = 1.0 / (i + 1 + rank + other_data);
  OK(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
  OK(MPI_Win_create(all, sizeof(all), sizeof(double), MPI_INFO_NULL, comm, &win));
  OK(MPI_Type_vector(3, 1, 2, MPI_DOUBLE, &strided));
  OK(MPI_Type_commit(&strided));
  file = MPI_FILE_NULL;
  const char* name = getenv("STACKS_DATA");
  if (name != NULL)
    OK(MPI_File_open(comm, name, MPI_MODE_CREATE | MPI_MODE_RDWR | MPI_MODE_DELETE_ON_CLOSE, MPI_INFO_NULL, &file));
  long depths[kKinds + 1];
  for (int i = 0; i < kKinds; i++) depths[i] = depth_of(kinds[i].run);
  pthread_t thread;
  pthread_attr_t attributes;
  void *stack = mmap(NULL, kStack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), *result;
  CHECK(stack != MAP_FAILED && pthread_attr_init(&attributes) == 0);
  CHECK(pthread_attr_setstack(&attributes, stack, kStack) == 0);
  CHECK(pthread_create(&thread, &attributes, in_thread, stack) == 0);
  CHECK(pthread_join(thread, &result) == 0);
  depths[kKinds] = (long)result;
  // Before MPI_Finalize: what a job that ends early would still have said.
  char path[512];
  snprintf(path, sizeof(path), "%s.%d", getenv("STACKS_FILE"), rank);
  FILE* to = fopen(path, "w");
  CHECK(to != NULL);
  for (int i = 0; i < kKinds; i++) fprintf(to, "%s %ld\n", kinds[i].name, depths[i]);
  fprintf(to, "first_calls_of_a_thread %ld\n", depths[kKinds]);
  CHECK(fclose(to) == 0);
  if (file != MPI_FILE_NULL) OK(MPI_File_close(&file));
  OK(MPI_Type_free(&strided));
  OK(MPI_Win_free(&win));
  OK(MPI_Comm_free(&comm));
  OK(MPI_Finalize());
  return 0;
}
