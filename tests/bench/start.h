// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/resource.h>

/// Processor time so far, user's and system's, in milliseconds.
struct times {
  double process, thread;
};

static double milliseconds(int who) {
  struct rusage usage;
  getrusage(who, &usage);
  return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1e3 +
         (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-3;
}

static struct times times_now(void) {
  struct times now = {milliseconds(RUSAGE_SELF), milliseconds(RUSAGE_THREAD)};
  return now;
}
