// SPDX-License-Identifier: Apache-2.0
//
// For programs of more ranks than processors: a rank that waits sleeps, a little longer each time, so that a hundred of
// them need no processor. Stands in for libc's function, by which Open MPI and the library under test wait, and for
// UCX's, which each look of MPICH's calls. The program is linked with -rdynamic and defines _GNU_SOURCE.
#pragma once

#include <dlfcn.h>
#include <time.h>

static void nap(void) {
  static _Thread_local long length;
  static _Thread_local double over;
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  if ((double)time.tv_sec + 1e-9 * (double)time.tv_nsec - over > 1e-4) length = 0;  // another wait than the last one
  if (length < 1000000) length += 50000;
  nanosleep(&(struct timespec){0, length}, NULL);
  clock_gettime(CLOCK_MONOTONIC, &time);
  over = (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}
int sched_yield(void) {
  nap();
  return 0;
}
unsigned ucp_worker_progress(void* worker) {
  static unsigned (*next)(void*);
  static int idle;
  if (next == NULL) next = (unsigned (*)(void*))dlsym(RTLD_NEXT, "ucp_worker_progress");
  const unsigned progress = next(worker);
  idle = progress == 0 ? idle + 1 : 0;
  if (idle > 64) nap();
  return progress;
}
