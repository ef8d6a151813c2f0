// SPDX-License-Identifier: Apache-2.0
//
// See inject_late.h. on_timer and land run in signal handlers: copies between two fixed places, nothing else.

#include "checksum/fault/inject_late.h"

#include <errno.h>
#include <signal.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

namespace resil::fault {

namespace {

// By system calls: the C library's wrappers lie in a library of their own on older systems.
int set_timer(int timer, uint64_t microseconds) {
  itimerspec when = {};
  when.it_value.tv_sec = static_cast<time_t>(microseconds / 1000000);
  when.it_value.tv_nsec = static_cast<long>(microseconds % 1000000 * 1000);
  return static_cast<int>(syscall(SYS_timer_settime, timer, 0, &when, nullptr));
}

bool land(LateWrite& late_write) {
  if (!late_write.pending.exchange(false, std::memory_order_acq_rel)) return false;
  late_write.packet.write(0, late_write.packet.bytes, late_write.packed);
  return true;
}

void on_timer(int, siginfo_t* info, void*) {
  const int saved = errno;
  auto* late_write = static_cast<LateWrite*>(info->si_value.sival_ptr);
  if (info->si_code == SI_TIMER && late_write != nullptr && land(*late_write))
    late_write->by_timer.store(true, std::memory_order_relaxed);
  errno = saved;
}

int timer_signal() { return SIGRTMAX - 2; }

void make_timer(LateWrite& late_write) {
  static std::atomic<bool> installed;
  if (!installed.exchange(true)) {
    struct sigaction action = {};
    action.sa_sigaction = on_timer;
    action.sa_flags = SA_SIGINFO | SA_RESTART;
    sigaction(timer_signal(), &action, nullptr);
  }
  sigevent event = {};
  event.sigev_notify = SIGEV_THREAD_ID;
  event.sigev_signo = timer_signal();
  event.sigev_value.sival_ptr = &late_write;
  event._sigev_un._tid = static_cast<pid_t>(syscall(SYS_gettid));
  late_write.has_timer = syscall(SYS_timer_create, CLOCK_MONOTONIC, &event, &late_write.timer) == 0;
}

}  // namespace

void arm(LateWrite& late_write) {
  if (!late_write.has_timer && late_write.delay != 0) make_timer(late_write);
  late_write.by_timer.store(false, std::memory_order_relaxed);
  late_write.by_look = false;
  late_write.pending.store(true, std::memory_order_release);
  if (late_write.has_timer && late_write.delay != 0)
    set_timer(late_write.timer, late_write.delay);  // without: it lands when the call ends
}

void looked_at(LateWrite& late_write, const void* buffer, uint32_t looks) {
  if (late_write.delay == 0 && late_write.packet.buffer == buffer && looks >= late_write.looks && land(late_write))
    late_write.by_look = true;
}

bool force(LateWrite& late_write) {
  if (land(late_write) && late_write.has_timer && late_write.delay != 0) set_timer(late_write.timer, 0);
  return late_write.by_timer.load(std::memory_order_relaxed);
}

void forget_timer(LateWrite& late_write) {
  if (late_write.has_timer) syscall(SYS_timer_delete, late_write.timer);
  late_write.has_timer = false;
}

}  // namespace resil::fault
