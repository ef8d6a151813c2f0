/* SPDX-License-Identifier: Apache-2.0
 *
 * The program of scripts/resil smoke, compiled there with the user's own mpicc. Pairs of ranks (r, r + n/2) send each
 * other packets whose every word is known, both ways at once; each received packet is compared word by word.
 *
 * smoke host|device BYTES_PER_SIZE SIZE...     rank 0 prints one line RESIL-SMOKE {...} for each size
 *
 * Device memory is had through libcuda or libamdhip64, found with dlopen; their declarations are in here, so that no
 * toolkit is needed. Device d of rank r: r's number on its node, modulo the devices.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kMostWindow = 64, kHostBytes = 64, kReported = 4 };
enum { kWindowBytes = 16 << 20 }; /* in flight in one direction */

struct bad {
  int32_t from, to;
  int64_t packet, offset; /* bytes */
  uint64_t expected, found, words;
};

struct result {
  double seconds;
  int64_t packets, bad_packets, bytes;
  int32_t partner, bad_count;
  struct bad bad[kReported];
};

/* --- Device memory --- */

static int on_device;
static int (*copy_to)(uint64_t, const void*, size_t);
static int (*copy_from)(void*, uint64_t, size_t);
static int (*hip_copy)(void*, const void*, size_t, int);

static int hip_to(uint64_t to, const void* from, size_t bytes) { return hip_copy((void*)to, from, bytes, 1); }
static int hip_from(void* to, uint64_t from, size_t bytes) { return hip_copy(to, (const void*)from, bytes, 2); }

static const char* open_cuda(int local, void** memory, size_t bytes) {
  void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL), *context = NULL;
  int devices = 0, device = 0;
  if (library == NULL) return "no libcuda.so.1";
  int (*init)(unsigned) = (int (*)(unsigned))dlsym(library, "cuInit");
  int (*count)(int*) = (int (*)(int*))dlsym(library, "cuDeviceGetCount");
  int (*get)(int*, int) = (int (*)(int*, int))dlsym(library, "cuDeviceGet");
  int (*retain)(void**, int) = (int (*)(void**, int))dlsym(library, "cuDevicePrimaryCtxRetain");
  int (*current)(void*) = (int (*)(void*))dlsym(library, "cuCtxSetCurrent");
  int (*allocate)(uint64_t*, size_t) = (int (*)(uint64_t*, size_t))dlsym(library, "cuMemAlloc_v2");
  copy_to = (int (*)(uint64_t, const void*, size_t))dlsym(library, "cuMemcpyHtoD_v2");
  copy_from = (int (*)(void*, uint64_t, size_t))dlsym(library, "cuMemcpyDtoH_v2");
  if (!init || !count || !get || !retain || !current || !allocate || !copy_to || !copy_from)
    return "libcuda.so.1 lacks functions";
  if (init(0) != 0 || count(&devices) != 0 || devices == 0) return "no CUDA device";
  if (get(&device, local % devices) != 0 || retain(&context, device) != 0 || current(context) != 0)
    return "the CUDA device cannot be used";
  for (int i = 0; i < 2; ++i) {
    uint64_t address = 0;
    if (allocate(&address, bytes) != 0) return "out of device memory";
    memory[i] = (void*)address;
  }
  return NULL;
}

static const char* open_hip(int local, void** memory, size_t bytes) {
  void* library = NULL;
  const char* files[] = {"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5", "libamdhip64.so"};
  int devices = 0;
  for (unsigned i = 0; i < sizeof(files) / sizeof(files[0]) && library == NULL; ++i)
    library = dlopen(files[i], RTLD_NOW | RTLD_GLOBAL);
  if (library == NULL) return "no libcuda.so.1 and no libamdhip64.so";
  int (*count)(int*) = (int (*)(int*))dlsym(library, "hipGetDeviceCount");
  int (*use)(int) = (int (*)(int))dlsym(library, "hipSetDevice");
  int (*allocate)(void**, size_t) = (int (*)(void**, size_t))dlsym(library, "hipMalloc");
  hip_copy = (int (*)(void*, const void*, size_t, int))dlsym(library, "hipMemcpy");
  if (!count || !use || !allocate || !hip_copy) return "libamdhip64.so lacks functions";
  if (count(&devices) != 0 || devices == 0) return "no HIP device";
  if (use(local % devices) != 0 || allocate(&memory[0], bytes) != 0 || allocate(&memory[1], bytes) != 0)
    return "the HIP device cannot be used";
  copy_to = hip_to;
  copy_from = hip_from;
  return NULL;
}

/* NULL: fine; else why not. */
static const char* open_device(int local, void** memory, size_t bytes) {
  const char* cuda = open_cuda(local, memory, bytes);
  const char* hip = cuda != NULL ? open_hip(local, memory, bytes) : NULL;
  return cuda == NULL || hip == NULL ? NULL : strcmp(cuda, "no libcuda.so.1") == 0 ? hip : cuda;
}

