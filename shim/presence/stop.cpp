// SPDX-License-Identifier: Apache-2.0
//
// See stop.h. May touch standard error and hydra's descriptor.
#include "shim/presence/stop.h"

#include <signal.h>
#include <sys/ioctl.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cstring>
#include <ctime>

#include "shim/presence/pmi1.h"
#include "shim/presence/pmix.h"

namespace resil {
namespace {

constexpr int kExitConfiguration = 93;

void print(const char* line) {
  // One call: lines of several ranks must not run into each other.
  char newline = '\n';
  iovec parts[2] = {{const_cast<char*>(line), strlen(line)}, {&newline, 1}};
  if (writev(STDERR_FILENO, parts, 2) < 0) return;
}

/// Until the launcher has taken the line out of its pipe, at most a second: hydra forgets what it has not read when it
/// is asked to abort.
void wait_until_read() {
  for (int i = 0, waiting = 0; i < 1000 && ioctl(STDERR_FILENO, FIONREAD, &waiting) == 0 && waiting > 0; ++i) {
    timespec millisecond = {0, 1000000};
    nanosleep(&millisecond, nullptr);
  }
}

/// srun that is told to (--kill-on-bad-exit) ends the other ranks by SIGTERM, and would give that for the job's status.
void leave_when_told(int) { _exit(kExitConfiguration); }

}  // namespace

[[noreturn]] void stop_configuration(const LaunchIdentity& identity, const char* one_line, int printing_rank) {
  // Open MPI's mpirun ends the job by itself when a rank leaves with a status.
  auto leave = [&identity]() {
    if (identity.family == MpiFamily::kMpich) {
      wait_until_read();
      pmi1_abort(kExitConfiguration);
    } else if (pmix_takes_status()) {
      wait_until_read();
      pmix_abort(kExitConfiguration);
    }
    _exit(kExitConfiguration);
  };
  bool first = identity.rank < 0 || identity.rank == (printing_rank < 0 ? 0 : printing_rank);
  if (first) {
    print(one_line);
    // The others are to be through MPI_Init before this one goes: MPICH aborts there with another status.
    timespec half_a_second = {0, 500000000};
    if (printing_rank >= 0 && identity.family == MpiFamily::kMpich && !pmi1_available())
      nanosleep(&half_a_second, nullptr);
    leave();
  }
  struct sigaction action = {};
  action.sa_handler = leave_when_told;
  sigaction(SIGTERM, &action, nullptr);
  timespec left = {2, 0};
  while (nanosleep(&left, &left) != 0) {}
  if (printing_rank < 0) print(one_line);
  leave();
  __builtin_unreachable();
}

}  // namespace resil
