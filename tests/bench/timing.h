// SPDX-License-Identifier: Apache-2.0
//
// What the benchmark programs share: a clock and the best of several batches. Each prints "name value unit" lines.
#ifndef TESTS_BENCH_TIMING_H
#define TESTS_BENCH_TIMING_H

#include <stdio.h>
#include <time.h>

/// Nanoseconds of the monotonic clock.
static inline double now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return 1e9 * (double)now.tv_sec + (double)now.tv_nsec;
}

/// Runs `statement` `count` times in each of `batches` batches; into `best` the nanoseconds for one, of the fastest
/// batch: interruptions only ever add time.
#define BEST_OF(best, batches, count, statement)                  \
  do {                                                            \
    (best) = 1e30;                                                \
    for (int batch_ = 0; batch_ < (batches); batch_++) {          \
      const double start_ = now_ns();                             \
      for (int index_ = 0; index_ < (count); index_++) statement; \
      const double each_ = (now_ns() - start_) / (count);         \
      if (each_ < (best)) (best) = each_;                         \
    }                                                             \
  } while (0)

#endif
