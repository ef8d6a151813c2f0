/* SPDX-License-Identifier: Apache-2.0
 *
 * Waits for an accelerator in every way there is, and looks whether the data is there afterwards.
 *
 * gpu_waits WAY WAIT TURNS [THREADS [STREAMS [DEVICES]]]
 *   WAY   names     the driver's functions by name, as a program linked with libcuda
 *         handle    by dlsym on the driver's handle and cuGetProcAddress, as a statically linked CUDA runtime
 *         early     likewise, and the driver is initialised before MPI_Init
 *         hip       HIP's functions by name
 *   WAIT  stream device event stream-query event-query; several with commas: one after the other
 *
 * Prints "turns N wrong M seconds S" (of all waits with their work); exit status 1 when data was wrong.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <mpi.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { kBytes = 1 << 16, kMostStreams = 8 };

static int hip, driver_way;
static int turns, streams = 1, devices = 1;
static const char* wait_kind;
static long wrong, done;
static pthread_mutex_t count_lock = PTHREAD_MUTEX_INITIALIZER;

typedef int (*function)();
static struct {
  int (*init)(unsigned);
  int (*retain)(void**, int);
  int (*current)(void*);
  int (*set_device)(int);
  int (*allocate)(uint64_t*, size_t);
  int (*allocate_host)(void**, size_t, unsigned);
  int (*fill)(uint64_t, unsigned, size_t, void*);
  int (*down)(void*, uint64_t, size_t, void*);
  int (*stream_create)(void**, unsigned);
  int (*stream_destroy)(void*);
  int (*stream_wait)(void*);
  int (*stream_query)(void*);
  int (*event_create)(void**, unsigned);
  int (*event_destroy)(void*);
  int (*event_record)(void*, void*);
  int (*event_wait)(void*);
  int (*event_query)(void*);
  int (*device_wait)(void);
} gpu;

static void* library;
static int (*get_proc_address)(const char*, void**, int, uint64_t, void*);

/* `name` as cuda.h's macros make it; `plain` as cuGetProcAddress is asked. */
static function find(const char* name, const char* plain) {
  void* found = NULL;
  if (driver_way && get_proc_address != NULL) get_proc_address(plain, &found, 12000, 0, NULL);
  else found = dlsym(driver_way ? library : RTLD_DEFAULT, name);
  if (found == NULL) {
    fprintf(stderr, "no function %s\n", name);
    exit(3);
  }
  return (function)found;
}

#define CUDA(member, name, plain) gpu.member = (void*)find(name, plain)
#define HIP(member, name) gpu.member = (void*)find(name, name)

static void find_all(void) {
  if (hip) {
    HIP(init, "hipInit");
    HIP(set_device, "hipSetDevice");
    HIP(allocate, "hipMalloc");
    HIP(allocate_host, "hipHostMalloc");
    HIP(fill, "hipMemsetD32Async");
    HIP(down, "hipMemcpyDtoHAsync");
    HIP(stream_create, "hipStreamCreateWithFlags");
    HIP(stream_destroy, "hipStreamDestroy");
    HIP(stream_wait, "hipStreamSynchronize");
    HIP(stream_query, "hipStreamQuery");
    HIP(event_create, "hipEventCreateWithFlags");
    HIP(event_destroy, "hipEventDestroy");
    HIP(event_record, "hipEventRecord");
    HIP(event_wait, "hipEventSynchronize");
    HIP(event_query, "hipEventQuery");
    HIP(device_wait, "hipDeviceSynchronize");
    return;
  }
  CUDA(init, "cuInit", "cuInit");
  CUDA(retain, "cuDevicePrimaryCtxRetain", "cuDevicePrimaryCtxRetain");
  CUDA(current, "cuCtxSetCurrent", "cuCtxSetCurrent");
  CUDA(allocate, "cuMemAlloc_v2", "cuMemAlloc");
  CUDA(allocate_host, "cuMemHostAlloc", "cuMemHostAlloc");
  CUDA(fill, "cuMemsetD32Async", "cuMemsetD32Async");
  CUDA(down, "cuMemcpyDtoHAsync_v2", "cuMemcpyDtoHAsync");
  CUDA(stream_create, "cuStreamCreate", "cuStreamCreate");
  CUDA(stream_destroy, "cuStreamDestroy_v2", "cuStreamDestroy");
  CUDA(stream_wait, "cuStreamSynchronize", "cuStreamSynchronize");
  CUDA(stream_query, "cuStreamQuery", "cuStreamQuery");
  CUDA(event_create, "cuEventCreate", "cuEventCreate");
  CUDA(event_destroy, "cuEventDestroy_v2", "cuEventDestroy");
  CUDA(event_record, "cuEventRecord", "cuEventRecord");
  CUDA(event_wait, "cuEventSynchronize", "cuEventSynchronize");
  CUDA(event_query, "cuEventQuery", "cuEventQuery");
  CUDA(device_wait, "cuCtxSynchronize", "cuCtxSynchronize");
}

