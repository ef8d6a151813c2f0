// SPDX-License-Identifier: Apache-2.0
//
// What the MPI test programs share: CHECK ends the program with status 1 and one line on stderr. It makes no MPI
// call, so that the numbers of calls in each program's table stay what its source says.
#ifndef TESTS_MPI_CHECK_H
#define TESTS_MPI_CHECK_H

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#ifdef __cplusplus
#define CHECK_UNUSED
#else
#define CHECK_UNUSED __attribute__((unused))
#endif

static void check_failed(const char* condition, const char* file, int line) {
  fprintf(stderr, "%s:%d: failed: %s\n", file, line, condition);
  fflush(NULL);
  _exit(1);
}

#define CHECK(condition) ((condition) ? (void)0 : check_failed(#condition, __FILE__, __LINE__))

/// An MPI call that must succeed.
#define OK(call) CHECK((call) == MPI_SUCCESS)

/// Another number in each run: the processor's ticks, which verify cannot see being read, unlike a clock.
CHECK_UNUSED static inline unsigned long long processor_ticks(void) {
#if defined(__x86_64__)
  unsigned low, high;
  __asm__ volatile("rdtsc" : "=a"(low), "=d"(high));
  return low | (unsigned long long)high << 32;
#else
  unsigned long long ticks;
  __asm__ volatile("mrs %0, cntvct_el0" : "=r"(ticks));
  return ticks;
#endif
}

/// A position-dependent sum, for one number that stands for a whole buffer.
CHECK_UNUSED static inline unsigned long fingerprint(const void* data, size_t bytes) {
  const unsigned char* p = (const unsigned char*)data;
  unsigned long sum = 1469598103934665603UL;
  for (size_t i = 0; i < bytes; i++) sum = (sum ^ p[i]) * 1099511628211UL;
  return sum;
}

#endif
