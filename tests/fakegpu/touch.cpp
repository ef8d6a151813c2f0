// SPDX-License-Identifier: Apache-2.0
//
// The host touched device memory: one line, then the death that it would have died anyway.

#include <dlfcn.h>
#include <execinfo.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

#include "tests/fakegpu/engine.h"

namespace fakegpu {

namespace {

struct sigaction before;

/// Not async-signal-safe by the letter; the process is lost anyway, and its libraries have been loaded before.
void say(uintptr_t address) {
  char line[1024];
  size_t used = 0;
  auto add = [&](const char* format, auto... values) {
    const int length = snprintf(line + used, sizeof(line) - used, format, values...);
    used = std::min(used + static_cast<size_t>(length > 0 ? length : 0), sizeof(line) - 2);
  };
  add("fakegpu: host touched device memory at %#zx: ", address);
  if (const Allocation* it = find(address))
    add("allocation %#zx+%zu of %zu bytes", it->base, address - it->base, it->bytes);
  else add("freed or never given out");
  void* frames[24];
  const int count = backtrace(frames, 24);
  unsigned said = 0;
  for (int i = 3; i < count && said < 10; ++i, ++said) {  // say, on_fault and the kernel's frame are not of interest
    Dl_info info = {};
    dladdr(frames[i], &info);
    const char* path = info.dli_fname != nullptr ? info.dli_fname : "?";
    const char* slash = strrchr(path, '/');
    add("%s%s", said == 0 ? ", by " : " < ", info.dli_sname != nullptr ? info.dli_sname : "");
    add("@%s+%#zx", slash != nullptr ? slash + 1 : path,
        reinterpret_cast<uintptr_t>(frames[i]) - reinterpret_cast<uintptr_t>(info.dli_fbase));
  }
  line[used++] = '\n';
  if (write(2, line, used) < 0) _exit(139);
}

void on_fault(int signal, siginfo_t* info, void* context) {
  const auto address = reinterpret_cast<uintptr_t>(info->si_addr);
  if (info->si_code > 0 && device_range(address)) {
    say(address);
    ::signal(signal, SIG_DFL);  // the instruction is tried again
    return;
  }
  if ((before.sa_flags & SA_SIGINFO) != 0) before.sa_sigaction(signal, info, context);
  else if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) before.sa_handler(signal);
  else {
    ::signal(signal, SIG_DFL);
    if (info->si_code <= 0)  // sent by somebody: there is no instruction to fault again
      raise(signal);
  }
}

}  // namespace

void watch_touches() {
  struct sigaction current;
  if (sigaction(SIGSEGV, nullptr, &current) != 0) return;
  if ((current.sa_flags & SA_SIGINFO) != 0 && current.sa_sigaction == on_fault) return;
  void* frames[2];
  backtrace(frames, 2);  // loads what it needs
  before = current;
  struct sigaction action = {};
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
  sigaction(SIGSEGV, &action, nullptr);
}

}  // namespace fakegpu
