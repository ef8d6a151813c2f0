// SPDX-License-Identifier: Apache-2.0
//
// A number that depends on what no recording holds, one source for each KIND; then a reduction that agrees, then one of
// that number. Usage: sources KIND. SOURCES_FLIP=RANK adds to that rank's number: a fault.
//
//   none wtime wtime-many wtime-flood time time-early clock getpid urandom getrusage stat threads threads-early
//   emulated ucx array spread wrapper in-place address addresses name
//
// address, addresses, name: bytes of rank 0, which all get: one address, several among numbers, a name with the
// process's id. emulated: beside the program stands a task that the C library has not made, as an emulator's own does.
// ucx: beside it stands a thread that a library has made when it was loaded, under the name that UCX gives it.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <mpi.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

static double order;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const char* kind;

static int is(const char* name) { return strcmp(kind, name) == 0; }

static void* worker(void* argument) {
  for (volatile unsigned i = (unsigned)processor_ticks() % 100000; i > 0; i--) {}
  pthread_mutex_lock(&lock);
  order = order * 0.75 + (double)(long)argument;
  pthread_mutex_unlock(&lock);
  return NULL;
}

/// The only place that calls MPI_Allreduce, as in programs with a layer of their own above MPI.
__attribute__((noinline)) static double wrapped_sum(double value) {
  double all;
  OK(MPI_Allreduce(&value, &all, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD));
  return all;
}

__attribute__((noinline)) static double sum_of_times(double value) { return wrapped_sum(value) + 1; }

__attribute__((noinline)) static double sum_of_results(double value) { return wrapped_sum(value) + 2; }

static void* idle(void* argument) {
  pthread_mutex_lock(argument);
  pthread_mutex_unlock(argument);
  return NULL;
}

static int stand(void* nothing) {  // of thread-local storage it has none of its own
  for (;;) pause();
  return nothing == NULL;
}

/// A task that no signal reaches; it ends with the process.
static void add_task(void) {
  static char stack[1 << 16] __attribute__((aligned(16)));
  sigset_t every, before;
  sigfillset(&every);
  CHECK(sigprocmask(SIG_BLOCK, &every, &before) == 0);
  CHECK(clone(stand, stack + sizeof(stack),
              CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM, NULL) > 0);
  CHECK(sigprocmask(SIG_SETMASK, &before, NULL) == 0);
}

