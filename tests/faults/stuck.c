// SPDX-License-Identifier: Apache-2.0
//
// A solver that stands still in one way of the taxonomy of docs/WHY.md: stuck CLASS RANK FOLDER. Also compiled as C++.
// Its lines with "AT CLASS" are those where the accused rank stands. After some healthy steps rank RANK makes
// FOLDER/injected and does what CLASS says; all other ranks go on to the next step. Every rank ends itself after 120 s.
// For scripts/campaign classes.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { kSteps = 60, kSlowSteps = 6, kLarge = 1 << 20 };

static int me, size, wrong;
static const char *kind, *folder;
static MPI_Comm field, copy, half;
static volatile double sink;
static char in[kLarge], out[kLarge];

static int is(const char* wanted) { return strcmp(kind, wanted) == 0; }

static void nap(double seconds) {
  struct timespec time = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
  nanosleep(&time, NULL);  // AT asleep
}

static void path_of(char* path, const char* name) { snprintf(path, 4096, "%s/%s", folder, name); }

static void injected(void) {
  char path[4096];
  path_of(path, "injected");
  close(open(path, O_CREAT | O_WRONLY, 0666));
}

static void step(void) {
  double value = 1, sum = 0;
  const int next = (me + 1) % size, previous = (me + size - 1) % size;
  nap(0.002);
  MPI_Sendrecv(out, 8, MPI_BYTE, next, 1, in, 8, MPI_BYTE, previous, 1, field, MPI_STATUS_IGNORE);
  MPI_Allreduce(&value, &sum, 1, MPI_DOUBLE, MPI_SUM, field);
  wrong += sum != size;
}

static double relax(double x, long rounds) {
  for (long i = 0; i < rounds; ++i) {  // AT computing
    x = x * 0.999 + 1;  // AT computing
    sink = x;  // AT computing
  }
  return x;
}

#ifdef __cplusplus
template <typename Number>
struct Solver {
  Number value;
  __attribute__((noinline)) void iterate() {
    for (;;) value = relax(value, 1000000);  // AT computing
  }
};
static void compute(void) {
  Solver<double> solver = {1};
  solver.iterate();
}
#else
static void compute(void) {
  for (double x = 1;;) x = relax(x, 1000000);  // AT computing
}
#endif

static void checkpoint(void) {
  char path[4096];
  path_of(path, "fifo");
  const int file = open(path, O_RDONLY);  // AT file_open
  close(file);
}

static void read_input(void) {
  char path[4096], byte;
  path_of(path, "fifo");
  const int file = open(path, O_RDWR);
  if (read(file, &byte, 1) < 0) abort();  // AT file_read
}

/// The parent of a child of vfork sleeps uninterruptibly until the child has gone.
static void in_the_kernel(void) {
  if (vfork() == 0) {  // AT kernel
    alarm(600);
    for (;;) pause();
  }
}

static void device(void) {
  void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL), *context = NULL, *host = NULL;
  unsigned long memory = 0;
  if (library == NULL) abort();
  if (((int (*)(unsigned))dlsym(RTLD_DEFAULT, "cuInit"))(0) != 0) abort();
  ((int (*)(void**, int))dlsym(RTLD_DEFAULT, "cuDevicePrimaryCtxRetain"))(&context, 0);
  ((int (*)(void*))dlsym(RTLD_DEFAULT, "cuCtxSetCurrent"))(context);
  ((int (*)(unsigned long*, size_t))dlsym(RTLD_DEFAULT, "cuMemAlloc_v2"))(&memory, 4096);
  ((int (*)(void**, size_t, unsigned))dlsym(RTLD_DEFAULT, "cuMemHostAlloc"))(&host, 4096, 0);
  int (*wait)(void*) = (int (*)(void*))dlsym(RTLD_DEFAULT, "cuStreamSynchronize");
  int (*down)(void*, unsigned long, size_t, void*) =
      (int (*)(void*, unsigned long, size_t, void*))dlsym(RTLD_DEFAULT, "cuMemcpyDtoHAsync_v2");
  for (int i = 0; i < 4; ++i) {
    down(host, memory, 4096, NULL);
    wait(NULL);  // AT device
  }
}

