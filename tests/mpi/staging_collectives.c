/* SPDX-License-Identifier: Apache-2.0
 *
 * Collectives, and persistent requests of any kind, with device buffers. Each call is made with host buffers first,
 * which says what every byte of the buffers must be afterwards, gaps and parts that the call does not write included;
 * then with each mixture of host and device memory, from the same contents.
 *
 * staging_collectives [WHAT [ARGUMENT]]
 *   all           every call there is (default); even numbers of ranks; prints "staging_collectives CALLS
 * DEVICE_BUFFERS" large BYTES   a broadcast and a reduction of that many bytes gone          broadcasts until the
 * runtime fails (FAKEGPU fault=gone), errors returned: prints "refused CLASS" freed         device memory is freed
 * while an operation on it is pending: likewise; freed-messages: messages together      messages, persistent messages
 * and collectives, all completed by the same calls forgotten     persistent messages that are freed while they are
 * active left FILE     one-sided communication, files and partitioned messages with device buffers that nobody accesses
 *   host [DRIVER] no device buffer at all; with a driver that finds no device
 */
#include <dlfcn.h>
#include <mpi.h>
#include <stdint.h>
#include <string.h>

#include "check.h"

enum { kRoom = 8192, kSentinel = 0x5a };

static struct {
  int (*init)(unsigned);
  int (*retain)(void**, int);
  int (*current)(void*);
  int (*allocate)(uint64_t*, size_t);
  int (*release)(uint64_t);
  int (*up)(uint64_t, const void*, size_t);
  int (*down)(void*, uint64_t, size_t);
} gpu;

static int rank, size, calls, device_buffers;

static void load(void) {
  void* library = dlopen("libcuda.so.1", RTLD_NOW);
  void* context;
  if (library == NULL) {
    fprintf(stderr, "%s\n", dlerror());
    exit(77);
  }
  *(void**)&gpu.init = dlsym(library, "cuInit");
  *(void**)&gpu.retain = dlsym(library, "cuDevicePrimaryCtxRetain");
  *(void**)&gpu.current = dlsym(library, "cuCtxSetCurrent");
  *(void**)&gpu.allocate = dlsym(library, "cuMemAlloc_v2");
  *(void**)&gpu.release = dlsym(library, "cuMemFree_v2");
  *(void**)&gpu.up = dlsym(library, "cuMemcpyHtoD_v2");
  *(void**)&gpu.down = dlsym(library, "cuMemcpyDtoH_v2");
  CHECK(gpu.init(0) == 0 && gpu.retain(&context, 0) == 0 && gpu.current(context) == 0);
}

static void* device_memory(size_t bytes) {
  uint64_t address;
  CHECK(gpu.allocate(&address, bytes) == 0);
  return (void*)address;
}

/* --- One call: `send` and `receive` are rooms of kRoom bytes -------------------------------------------------------
 */

static MPI_Comm world, cart, half, inter;
static MPI_Datatype strided, padded;
static MPI_Op last_wins;
static int counts[64], places[64], more[64], more_places[64];
static MPI_Request request;

static void take_last(void* in, void* inout, int* count, MPI_Datatype* type) { /* associative, does not commute */
  const int* from = in;
  int* to = inout;
  (void)type;
  for (int i = 0; i < *count; i++) to[i] = to[i] * 31 + from[i] % 7;
}

/* Waits in one of several ways. */
static void complete(MPI_Request* r) {
  static int way;
  int flag = 0, index, number;
  MPI_Status status;
  switch (way++ % 5) {
    case 0: OK(MPI_Wait(r, MPI_STATUS_IGNORE)); break;
    case 1:
      while (!flag) OK(MPI_Test(r, &flag, &status));
      break;
    case 2: OK(MPI_Waitall(1, r, MPI_STATUSES_IGNORE)); break;
    case 3: OK(MPI_Waitany(1, r, &index, &status)); break;
    default: OK(MPI_Waitsome(1, r, &number, &index, MPI_STATUSES_IGNORE));
  }
}

