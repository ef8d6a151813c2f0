// SPDX-License-Identifier: Apache-2.0
//
// Preloaded in front of the library: each process may use 1,024 processors, it is told.
#define _GNU_SOURCE
#include <sched.h>
#include <string.h>
#include <sys/types.h>

int sched_getaffinity(pid_t process, size_t bytes, cpu_set_t* cpus) {
  (void)process;
  memset(cpus, 0xff, bytes);
  return 0;
}