int main(int argc, char** argv) {
  static pthread_mutex_t held = PTHREAD_MUTEX_INITIALIZER;
  pthread_t threads[8], early;
  double number = 1.5, one = 1, sum, numbers[4], sums[4];
  kind = argc > 1 ? argv[1] : "none";
  if (is("time-early")) number = (double)time(NULL);
  if (is("threads-early")) {
    pthread_mutex_lock(&held);
    CHECK(pthread_create(&early, NULL, idle, &held) == 0);
  }
  if (is("emulated")) {
    const char* none_made = dlsym(RTLD_DEFAULT, "__libc_single_threaded");
    if (none_made == NULL || *none_made == 0) puts("a thread was made");  // UCX's, or glibc is older than 2.32
    add_task();
  }
  if (is("ucx")) {
    int (*create)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
    *(void**)&create = dlsym(dlopen("libc.so.6", RTLD_LAZY), "pthread_create");  // not a call of the program
    if (create == NULL)
      *(void**)&create = dlsym(dlopen("libpthread.so.0", RTLD_LAZY), "pthread_create");  // before 2.34
    pthread_mutex_lock(&held);
    CHECK(create(&early, NULL, idle, &held) == 0 && pthread_setname_np(early, "fuse") == 0);
  }
  OK(MPI_Init(&argc, &argv));
  int rank;
  OK(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
  if (is("wtime")) {
    const double began = MPI_Wtime();
    for (volatile int i = 0; i < 1000; i++) {}
    number = MPI_Wtime() - began;
  } else if (is("wtime-many")) {
    const double began = MPI_Wtime();
    for (int i = 0; i < 100000; i++) number = number * 0.5 + (MPI_Wtime() - began);
  } else if (is("wtime-flood")) {
    double now = MPI_Wtime(), last = now;
    for (int i = 0; i < 4600000; i++, last = now) CHECK((now = MPI_Wtime()) >= last);
    number = now;
  } else if (is("time")) {
    number = (double)time(NULL);
  } else if (is("clock") || is("array") || is("spread") || is("wrapper") || is("in-place")) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    number = (double)now.tv_nsec + 1e9 * (double)now.tv_sec;
  } else if (is("getpid")) {
    number = getpid();
  } else if (is("urandom")) {
    unsigned value;
    const int file = open("/dev/urandom", O_RDONLY);
    CHECK(read(file, &value, sizeof(value)) == sizeof(value));
    close(file);
    number = value;
  } else if (is("getrusage")) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    number = (double)usage.ru_maxrss + 1e-6 * (double)(unsigned)processor_ticks();
  } else if (is("stat")) {
    struct stat status;
    CHECK(stat("/proc/self", &status) == 0);
    number = (double)status.st_mtim.tv_nsec + 1e-3 * (double)status.st_mtim.tv_sec;
  } else if (is("threads")) {  // below MPI_THREAD_MULTIPLE: they never call MPI
    for (long i = 0; i < 8; i++) CHECK(pthread_create(&threads[i], NULL, worker, (void*)i) == 0);
    for (long i = 0; i < 8; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    number = order;
  } else if (is("threads-early")) {
    number = (unsigned)processor_ticks();
    pthread_mutex_unlock(&held);
    pthread_join(early, NULL);
  }
  const char* flip = getenv("SOURCES_FLIP");
  if (flip != NULL && atoi(flip) == rank) number += 0.25;
  OK(MPI_Allreduce(&one, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD));  // agrees, whatever was read before
  if (is("in-place")) {
    OK(MPI_Allreduce(MPI_IN_PLACE, &number, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD));
    for (int i = 0; i < 4; i++) numbers[i] = number + i;
    OK(MPI_Allreduce(MPI_IN_PLACE, numbers, 4, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD));
    sum = number;
  } else if (is("wrapper")) {
    for (int i = 0; i < 3; i++) sum += sum_of_results(flip != NULL && atoi(flip) == rank ? 0.25 : i);
    for (int i = 0; i < 2; i++) sum += sum_of_times(number + i);
    for (int i = 0; i < 3; i++) sum += sum_of_results(flip != NULL && atoi(flip) == rank ? 0.25 : i);
  } else if (is("address") || is("addresses") || is("name")) {
    char bytes[64] = "";
    char* const place[8] = {NULL, bytes, (char*)8, NULL, bytes + 1, NULL, NULL, NULL};
    if (is("name")) snprintf(bytes, sizeof(bytes), "%c%c%c%cnode.%d", 4, 0, 0, 0, (int)getpid());
    else memcpy(bytes, is("address") ? place + 1 : place, sizeof(place) - 8);
    OK(MPI_Bcast(bytes, is("address") ? 8 : 64, MPI_BYTE, 0, MPI_COMM_WORLD));
    for (int i = 0; i < 64; i++) sum += bytes[i] * (i + 1);
  } else if (is("array") || is("spread")) {
    for (int i = 0; i < 4; i++) numbers[i] = is("array") || i == 3 ? number + i : i;
    if (is("array")) {
      OK(MPI_Allreduce(numbers, sums, 4, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD));
    } else {  // one call site for all, most of which agrees
      for (int i = 0; i < 4; i++) OK(MPI_Allreduce(&numbers[i], &sums[i], 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD));
    }
    sum = sums[3];
  } else {
    OK(MPI_Allreduce(&number, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD));
  }
  if (rank == 0) printf("sources %a\n", sum);
  OK(MPI_Finalize());
  return 0;
}