/* --- Known values --- */

static uint64_t mix(uint64_t x) {
  x ^= x >> 31, x *= 0x9E3779B97F4A7C15u;
  x ^= x >> 27, x *= 0xD6E8FEB86659FD93u;
  return x ^ (x >> 32);
}

/* First value of a packet, and the step from word to word: they differ between any two packets, sizes and pairs. */
static uint64_t packet_key(int from, int to, int64_t packet, size_t size) {
  return mix(mix(mix((uint64_t)from << 32 | (uint32_t)to) + (uint64_t)packet) ^ size);
}

static void fill(uint64_t* words, size_t count, uint64_t key) {
  const uint64_t step = mix(key) | 1;
  for (size_t i = 0; i < count; ++i) words[i] = key + i * step;
}

static void verify(const uint64_t* words, size_t count, uint64_t key, struct bad bad, struct result* result) {
  const uint64_t step = mix(key) | 1;
  uint64_t difference = 0;
  for (size_t i = 0; i < count; ++i) difference |= words[i] ^ (key + i * step);
  ++result->packets;
  if (difference == 0) return;
  ++result->bad_packets;
  for (size_t i = count; i-- > 0;)
    if (words[i] != key + i * step) {
      ++bad.words;
      bad.offset = (int64_t)(i * sizeof(uint64_t)), bad.expected = key + i * step, bad.found = words[i];
    }
  if (result->bad_count < kReported) result->bad[result->bad_count++] = bad;
}

/* --- One size --- */