static void must(int error, const char* what) {
  if (error == 0) return;
  fprintf(stderr, "%s: error %d\n", what, error);
  exit(3);
}

static void use_device(int device) {
  void* context = NULL;
  if (hip) {
    must(gpu.set_device(device), "set device");
    return;
  }
  must(gpu.retain(&context, device), "retain context");
  must(gpu.current(context), "set context");
}

static void wait_for(void* stream, void* event) {
  int error = 600;
  if (strcmp(wait_kind, "stream") == 0) error = gpu.stream_wait(stream);
  else if (strcmp(wait_kind, "device") == 0) error = gpu.device_wait();
  else if (strcmp(wait_kind, "event") == 0) error = gpu.event_wait(event);
  else if (strcmp(wait_kind, "stream-query") == 0)
    while ((error = gpu.stream_query(stream)) == 600) {}
  else
    while ((error = gpu.event_query(event)) == 600) {}
  must(error, wait_kind);
}

static void* work(void* number) {
  const long thread = (long)number;
  void *stream[kMostStreams], *event[kMostStreams], *host[kMostStreams];
  uint64_t memory[kMostStreams];
  long mine = 0, made = 0;
  use_device((int)(thread % devices));
  for (int s = 0; s < streams; ++s) {
    stream[s] = NULL; /* the first one of a single stream is the default stream */
    if (streams > 1) must(gpu.stream_create(&stream[s], (unsigned)(s % 2)), "create stream");
    must(gpu.event_create(&event[s], 2), "create event");
    must(gpu.allocate(&memory[s], kBytes), "allocate");
    must(gpu.allocate_host(&host[s], kBytes, 0), "allocate host memory");
  }
  for (int turn = 1; turn <= turns; ++turn) {
    const int s = turn % streams;
    const unsigned value = (unsigned)(turn * 64 + thread);
    must(gpu.fill(memory[s], value, kBytes / 4, stream[s]), "fill");
    must(gpu.down(host[s], memory[s], kBytes, stream[s]), "copy");
    must(gpu.event_record(event[s], stream[s]), "record");
    wait_for(stream[s], event[s]);
    const volatile unsigned* data = host[s];
    mine += data[0] != value || data[kBytes / 4 - 1] != value;
    ++made;
    if (turn % 64 == 0) { /* handles come again */
      must(gpu.event_destroy(event[s]), "destroy event");
      must(gpu.event_create(&event[s], 2), "create event");
      if (stream[s] != NULL) {
        must(gpu.stream_destroy(stream[s]), "destroy stream");
        must(gpu.stream_create(&stream[s], (unsigned)(s % 2)), "create stream");
      }
    }
  }
  for (int s = 0; s < streams; ++s) {
    must(gpu.event_destroy(event[s]), "destroy event");
    if (stream[s] != NULL) must(gpu.stream_destroy(stream[s]), "destroy stream");
  }
  pthread_mutex_lock(&count_lock);
  wrong += mine, done += made;
  pthread_mutex_unlock(&count_lock);
  return NULL;
}

static double seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

int main(int argc, char** argv) {
  pthread_t thread[64];
  int provided, rank;
  if (argc < 4) return 2;
  hip = strcmp(argv[1], "hip") == 0;
  const int early = strcmp(argv[1], "early") == 0;
  driver_way = early || strcmp(argv[1], "handle") == 0;
  turns = atoi(argv[3]);
  const int threads = argc > 4 ? atoi(argv[4]) : 1;
  streams = argc > 5 ? atoi(argv[5]) : 1;
  devices = argc > 6 ? atoi(argv[6]) : 1;

  if (early) {
    library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) return 3;
    must(((int (*)(unsigned))dlsym(library, "cuInit"))(0), "init");
  }
  MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  library = dlopen(hip ? "libamdhip64.so.5" : "libcuda.so.1", RTLD_NOW | (driver_way ? RTLD_LOCAL : RTLD_GLOBAL));
  if (library == NULL) {
    fprintf(stderr, "%s\n", dlerror());
    return 3;
  }
  if (driver_way)
    get_proc_address = (int (*)(const char*, void**, int, uint64_t, void*))dlsym(library, "cuGetProcAddress_v2");
  find_all();
  must(gpu.init(0), "init");
  const double begin = seconds();
  for (wait_kind = strtok(argv[2], ","); wait_kind != NULL; wait_kind = strtok(NULL, ",")) {
    for (long i = 1; i < threads; ++i) pthread_create(&thread[i], NULL, work, (void*)i);
    work((void*)0);
    for (int i = 1; i < threads; ++i) pthread_join(thread[i], NULL);
  }
  printf("rank %d turns %ld wrong %ld seconds %.6f\n", rank, done, wrong, seconds() - begin);
  fflush(stdout);
  MPI_Finalize();
  return wrong != 0;
}
