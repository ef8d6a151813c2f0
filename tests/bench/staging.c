// SPDX-License-Identifier: Apache-2.0
//
// Messages with device buffers: a set of packets both ways between two ranks, its copies and its way over the wire each
// alone, and round trips by size. Speeds of the stand-in's copies must be far below memcpy's (printed), as its copies
// are done by the ranks themselves. Usage: staging [BYTES of a packet].

#include <mpi.h>
#include <string.h>

#include "../mpi/device.h"
#include "timing.h"

enum { kPackets = 16, kMost = 1 << 20, kRounds = 7 };

static int rank, other, packet = kMost;
static int (*link_down)(void*, uint64_t, size_t, void*);
static int (*link_up)(uint64_t, const void*, size_t, void*);
static int (*link_lock)(void*, size_t, unsigned);
static int (*link_wait)(void);
static char *host_out[kPackets], *host_in[kPackets], *device_out[kPackets], *device_in[kPackets];

static void exchange(char** out, char** in) {
  MPI_Request requests[2 * kPackets];
  for (int i = 0; i < kPackets; i++) OK(MPI_Irecv(in[i], packet, MPI_BYTE, other, i, MPI_COMM_WORLD, &requests[i]));
  for (int i = 0; i < kPackets; i++)
    OK(MPI_Isend(out[i], packet, MPI_BYTE, other, i, MPI_COMM_WORLD, &requests[kPackets + i]));
  OK(MPI_Waitall(2 * kPackets, requests, MPI_STATUSES_IGNORE));
}

/// All packets one way, as fast as the link is: page-locked memory, one copy behind the other.
static void copies(int down) {
  for (int i = 0; i < kPackets; i++) {
    const uint64_t memory = (uint64_t)(uintptr_t)(down ? device_out[i] : device_in[i]);
    CHECK((down ? link_down(host_in[i], memory, packet, NULL) : link_up(memory, host_out[i], packet, NULL)) == 0);
  }
  CHECK(link_wait() == 0);
}

static void refresh(void) {
  for (int i = 0; i < kPackets; i++)
    CHECK(link_down(host_out[i], (uint64_t)(uintptr_t)device_out[i], packet, NULL) == 0);
  CHECK(link_wait() == 0);
}

/// Host memory, page-locked.
static char* locked_new(size_t bytes) {
  char* memory = memory_new(0, bytes);
  CHECK(link_lock(memory, bytes, 0) == 0);
  return memory;
}

static void link_open(void) {
  void* library = dlopen("libcuda.so.1", RTLD_NOW);
  *(void**)&link_down = device_symbol(library, "cuMemcpyDtoHAsync_v2");
  *(void**)&link_up = device_symbol(library, "cuMemcpyHtoDAsync_v2");
  *(void**)&link_lock = device_symbol(library, "cuMemHostRegister_v2");
  *(void**)&link_wait = device_symbol(library, "cuCtxSynchronize");
}

static void print(const char* name, double ns, const char* unit, double scale) {
  if (rank == 0) printf("%s %.4f %s\n", name, ns / scale, unit);
}

static double slowest(double mine) {
  double all;
  OK(MPI_Allreduce(&mine, &all, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD));
  return all;
}

#define MEASURED(best, statement) MEASURED_AFTER(best, (void)0, statement)
#define MEASURED_AFTER(best, before, statement)                                                 \
  do {                                                                                          \
    (best) = 1e30;                                                                              \
    for (int round_ = 0; round_ < kRounds * (packet < 65536 ? 16 : kMost / packet); round_++) { \
      before;                                                                                   \
      OK(MPI_Barrier(MPI_COMM_WORLD));                                                          \
      const double start_ = now_ns();                                                           \
      statement;                                                                                \
      const double took_ = slowest(now_ns() - start_);                                          \
      if (took_ < (best)) (best) = took_;                                                       \
    }                                                                                           \
  } while (0)

/// Host memory; device memory; device memory by way of the host with the program's own copies, as without resil.
enum where { kHost, kDevice, kByHand };

static void send_from(enum where where, int bytes) {
  if (where == kByHand) memory_read(1, host_out[0], device_out[0], bytes);
  OK(MPI_Send(where == kDevice ? device_out[0] : host_out[0], bytes, MPI_BYTE, other, 1, MPI_COMM_WORLD));
}

static double round_trip(enum where where, int bytes, int count) {
  const double start = now_ns();
  for (int i = 0; i < count; i++) {
    if (rank == 0) send_from(where, bytes);
    OK(MPI_Recv(where == kDevice ? device_in[0] : host_in[0], bytes, MPI_BYTE, other, 1, MPI_COMM_WORLD,
                MPI_STATUS_IGNORE));
    if (where == kByHand) memory_write(1, device_in[0], host_in[0], bytes);
    if (rank == 1) send_from(where, bytes);
  }
  return (now_ns() - start) / (2 * count);
}