/// What rank `culprit` does, and in classes with several that are in it, the others as well. False: the program goes
/// on.
static void stand_still(int culprit) {
  const int next = (me + 1) % size, guilty = me == culprit, partner = me == (culprit + 1) % size;
  MPI_Request request;
  int flag = 0;
  if (guilty) injected();
  if (is("cycle")) {
    MPI_Recv(in, 8, MPI_BYTE, next, 7, field, MPI_STATUS_IGNORE);  // AT cycle
  } else if (is("pair") && (guilty || partner)) {
    MPI_Ssend(out, 8, MPI_BYTE, guilty ? next : culprit, 7, field);  // AT pair
  } else if (is("nonblocking") && (guilty || partner)) {
    MPI_Irecv(in, 8, MPI_BYTE, guilty ? next : culprit, 7, field, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);  // AT nonblocking
  } else if (is("order")) {
    MPI_Barrier(guilty ? copy : field);  // AT order
    MPI_Barrier(guilty ? field : copy);
  } else if (is("mismatch") && guilty) {
    MPI_Barrier(field);  // AT mismatch
  } else if (is("mismatch")) {
    double value = 1, sum;
    MPI_Allreduce(&value, &sum, 1, MPI_DOUBLE, MPI_SUM, field);
  } else if (is("subset") && guilty) {
    MPI_Barrier(half);  // AT subset
  } else if (is("tag")) {
    if (guilty) MPI_Send(out, 8, MPI_BYTE, next, 9, field);
    if (partner) MPI_Recv(in, 8, MPI_BYTE, culprit, 8, field, MPI_STATUS_IGNORE);  // AT tag
  } else if (is("nobody") && guilty) {
    MPI_Recv(in, 8, MPI_BYTE, next, 11, field, MPI_STATUS_IGNORE);  // AT nobody
  } else if (is("lose")) {
    if (guilty) MPI_Send(out, 8, MPI_BYTE, next, 9, field);
    if (partner) MPI_Recv(in, 8, MPI_BYTE, culprit, 9, field, MPI_STATUS_IGNORE);  // AT lose
  } else if (is("large") && guilty) {
    MPI_Send(out, kLarge, MPI_BYTE, next, 12, field);  // AT large
  } else if (is("livelock") && guilty) {
    MPI_Irecv(in, 8, MPI_BYTE, next, 13, field, &request);
    while (!flag) MPI_Test(&request, &flag, MPI_STATUS_IGNORE);  // AT livelock
  } else if (is("livelock_all")) {
    while (!flag) MPI_Iprobe(MPI_ANY_SOURCE, 13, field, &flag, MPI_STATUS_IGNORE);  // AT livelock_all
  } else if (is("computing") && guilty) {
    compute();  // AT computing
  } else if (is("asleep") && guilty) {
    nap(1e6);  // AT asleep
  } else if (is("stopped") && guilty) {
    raise(SIGSTOP);  // AT stopped
  } else if (is("killed") && guilty) {
    raise(SIGKILL);
  } else if (is("left") && guilty) {
    _exit(0);
  } else if (is("kernel") && guilty) {
    in_the_kernel();  // AT kernel
  } else if (is("file_open") && guilty) {
    checkpoint();
  } else if (is("file_read") && guilty) {
    read_input();
  } else if (is("device") && guilty) {
    device();
  } else if (is("slow")) {
    for (int i = 0; i < kSlowSteps; ++i) {
      if (guilty)
        for (time_t end = time(NULL) + 3; time(NULL) < end;) sink = relax(1, 100000);
      step();
    }
  }
}

int main(int argc, char** argv) {
  if (argc < 4) return 2;
  kind = argv[1];
  folder = argv[3];
  const int culprit = atoi(argv[2]);
  alarm(600);
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &me);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Comm_dup(MPI_COMM_WORLD, &field);
  MPI_Comm_set_name(field, "field");
  MPI_Comm_dup(field, &copy);
  MPI_Comm_split(field, (me + size - culprit) % size < (size + 1) / 2, me, &half);
  for (int i = 0; i < kSteps; ++i) step();
  MPI_Barrier(field);
  if (!is("finished") || me != culprit) {
    stand_still(culprit);
    step();
    MPI_Comm_free(&field);
    MPI_Comm_free(&copy);
    MPI_Comm_free(&half);
  } else {
    injected();
  }
  MPI_Finalize();  // AT finished
  if (me == 0) printf("stuck %s %d %s\n", kind, size, wrong ? "wrong" : "right");
  return wrong != 0;
}
