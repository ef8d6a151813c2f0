// SPDX-License-Identifier: Apache-2.0
//
// Messages from and into each kind of device memory that the CUDA driver gives, there and back between two ranks: what
// comes is right, and what one way takes. Usage: staging_kinds [KIND...]
//
//   plain     cuMemAlloc
//   pool      cuMemAllocAsync, from the device's pool
//   managed   cuMemAllocManaged
//   mapped    cuMemCreate and cuMemMap
//   capture   plain, while a stream of the calling thread is being captured (globally: calls that are not allowed then
//   would
//             invalidate the capture); the capture has to end well
//   graph     plain; what is sent is written by a graph that is launched again for each message
//
// Prints "KIND_BYTES NUMBER ns", best of some rounds, and "left out: KIND" where the driver has no such memory.

#include <mpi.h>
#include <string.h>

#include "../bench/timing.h"
#include "device.h"

enum { kMost = 4 << 20, kGranule = 2 << 20, kRounds = 7 };

/// cuda.h's CUmemAllocationProp and CUmemAccessDesc: pinned memory of a device.
struct properties {
  int type, handles, location, ordinal;
  void* windows;
  unsigned char flags[8];
};
struct access {
  int location, ordinal, flags;
};

static void *library, *stream;
static int rank, wrong;

#define CUDA(name, ...) ((int (*)(__VA_ARGS__))dlsym(library, name))

/// Memory of this kind; NULL: the driver has none.
static char* allocated(const char* kind) {
  uint64_t address = 0;
  if (strcmp(kind, "managed") == 0) {
    if (CUDA("cuMemAllocManaged", uint64_t*, size_t, unsigned)(&address, kMost, 1) != 0) return NULL;
  } else if (strcmp(kind, "pool") == 0) {
    if (CUDA("cuMemAllocAsync", uint64_t*, size_t, void*)(&address, kMost, stream) != 0) return NULL;
    CHECK(CUDA("cuStreamSynchronize", void*)(stream) == 0);
  } else if (strcmp(kind, "mapped") == 0) {
    struct properties properties = {1, 0, 1, 0, NULL, {0}};
    struct access access = {1, 0, 3};
    uint64_t handle = 0;
    if (CUDA("cuMemCreate", uint64_t*, size_t, const void*, unsigned long long)(&handle, kMost, &properties, 0) != 0)
      return NULL;
    CHECK(CUDA("cuMemAddressReserve", uint64_t*, size_t, size_t, uint64_t, unsigned long long)(&address, kMost,
                                                                                               kGranule, 0, 0) == 0);
    CHECK(CUDA("cuMemMap", uint64_t, size_t, size_t, uint64_t, unsigned long long)(address, kMost, 0, handle, 0) == 0);
    CHECK(CUDA("cuMemSetAccess", uint64_t, size_t, const void*, size_t)(address, kMost, &access, 1) == 0);
  } else {
    return memory_new(1, kMost);
  }
  return (char*)(uintptr_t)address;
}

/// A graph of one node that fills the buffer; NULL where the driver has no graphs.
static void* filling_graph(char* buffer, unsigned value) {
  void *graph, *executable;
  if (dlsym(library, "cuGraphLaunch") == NULL) return NULL;
  CHECK(CUDA("cuStreamBeginCapture_v2", void*, int)(stream, 0) == 0);
  CHECK(CUDA("cuMemsetD32Async", uint64_t, unsigned, size_t, void*)((uint64_t)(uintptr_t)buffer, value, kMost / 4,
                                                                    stream) == 0);
  CHECK(CUDA("cuStreamEndCapture", void*, void**)(stream, &graph) == 0);
  CHECK(CUDA("cuGraphInstantiateWithFlags", void**, void*, unsigned long long)(&executable, graph, 0) == 0);
  return executable;
}

/// One way there and back; the time of one way, ns.
static double round_trip(char* out, char* in, int bytes, void* graph) {
  const double start = now_ns();
  for (int turn = rank; turn <= rank + 1; turn++) {
    if (turn % 2 == 0) {
      if (graph != NULL) {
        CHECK(CUDA("cuGraphLaunch", void*, void*)(graph, stream) == 0);
        CHECK(CUDA("cuStreamSynchronize", void*)(stream) == 0);
      }
      OK(MPI_Send(out, bytes, MPI_BYTE, 1 - rank, 3, MPI_COMM_WORLD));
    } else {
      OK(MPI_Recv(in, bytes, MPI_BYTE, 1 - rank, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    }
  }
  return (now_ns() - start) / 2;
}

static int all_have(int mine) {
  int all;
  OK(MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD));
  return all;
}

static void exchanged(const char* kind, unsigned* host) {
  char *out = allocated(kind), *in = allocated(kind);
  const int graphs = strcmp(kind, "graph") == 0, captures = strcmp(kind, "capture") == 0;
  void* graph = out != NULL && graphs ? filling_graph(out, 7 + (unsigned)rank) : NULL;
  if (!all_have(out != NULL && in != NULL && (graph != NULL) == graphs)) {
    if (rank == 0) printf("left out: %s\n", kind);
    return;
  }
  static const int sizes[] = {8, 65536, kMost};
  for (unsigned s = 0; s < sizeof(sizes) / sizeof(*sizes); s++) {
    double best = 1e30;
    for (int round = 0; round < kRounds; round++) {
      const unsigned mine = graphs ? 7 + (unsigned)rank : 1000 * (s + 1) + 10 * (unsigned)round + (unsigned)rank;
      const unsigned theirs = graphs ? 8 - (unsigned)rank : mine - (unsigned)rank + 1 - (unsigned)rank;
      for (int i = 0; i < sizes[s] / 4; i++) host[i] = mine;
      if (!graphs) memory_write(1, out, host, sizes[s]);
      memset(host, 0, sizes[s]);
      memory_write(1, in, host, sizes[s]);
      void* recorded = NULL;
      OK(MPI_Barrier(MPI_COMM_WORLD));
      if (captures) CHECK(CUDA("cuStreamBeginCapture_v2", void*, int)(stream, 0) == 0);
      const double took = round_trip(out, in, sizes[s], graph);
      if (captures) CHECK(CUDA("cuStreamEndCapture", void*, void**)(stream, &recorded) == 0);
      if (took < best) best = took;
      memory_read(1, host, in, sizes[s]);
      int first = 0;
      while (first < sizes[s] / 4 && host[first] == theirs) first++;
      if (first == sizes[s] / 4 || wrong++ > 20) continue;
      printf("wrong: %s, %d bytes, round %d, rank %d: word %d is %u, not %u\n", kind, sizes[s], round, rank, first,
             host[first], theirs);
    }
    if (rank == 0) printf("%s_%d %.0f ns\n", kind, sizes[s], best);
  }
}

int main(int argc, char** argv) {
  static const char* const all[] = {"plain", "pool", "managed", "mapped", "capture", "graph"};
  device_open();
  library = dlopen("libcuda.so.1", RTLD_NOW);
  OK(MPI_Init(&argc, &argv));
  OK(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
  CHECK(CUDA("cuStreamCreate", void**, unsigned)(&stream, 1) == 0);
  unsigned* host = malloc(kMost);
  CHECK(host != NULL);
  for (int i = 1; i < argc; i++) exchanged(argv[i], host);
  for (unsigned i = 0; argc == 1 && i < sizeof(all) / sizeof(*all); i++) exchanged(all[i], host);
  free(host);
  if (rank == 0) puts("ok");
  OK(MPI_Finalize());
  return wrong != 0;
}
