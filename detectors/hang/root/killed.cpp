// SPDX-License-Identifier: Apache-2.0

#include "detectors/hang/root/killed.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>

#include "detectors/hang/reader/watch.h"
#include "detectors/hang/slots/layout.h"
#include "shim/call/runtime.h"
#include "shim/ring/segment.h"

namespace resil::hang {

namespace {

ControlBlock* control;  ///< own; null: there are no slots

/// "/proc/NUMBER/comm" without stdio.
void comm_path(int pid, char* path) {
  char digits[12];
  int count = 0;
  for (int rest = pid; rest > 0; rest /= 10) digits[count++] = static_cast<char>('0' + rest % 10);
  for (const char* c = "/proc/"; *c != 0; ++c) *path++ = *c;
  while (count > 0) *path++ = digits[--count];
  for (const char* c = "/comm"; *c != 0; ++c) *path++ = *c;
  *path = 0;
}

void note_and_die(int number, siginfo_t* info, void*) {
  ring::Header& header = *runtime.header;
  if (getpid() == runtime.pid && header.term_ticks == 0) {
    header.term_pid = info->si_pid;
    header.term_signal = static_cast<uint32_t>(number);
    if (info->si_pid > 0) {
      char path[32], name[sizeof(header.term_sender)] = "";
      comm_path(info->si_pid, path);
      const int fd = open(path, O_RDONLY | O_CLOEXEC);
      const ssize_t length = fd >= 0 ? read(fd, name, sizeof(name) - 1) : 0;
      if (fd >= 0) close(fd);
      for (ssize_t i = 0; i < length && name[i] != '\n'; ++i) header.term_sender[i] = name[i];
    }
    if (control != nullptr) control->oom_kills = oom_kills_since();
    __atomic_store_n(&header.term_ticks, ticks(), __ATOMIC_RELEASE);
  }
  // The default action, as if nobody had been here: it comes when the handler returns.
  signal(number, SIG_DFL);
  raise(number);
}

}  // namespace

void killed_install() {
  unsigned long bytes = 0;
  control = static_cast<ControlBlock*>(segment_section("hang", &bytes));
  struct sigaction before;
  if (sigaction(SIGTERM, nullptr, &before) != 0 || (before.sa_flags & SA_SIGINFO) || before.sa_handler != SIG_DFL)
    return;
  struct sigaction action = {};
  action.sa_sigaction = note_and_die;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigaction(SIGTERM, &action, nullptr);
}

}  // namespace resil::hang