static int n(int of) { return counts[of]; }

#define PLAIN(name, number, call)              \
  static int name(void* send, void* receive) { \
    (void)send, (void)receive;                 \
    OK(MPI_##call);                            \
    return number;                             \
  }
#define LATER(name, number, call)              \
  static int name(void* send, void* receive) { \
    (void)send, (void)receive;                 \
    OK(MPI_I##call);                           \
    complete(&request);                        \
    return number;                             \
  }
#define TWICE(name, number, call)              \
  static int name(void* send, void* receive) { \
    (void)send, (void)receive;                 \
    OK(MPI_##call);                            \
    for (int i = 0; i < 2; i++) {              \
      OK(MPI_Start(&request));                 \
      complete(&request);                      \
    }                                          \
    OK(MPI_Request_free(&request));            \
    return number;                             \
  }
#define IN_PLACE_AT_ROOT(buffer) (rank == size - 1 ? MPI_IN_PLACE : (buffer))

PLAIN(bcast, 1, Bcast(send, 100, MPI_INT, size - 1, world))
PLAIN(bcast_strided, 1, Bcast(send, 20, strided, 0, world))
LATER(ibcast, 1, bcast(send, 7, padded, 0, world, &request))
PLAIN(gather_all, 2, Gather(send, 9, MPI_INT, receive, 9, MPI_INT, size - 1, world))
PLAIN(gather_in_place, 2, Gather(IN_PLACE_AT_ROOT(send), 9, MPI_INT, receive, 9, MPI_INT, size - 1, world))
PLAIN(gatherv, 2, Gatherv(send, n(rank), MPI_INT, receive, counts, places, MPI_INT, size - 1, world))
PLAIN(gatherv_in_place, 2,
      Gatherv(IN_PLACE_AT_ROOT(send), n(rank), MPI_INT, receive, counts, places, MPI_INT, size - 1, world))
LATER(igather, 2, gather(send, 3, strided, receive, 6, MPI_INT, 0, world, &request))
PLAIN(scatter, 2, Scatter(send, 9, MPI_INT, receive, 9, MPI_INT, 0, world))
PLAIN(scatter_in_place, 2, Scatter(send, 9, MPI_INT, IN_PLACE_AT_ROOT(receive), 9, MPI_INT, size - 1, world))
PLAIN(scatterv, 2, Scatterv(send, counts, places, MPI_INT, receive, n(rank), MPI_INT, 0, world))
LATER(iscatterv, 2, scatterv(send, counts, places, strided, receive, 2 * n(rank), MPI_INT, 0, world, &request))
PLAIN(allgather, 2, Allgather(send, 6, MPI_INT, receive, 3, strided, world))
PLAIN(allgather_in_place, 2, Allgather(MPI_IN_PLACE, 0, MPI_INT, receive, 6, MPI_INT, world))
PLAIN(allgatherv, 2, Allgatherv(send, n(rank), MPI_INT, receive, counts, places, MPI_INT, world))
PLAIN(allgatherv_in_place, 2, Allgatherv(MPI_IN_PLACE, 0, MPI_INT, receive, counts, places, MPI_INT, world))
LATER(iallgatherv, 2, allgatherv(send, n(rank), padded, receive, counts, places, padded, world, &request))
PLAIN(alltoall, 2, Alltoall(send, 5, MPI_INT, receive, 5, MPI_INT, world))
PLAIN(alltoall_in_place, 2, Alltoall(MPI_IN_PLACE, 0, MPI_INT, receive, 5, MPI_INT, world))
PLAIN(alltoallv, 2, Alltoallv(send, more, more_places, MPI_INT, receive, more, more_places, MPI_INT, world))
LATER(ialltoallv, 2, alltoallv(send, more, more_places, strided, receive, more, more_places, strided, world, &request))
PLAIN(reduce, 2, Reduce(send, receive, 50, MPI_INT, MPI_SUM, size - 1, world))
PLAIN(reduce_same, 2, Reduce(IN_PLACE_AT_ROOT(receive), receive, 50, MPI_INT, MPI_MAX, size - 1, world))
LATER(ireduce, 2, reduce(send, receive, 50, MPI_INT, last_wins, 0, world, &request))
PLAIN(allreduce, 2, Allreduce(send, receive, 50, MPI_INT, MPI_SUM, world))
PLAIN(allreduce_double, 2, Allreduce(send, receive, 50, MPI_DOUBLE, MPI_MAX, world))
PLAIN(allreduce_in_place, 2, Allreduce(MPI_IN_PLACE, receive, 50, MPI_INT, MPI_BXOR, world))
PLAIN(allreduce_user, 2, Allreduce(send, receive, 50, MPI_INT, last_wins, world))
LATER(iallreduce, 2, allreduce(send, receive, 50, MPI_INT, MPI_SUM, world, &request))
LATER(iallreduce_in_place, 2, allreduce(MPI_IN_PLACE, receive, 50, MPI_INT, MPI_MIN, world, &request))
PLAIN(reduce_scatter, 2, Reduce_scatter(send, receive, counts, MPI_INT, MPI_SUM, world))
PLAIN(reduce_scatter_in_place, 2, Reduce_scatter(MPI_IN_PLACE, receive, counts, MPI_INT, MPI_SUM, world))
PLAIN(reduce_scatter_block, 2, Reduce_scatter_block(send, receive, 7, MPI_INT, MPI_SUM, world))
LATER(ireduce_scatter_block, 2, reduce_scatter_block(MPI_IN_PLACE, receive, 7, MPI_INT, MPI_SUM, world, &request))
PLAIN(scan, 2, Scan(send, receive, 11, MPI_INT, MPI_SUM, world))
PLAIN(scan_in_place, 2, Scan(MPI_IN_PLACE, receive, 11, MPI_INT, MPI_SUM, world))
LATER(iexscan, 2, exscan(send, receive, 11, MPI_INT, MPI_SUM, world, &request))
/* Of a line of ranks: its ends have a neighbour that is MPI_PROC_NULL, whose part of the buffer is not written. */
PLAIN(neighbours, 2, Neighbor_allgather(send, 8, MPI_INT, receive, 8, MPI_INT, cart))
PLAIN(neighboursv, 2, Neighbor_allgatherv(send, 8, MPI_INT, receive, (int[]){8, 8}, (int[]){40, 3}, MPI_INT, cart))
PLAIN(neighbours_all, 2, Neighbor_alltoall(send, 4, strided, receive, 4, strided, cart))
LATER(ineighbours_all, 2, neighbor_alltoall(send, 8, MPI_INT, receive, 8, MPI_INT, cart, &request))
PLAIN(inter_bcast, 1, Bcast(send, 30, MPI_INT, rank % 2 == 1 ? 0 : rank == 0 ? MPI_ROOT : MPI_PROC_NULL, inter))
PLAIN(inter_gather, 2,
      Gather(send, 5, MPI_INT, receive, 5, MPI_INT,
             rank % 2 == 1 ? 0
             : rank == 0   ? MPI_ROOT
                           : MPI_PROC_NULL,
             inter))
PLAIN(inter_allgather, 2, Allgather(send, 5, MPI_INT, receive, 5, MPI_INT, inter))
PLAIN(inter_allreduce, 2, Allreduce(send, receive, 5, MPI_INT, MPI_SUM, inter))
PLAIN(inter_alltoall, 2, Alltoall(send, 5, MPI_INT, receive, 5, MPI_INT, inter))
#if MPI_VERSION >= 4
TWICE(bcast_init, 1, Bcast_init(send, 100, MPI_INT, 0, world, MPI_INFO_NULL, &request))
TWICE(allreduce_init, 2, Allreduce_init(send, receive, 50, MPI_INT, MPI_SUM, world, MPI_INFO_NULL, &request))
TWICE(allreduce_user_init, 2, Allreduce_init(send, receive, 50, MPI_INT, last_wins, world, MPI_INFO_NULL, &request))
TWICE(alltoallv_init, 2,
      Alltoallv_init(send, more, more_places, MPI_INT, receive, more, more_places, MPI_INT, world, MPI_INFO_NULL,
                     &request))
TWICE(gather_in_place_init, 2,
      Gather_init(IN_PLACE_AT_ROOT(send), 9, MPI_INT, receive, 9, MPI_INT, size - 1, world, MPI_INFO_NULL, &request))
PLAIN(allreduce_c, 2, Allreduce_c(send, receive, 50, MPI_INT, MPI_SUM, world))
PLAIN(alltoallv_c, 2,
      Alltoallv_c(send, (MPI_Count[64]){1, 2}, (MPI_Aint[64]){0, 5}, MPI_INT, receive,
                  (MPI_Count[64]){1 + rank % 2, 1 + rank % 2}, (MPI_Aint[64]){9, 2}, MPI_INT, half))
#endif

static int alltoallw(void* send, void* receive) {
  MPI_Datatype types[64];
  int from[64];
  for (int i = 0; i < size; i++) {
    types[i] = i % 2 == rank % 2 ? MPI_INT : strided;
    from[i] = (size - 1 - i) * 200;
  }
  OK(MPI_Alltoallw(send, more, from, types, receive, more, from, types, world));
  return 2;
}

/* The request is looked at before it is completed: the data must be there then. */
static int looked_at(void* send, void* receive) {
  int flag = 0;
  static int seen[50];
  OK(MPI_Iallreduce(send, receive, 50, MPI_INT, last_wins, world, &request));
  while (!flag) OK(MPI_Request_get_status(request, &flag, MPI_STATUS_IGNORE));
  if (gpu.down == NULL || gpu.down(seen, (uintptr_t)receive, sizeof(seen)) != 0) memcpy(seen, receive, sizeof(seen));
  OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
  static int now[50];
  if (gpu.down == NULL || gpu.down(now, (uintptr_t)receive, sizeof(now)) != 0) memcpy(now, receive, sizeof(now));
  CHECK(memcmp(seen, now, sizeof(now)) == 0);
  return 2;
}

/* Persistent messages around a ring, both ways, all started at once; one is shorter than its buffer. */
static int ring(void* send, void* receive) {
  MPI_Request requests[4];
  MPI_Status statuses[4];
  const int next = (rank + 1) % size, before = (rank + size - 1) % size;
  int number;
  OK(MPI_Recv_init(receive, 100, MPI_INT, before, 1, world, &requests[0]));
  OK(MPI_Recv_init((char*)receive + 1000, 10, strided, MPI_ANY_SOURCE, 2, world, &requests[1]));
  OK(MPI_Send_init(send, 60, MPI_INT, next, 1, world, &requests[2]));
  OK(MPI_Ssend_init((char*)send + 1000, 10, strided, before, 2, world, &requests[3]));
  for (int i = 0; i < 3; i++) {
    OK(MPI_Startall(4, requests));
    OK(MPI_Waitall(4, requests, i == 1 ? MPI_STATUSES_IGNORE : statuses));
    if (i == 1) continue;
    OK(MPI_Get_count(&statuses[0], MPI_INT, &number));
    CHECK(number == 60 && statuses[0].MPI_SOURCE == before && statuses[1].MPI_SOURCE == next);
  }
  for (int i = 0; i < 4; i++) OK(MPI_Request_free(&requests[i]));
  return 2;
}

/* A persistent receive that never gets anything. */
static int cancelled(void* send, void* receive) {
  MPI_Status status;
  int flag;
  (void)send;
  OK(MPI_Recv_init(receive, 100, MPI_INT, rank, 77, world, &request));
  OK(MPI_Start(&request));
  OK(MPI_Cancel(&request));
  OK(MPI_Wait(&request, &status));
  OK(MPI_Test_cancelled(&status, &flag));
  CHECK(flag);
  OK(MPI_Request_free(&request));
  return 2;
}

/* Local calls: packed data in the middle of a buffer, of types with gaps and a lower bound below 0. */
static int pack(void* send, void* receive) {
  int position = 12;
  OK(MPI_Pack(send, 5, strided, receive, 4000, &position, world));
  CHECK(position == 12 + 5 * 8);
  OK(MPI_Pack((char*)send + 400, 30, padded, receive, 4000, &position, world));
  CHECK(position == 12 + 5 * 8 + 30 * 4);
  return 2;
}

static int unpack(void* send, void* receive) {
  int position = 12;
  OK(MPI_Unpack(send, 4000, &position, receive, 5, strided, world));
  OK(MPI_Unpack(send, 4000, &position, (char*)receive + 400, 30, padded, world));
  CHECK(position == 12 + 5 * 8 + 30 * 4);
  return 2;
}

static int external(void* send, void* receive) {
  MPI_Aint position = 16;
  OK(MPI_Pack_external("external32", send, 9, strided, receive, 3000, &position));
  CHECK(position == 16 + 9 * 8);
  position = 8;
  OK(MPI_Unpack_external("external32", send, 3000, &position, (char*)receive + 3000, 11, strided));
  CHECK(position == 8 + 11 * 8);
  return 2;
}

#ifdef OPEN_MPI /* MPICH 4.0 writes beyond the end */
static int no_room(void* send, void* receive) {
  int position = 4000 - 8, error;
  OK(MPI_Comm_set_errhandler(world, MPI_ERRORS_RETURN));
  error = MPI_Pack(send, 50, MPI_INT, receive, 4000, &position, world);
  CHECK(error != MPI_SUCCESS && position == 4000 - 8);
  OK(MPI_Comm_set_errhandler(world, MPI_ERRORS_ARE_FATAL));
  return 2;
}
#endif

PLAIN(pack_nothing, 2, Pack(send, 0, strided, receive, 4000, (int[]){4000}, world))
PLAIN(reduce_local, 2, Reduce_local(send, receive, 300, MPI_INT, MPI_SUM))
PLAIN(reduce_local_user, 2, Reduce_local((char*)send + 4, (char*)receive + 8, 70, MPI_INT, last_wins))

#if MPI_VERSION >= 4
static int pack_c(void* send, void* receive) {
  MPI_Count position = 12;
  OK(MPI_Pack_c(send, 5, strided, receive, 4000, &position, world));
  OK(MPI_Unpack_c(send, 4000, &position, (char*)receive + 2000, 7, strided, world));
  CHECK(position == 12 + 12 * 8);
  OK(MPI_Reduce_local_c(send, receive, 300, MPI_INT, MPI_MAX));
  return 2;
}
#endif

typedef int (*operation)(void*, void*);
#define NAMED(name) \
  { #name, name }
static const struct {
  const char* name;
  operation run;
} operations[] = {
    NAMED(bcast),
    NAMED(bcast_strided),
    NAMED(ibcast),
    NAMED(gather_all),
    NAMED(gather_in_place),
    NAMED(gatherv),
    NAMED(gatherv_in_place),
    NAMED(igather),
    NAMED(scatter),
    NAMED(scatter_in_place),
    NAMED(scatterv),
    NAMED(iscatterv),
    NAMED(allgather),
    NAMED(allgather_in_place),
    NAMED(allgatherv),
    NAMED(allgatherv_in_place),
    NAMED(iallgatherv),
    NAMED(alltoall),
    NAMED(alltoall_in_place),
    NAMED(alltoallv),
    NAMED(ialltoallv),
    NAMED(alltoallw),
    NAMED(reduce),
    NAMED(reduce_same),
    NAMED(ireduce),
    NAMED(allreduce),
    NAMED(allreduce_double),
    NAMED(allreduce_in_place),
    NAMED(allreduce_user),
    NAMED(iallreduce),
    NAMED(iallreduce_in_place),
    NAMED(reduce_scatter),
    NAMED(reduce_scatter_in_place),
    NAMED(reduce_scatter_block),
    NAMED(ireduce_scatter_block),
    NAMED(scan),
    NAMED(scan_in_place),
    NAMED(iexscan),
    NAMED(neighbours),
    NAMED(neighboursv),
    NAMED(neighbours_all),
    NAMED(ineighbours_all),
    NAMED(inter_bcast),
    NAMED(inter_gather),
    NAMED(inter_allgather),
    NAMED(inter_allreduce),
    NAMED(inter_alltoall),
    NAMED(looked_at),
    NAMED(ring),
    NAMED(cancelled),
    NAMED(pack),
    NAMED(unpack),
    NAMED(external),
    NAMED(pack_nothing),
    NAMED(reduce_local),
    NAMED(reduce_local_user),
#ifdef OPEN_MPI
    NAMED(no_room),
#endif
#if MPI_VERSION >= 4
    NAMED(bcast_init),
    NAMED(allreduce_init),
    NAMED(allreduce_user_init),
    NAMED(alltoallv_init),
    NAMED(gather_in_place_init),
    NAMED(allreduce_c),
    NAMED(alltoallv_c),
    NAMED(pack_c),
#endif
};

/* --- The same with every mixture of memory ---------------------------------------------------------------------------
 */

static void fill(unsigned char* send, unsigned char* receive, unsigned of) {
  int* values = (int*)send;
  for (unsigned i = 0; i < kRoom / sizeof(int); i++)
    values[i] = (int)((i * 2654435761u + of * 97 + (unsigned)rank * 7919) % 100000);
  memcpy(receive, send, kRoom); /* what MPI_IN_PLACE reads */
  for (unsigned i = 0; i < 100; i++) ((double*)send)[i] = (int)i * 3 - rank;
  for (unsigned i = 0; i < kRoom; i += 7) receive[i] ^= kSentinel;
}

static void differs(const char* name, int mixture, const char* which, const unsigned char* is,
                    const unsigned char* must) {
  for (int i = 0; i < kRoom; i++) {
    if (is[i] == must[i]) continue;
    fprintf(stderr, "%s on rank %d, mixture %d: %s buffer differs at byte %d: %02x, not %02x\n", name, rank, mixture,
            which, i, is[i], must[i]);
    fflush(NULL);
    _exit(1);
  }
}

static void every_mixture(void) {
  unsigned char *send = malloc(kRoom), *receive = malloc(kRoom), *sent = malloc(kRoom), *received = malloc(kRoom);
  void* memory = device_memory(2 * kRoom + 64); /* in the middle of an allocation */
  char *device_send = (char*)memory + 64, *device_receive = device_send + kRoom;
  for (unsigned o = 0; o < sizeof(operations) / sizeof(operations[0]); o++) {
    const char* name = operations[o].name;
    fill(send, receive, o);
    memcpy(sent, send, kRoom), memcpy(received, receive, kRoom);
    const int sides = operations[o].run(sent, received);
    for (int mixture = 1; mixture < (sides == 1 ? 2 : 4); mixture++) { /* also other mixtures on other ranks */
      const int mine = sides == 1 ? (rank + (int)o) % 2 : (mixture + rank * (int)(o % 4)) % 4;
      unsigned char *from = mine & 1 ? (unsigned char*)device_send : malloc(kRoom),
                    *to = mine & 2 ? (unsigned char*)device_receive : malloc(kRoom);
      fill(send, receive, o);
      if (mine & 1) CHECK(gpu.up((uintptr_t)from, send, kRoom) == 0);
      else memcpy(from, send, kRoom);
      if (mine & 2) CHECK(gpu.up((uintptr_t)to, receive, kRoom) == 0);
      else memcpy(to, receive, kRoom);
      operations[o].run(from, to);
      if (mine & 1) CHECK(gpu.down(send, (uintptr_t)from, kRoom) == 0);
      else memcpy(send, from, kRoom), free(from);
      if (mine & 2) CHECK(gpu.down(receive, (uintptr_t)to, kRoom) == 0);
      else memcpy(receive, to, kRoom), free(to);
      differs(name, mine, "send", send, sent);
      differs(name, mine, "receive", receive, received);
      ++calls;
      device_buffers += (mine & 1) + (mine >> 1);
    }
  }
  CHECK(gpu.release((uintptr_t)memory) == 0);
  free(send), free(receive), free(sent), free(received);
}

static void prepare(void) {
  MPI_Datatype narrow;
  int dimension = size, none = 0;
  world = MPI_COMM_WORLD;
  OK(MPI_Cart_create(world, 1, &dimension, &none, 0, &cart));
  OK(MPI_Comm_split(world, rank % 2, rank, &half));
  OK(MPI_Intercomm_create(half, 0, world, 1 - rank % 2, 5, &inter));
  OK(MPI_Comm_free(&half));
  OK(MPI_Comm_split(world, rank / 2, rank, &half));
  OK(MPI_Type_vector(2, 1, 3, MPI_INT, &narrow)); /* two of four */
  OK(MPI_Type_create_resized(narrow, 0, 5 * sizeof(int), &strided));
  OK(MPI_Type_create_resized(MPI_INT, -4, 3 * sizeof(int), &padded));
  OK(MPI_Type_free(&narrow));
  OK(MPI_Type_commit(&strided));
  OK(MPI_Type_commit(&padded));
  OK(MPI_Op_create(take_last, 0, &last_wins));
  for (int i = 0; i < size; i++) {
    counts[i] = 3 + i % 5;
    places[i] = 20 * (size - i); /* backwards, with gaps */
    more[i] = 1 + (i + rank) % 3;
    more_places[i] = 12 * ((i + 1) % size);
  }
  more[rank] = 0;
}

#include "staging_cases.h"

int main(int argc, char** argv) {
  const char* what = argc > 1 ? argv[1] : "all";
  OK(MPI_Init(&argc, &argv));
  OK(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
  OK(MPI_Comm_size(MPI_COMM_WORLD, &size));
  if (strcmp(what, "host") == 0) {
    int (*initialise)(unsigned) = NULL;
    void* library = argc > 2 ? dlopen(argv[2], RTLD_NOW) : NULL;
    if (library != NULL) *(void**)&initialise = dlsym(library, "cuInit");
    if (library != NULL) CHECK(initialise(0) == 100); /* CUDA_ERROR_NO_DEVICE */
    CHECK(argc == 2 || library != NULL);
    int value = rank, sum = 0, *mapped = malloc(1 << 20);
    OK(MPI_Allreduce(MPI_IN_PLACE, memset(mapped, 0, 1 << 20), 1 << 18, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
    free(mapped);
    for (int i = 0; i < 100; i++) OK(MPI_Allreduce(&value, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
    CHECK(sum == size * (size - 1) / 2);
    OK(MPI_Finalize());
    return 0;
  }
  OK(MPI_Barrier(MPI_COMM_WORLD));
  load(); /* the runtime comes late */
  if (strcmp(what, "all") == 0) {
    prepare();
    every_mixture();
    if (rank == 0) printf("staging_collectives %d %d\n", calls, device_buffers);
  } else if (strcmp(what, "large") == 0) {
    large(strtoul(argv[2], NULL, 10));
  } else if (strcmp(what, "gone") == 0) {
    gone();
  } else if (strcmp(what, "together") == 0) {
    together();
  } else if (strcmp(what, "freed-messages") == 0) {
    freed_messages();
  } else if (strcmp(what, "forgotten") == 0) {
    forgotten();
  } else if (strcmp(what, "left") == 0) {
    char path[4096];
    snprintf(path, sizeof(path), "%s-%d", argv[2], rank);
    left(path);
  } else {
    freed();
  }
  OK(MPI_Finalize());
  return 0;
}
