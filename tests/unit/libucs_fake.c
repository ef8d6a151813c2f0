// SPDX-License-Identifier: Apache-2.0
//
// Stands in for UCX, which handles SIGHUP itself: a library of that name with a handler of its own.
#include <signal.h>
#include <string.h>

static volatile sig_atomic_t calls;

static void handler(int number) {
  (void)number;
  ++calls;
}

void fake_ucs_install(int number) {
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_handler = handler;
  sigaction(number, &action, NULL);
}

int fake_ucs_calls(void) { return calls; }