/// One large message from rank 0 to rank 1, and its three ways each alone.
static void alone(void) {
  enum { kLone = 16 << 20, kLoneRounds = 12 };
  char *host = locked_new(kLone), *device = memory_new(1, kLone);
  memset(host, rank + 1, kLone);
  memory_write(1, device, host, kLone);
  double best[4] = {1e30, 1e30, 1e30, 1e30};
  for (int round = 0; round < kLoneRounds; round++)
    for (int way = 0; way < 4; way++) {
      OK(MPI_Barrier(MPI_COMM_WORLD));
      const double start = now_ns();
      if (way == 0 && rank == 0) memory_read(1, host, device, kLone);
      if (way == 1 && rank == 1) memory_write(1, device, host, kLone);
      if (way == 2 && rank == 0) memory_read(1, host, device, kLone);  // see above; not timed: the other waits
      if (way == 2) OK(MPI_Barrier(MPI_COMM_WORLD));
      const double begin = way == 2 ? now_ns() : start;
      if (way >= 2 && rank == 0) OK(MPI_Send(way == 2 ? host : device, kLone, MPI_BYTE, other, 2, MPI_COMM_WORLD));
      if (way >= 2 && rank == 1)
        OK(MPI_Recv(way == 2 ? host : device, kLone, MPI_BYTE, other, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
      const double took = slowest(now_ns() - begin);
      if (took < best[way]) best[way] = took;
    }
  if (rank == 1) {
    memory_read(1, host, device, kLone);
    for (int i = 0; i < kLone; i++) CHECK(host[i] == 1);
  }
  static const char* const names[] = {"lone_down", "lone_up", "lone_wire", "lone"};
  for (int way = 0; way < 4; way++) print(names[way], best[way], "ms", 1e6);
  memory_free(1, device);  // the locked memory goes with the process
}

int main(int argc, char** argv) {
  if (argc > 1) packet = atoi(argv[1]);  // bytes; the smaller, the more rounds
  CHECK(packet > 0 && packet <= kMost);
  device_open();
  link_open();
  OK(MPI_Init(&argc, &argv));
  OK(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
  int size;
  OK(MPI_Comm_size(MPI_COMM_WORLD, &size));
  other = size - 1 - rank;
  for (int i = 0; i < kPackets; i++) {
    host_out[i] = locked_new(kMost), host_in[i] = locked_new(kMost);
    device_out[i] = memory_new(1, kMost), device_in[i] = memory_new(1, kMost);
    memset(host_out[i], 17 * i + rank + 1, kMost), memset(host_in[i], 0, kMost);
    memory_write(1, device_out[i], host_out[i], kMost);
  }
  double best;
  MEASURED(best, for (int i = 0; i < kPackets; i++) memcpy(host_in[i], host_out[i], packet));
  print("memcpy", best, "ms", 1e6);
  MEASURED(best, copies(1));
  print("down", best, "ms", 1e6);
  MEASURED(best, copies(0));
  print("up", best, "ms", 1e6);
  // As staged packets are: just written by the device, so that they are in none of the processor's caches.
  MEASURED_AFTER(best, refresh(), exchange(host_out, host_in));
  print("wire", best, "ms", 1e6);
  MEASURED(best, exchange(host_out, host_in));
  print("wire_cached", best, "ms", 1e6);
  MEASURED(best, exchange(device_out, host_in));
  print("set_down", best, "ms", 1e6);
  MEASURED(best, exchange(host_out, device_in));
  print("set_up", best, "ms", 1e6);
  MEASURED(best, exchange(device_out, device_in));
  print("set", best, "ms", 1e6);
  for (int i = 0; i < kPackets; i++) {
    memory_read(1, host_in[i], device_in[i], packet);
    CHECK(host_in[i][0] == (char)(17 * i + other + 1) && host_in[i][packet - 1] == (char)(17 * i + other + 1));
  }
  alone();
  static const int sizes[] = {8, 4096, 65536, 1 << 20};
  for (unsigned s = 0; s < sizeof(sizes) / sizeof(*sizes); s++)
    for (enum where where = kHost; where <= kByHand; where++) {
      static const char* const names[] = {"host", "device", "hand"};
      char name[40];
      snprintf(name, sizeof(name), "%s_%d", names[where], sizes[s]);
      best = 1e30;
      for (int round = 0; round < kRounds; round++) {
        const double took = slowest(round_trip(where, sizes[s], sizes[s] > 10000 ? 5 : 50));
        if (took < best) best = took;
      }
      print(name, best, "ns", 1);
    }
  OK(MPI_Finalize());
  return 0;
}