static struct result measure(int rank, int partner, size_t size, int64_t volume, uint64_t** host, char** memory) {
  struct result result;
  MPI_Request requests[2 * kMostWindow];
  const int window = (int)(kWindowBytes / size < 1             ? 1
                           : kWindowBytes / size > kMostWindow ? kMostWindow
                                                               : kWindowBytes / size);
  const int64_t rounds = volume / (int64_t)(size * window) < 2 ? 2 : volume / (int64_t)(size * window);
  const size_t words = size / sizeof(uint64_t);
  memset(&result, 0, sizeof(result));
  result.partner = partner;
  MPI_Barrier(MPI_COMM_WORLD);
  for (int64_t round = -1; round < rounds && partner >= 0; ++round) { /* round -1 is not timed: connections are made */
    const int64_t first = (round + 1) * window;
    for (int i = 0; i < window; ++i) fill(host[0] + i * words, words, packet_key(rank, partner, first + i, size));
    memset(host[1], 0xA5, size * window);
    if (on_device && (copy_to((uint64_t)memory[0], host[0], size * window) != 0 ||
                      copy_to((uint64_t)memory[1], host[1], size * window) != 0)) {
      fprintf(stderr, "smoke: rank %d: the copy to the device failed\n", rank);
      MPI_Abort(MPI_COMM_WORLD, 1);
    }
    for (int i = 0; i < window; ++i)
      MPI_Irecv(memory[1] + size * i, (int)size, MPI_BYTE, partner, i, MPI_COMM_WORLD, &requests[i]);
    MPI_Sendrecv(NULL, 0, MPI_BYTE, partner, kMostWindow, NULL, 0, MPI_BYTE, partner, kMostWindow, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    const double began = MPI_Wtime();
    for (int i = 0; i < window; ++i)
      MPI_Isend(memory[0] + size * i, (int)size, MPI_BYTE, partner, i, MPI_COMM_WORLD, &requests[window + i]);
    MPI_Waitall(2 * window, requests, MPI_STATUSES_IGNORE);
    if (round >= 0) {
      result.seconds += MPI_Wtime() - began;
      result.bytes += (int64_t)size * window;
    }
    if (on_device && copy_from(host[1], (uint64_t)memory[1], size * window) != 0) {
      fprintf(stderr, "smoke: rank %d: the copy from the device failed\n", rank);
      MPI_Abort(MPI_COMM_WORLD, 1);
    }
    for (int i = 0; i < window; ++i) {
      const struct bad bad = {partner, rank, first + i, 0, 0, 0, 0};
      verify(host[1] + i * words, words, packet_key(partner, rank, first + i, size), bad, &result);
    }
  }
  return result;
}

/* Of all ranks, on rank 0: received per second by each node, the slowest rank, what was bad. */
static void say(const char* memory, size_t size, int ranks, const struct result* all, const char* hosts) {
  int64_t packets = 0, bad = 0;
  double slowest = 0, worst_node = 0, total = 0;
  int slow = -1, nodes = 0, said = 0;
  for (int r = 0; r < ranks; ++r) {
    const char* host = hosts + r * kHostBytes;
    double node = 0;
    int seen = 0;
    packets += all[r].packets, bad += all[r].bad_packets;
    if (all[r].seconds > 0 && (slow < 0 || (double)all[r].bytes / all[r].seconds < slowest))
      slow = r, slowest = (double)all[r].bytes / all[r].seconds;
    for (int other = 0; other < ranks; ++other)
      if (strcmp(host, hosts + other * kHostBytes) == 0) {
        seen = seen || other < r;
        node += all[other].seconds > 0 ? (double)all[other].bytes / all[other].seconds : 0;
      }
    if (seen) continue;
    total += node;
    if (nodes++ == 0 || node < worst_node) worst_node = node;
  }
  printf(
      "RESIL-SMOKE {\"memory\": \"%s\", \"processes\": %d, \"nodes\": %d, \"bytes\": %zu, \"packets\": %lld, "
      "\"bad_packets\": %lld, "
      "\"node_gbs\": %.6f, \"worst_node_gbs\": %.6f, \"slowest_gbs\": %.6f, \"slowest_pair\": [%d, %d], \"bad\": [",
      memory, ranks, nodes, size, (long long)packets, (long long)bad, total / nodes * 1e-9, worst_node * 1e-9,
      slowest * 1e-9, slow >= 0 ? all[slow].partner : -1, slow);
  for (int r = 0; r < ranks; ++r)
    for (int i = 0; i < all[r].bad_count && said < kReported; ++i, ++said) {
      const struct bad* b = &all[r].bad[i];
      printf(
          "%s{\"from\": %d, \"to\": %d, \"from_host\": \"%s\", \"to_host\": \"%s\", \"packet\": %lld, \"offset\": "
          "%lld, "
          "\"words\": %llu, \"expected\": \"%016llx\", \"found\": \"%016llx\"}",
          said > 0 ? ", " : "", b->from, b->to, hosts + b->from * kHostBytes, hosts + b->to * kHostBytes,
          (long long)b->packet, (long long)b->offset, (unsigned long long)b->words, (unsigned long long)b->expected,
          (unsigned long long)b->found);
    }
  printf("]}\n");
  fflush(stdout);
}

int main(int argc, char** argv) {
  int rank, ranks, local = 0;
  MPI_Comm node;
  char host[kHostBytes] = "", *hosts = NULL, *memory[2] = {NULL, NULL};
  uint64_t* data[2];
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (argc < 4) MPI_Abort(MPI_COMM_WORLD, 2);
  on_device = strcmp(argv[1], "device") == 0;
  const int64_t volume = atoll(argv[2]);
  size_t most = kWindowBytes;
  for (int i = 3; i < argc; ++i)
    if ((size_t)atoll(argv[i]) > most) most = (size_t)atoll(argv[i]);
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &node);
  MPI_Comm_rank(node, &local);
  MPI_Comm_free(&node);
  char name[MPI_MAX_PROCESSOR_NAME];
  int length;
  MPI_Get_processor_name(name, &length);
  snprintf(host, sizeof(host), "%.*s", kHostBytes - 1, name);
  for (char* c = host; *c != 0; ++c) /* goes into JSON as it is */
    if (*c == '"' || *c == '\\' || (unsigned char)*c < 32) *c = '?';
  const char* problem = NULL;
  for (int i = 0; i < 2; ++i)
    if ((data[i] = malloc(most)) == NULL) problem = "out of memory";
  if (problem == NULL && on_device) problem = open_device(local, (void**)memory, most);
  else memory[0] = (char*)data[0], memory[1] = (char*)data[1];
  int good = problem == NULL, all_good = 0;
  MPI_Allreduce(&good, &all_good, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
  if (!all_good) {
    if (!good) fprintf(stderr, "smoke: rank %d on %s: %s\n", rank, host, problem);
    if (rank == 0)
      printf("RESIL-SMOKE {\"memory\": \"%s\", \"skipped\": \"%s\"}\n", argv[1],
             problem != NULL ? problem : "no device on some rank");
    MPI_Finalize();
    return 0;
  }
  struct result* all = NULL;
  if (rank == 0) {
    hosts = calloc((size_t)ranks, kHostBytes);
    all = calloc((size_t)ranks, sizeof(*all));
    if (hosts == NULL || all == NULL) MPI_Abort(MPI_COMM_WORLD, 1);
  }
  MPI_Gather(host, kHostBytes, MPI_CHAR, hosts, kHostBytes, MPI_CHAR, 0, MPI_COMM_WORLD);
  const int half = ranks / 2, partner = rank < half ? rank + half : rank < 2 * half ? rank - half : -1;
  for (int i = 3; i < argc; ++i) {
    const size_t size = (size_t)atoll(argv[i]);
    struct result result = measure(rank, partner, size, volume, data, memory);
    MPI_Gather(&result, (int)sizeof(result), MPI_BYTE, all, (int)sizeof(result), MPI_BYTE, 0, MPI_COMM_WORLD);
    if (rank == 0) say(argv[1], size, ranks, all, hosts);
  }
  MPI_Finalize();
  return 0;
}
