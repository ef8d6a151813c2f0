// SPDX-License-Identifier: Apache-2.0
//
// What growth.c and the tool behind the library share.
#pragma once

#include <time.h>

/// In the program: nanoseconds in which all ranks get their turn; 0: this rank is not counted.
extern long growth_nap;

static inline void growth_sleep(void) {
  nanosleep(&(struct timespec){growth_nap / 1000000000, growth_nap % 1000000000}, NULL);
}
