// SPDX-License-Identifier: Apache-2.0
//
// Writing without dying of it: while a WriteShield lives, a write beyond a file-size limit or to a pipe that nobody
// reads fails with EFBIG or EPIPE instead of raising SIGXFSZ or SIGPIPE, whose disposition is the application's and
// kills by default. Async-signal-safe. Makes system calls: not for the call path.
#pragma once

#include <errno.h>
#include <signal.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cstdint>

namespace resil {

class WriteShield {
 public:
  WriteShield() {
    const uint64_t both = kBoth;
    syscall(SYS_rt_sigpending, &pending_, sizeof(pending_));
    syscall(SYS_rt_sigprocmask, SIG_BLOCK, &both, &before_, sizeof(before_));
  }
  ~WriteShield() {
    const int kept = errno;
    uint64_t now = 0;
    syscall(SYS_rt_sigpending, &now, sizeof(now));
    // What was raised meanwhile is this thread's own. One that was pending before, or is blocked anyway, stays.
    if (const uint64_t raised = now & ~pending_ & ~before_ & kBoth; raised != 0) {
      const timespec none = {};
      syscall(SYS_rt_sigtimedwait, &raised, nullptr, &none, sizeof(raised));
    }
    syscall(SYS_rt_sigprocmask, SIG_SETMASK, &before_, nullptr, sizeof(before_));
    errno = kept;
  }
  WriteShield(const WriteShield&) = delete;

 private:
  static constexpr uint64_t kBoth = uint64_t{1} << (SIGXFSZ - 1) | uint64_t{1} << (SIGPIPE - 1);
  uint64_t before_ = 0, pending_ = 0;
};

}  // namespace resil
