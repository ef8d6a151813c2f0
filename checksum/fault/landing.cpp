// SPDX-License-Identifier: Apache-2.0
//
// See landing.h. on_timer and land run in signal handlers: copies between two fixed places, nothing else.

#include "checksum/fault/landing.h"

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

bool land(Landing& landing) {
  if (!landing.pending.exchange(false, std::memory_order_acq_rel)) return false;
  landing.packet.write(0, landing.packet.bytes, landing.packed);
  return true;
}

void on_timer(int, siginfo_t* info, void*) {
  const int saved = errno;
  auto* landing = static_cast<Landing*>(info->si_value.sival_ptr);
  if (info->si_code == SI_TIMER && landing != nullptr && land(*landing))
    landing->by_timer.store(true, std::memory_order_relaxed);
  errno = saved;
}

int timer_signal() { return SIGRTMAX - 2; }

void make_timer(Landing& landing) {
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
  event.sigev_value.sival_ptr = &landing;
  event._sigev_un._tid = static_cast<pid_t>(syscall(SYS_gettid));
  landing.has_timer = syscall(SYS_timer_create, CLOCK_MONOTONIC, &event, &landing.timer) == 0;
}

}  // namespace

void arm(Landing& landing) {
  if (!landing.has_timer && landing.delay != 0) make_timer(landing);
  landing.by_timer.store(false, std::memory_order_relaxed);
  landing.by_look = false;
  landing.pending.store(true, std::memory_order_release);
  if (landing.has_timer && landing.delay != 0)
    set_timer(landing.timer, landing.delay);  // without: it lands when the call ends
}

void looked_at(Landing& landing, const void* buffer, uint32_t looks) {
  if (landing.delay == 0 && landing.packet.buffer == buffer && looks >= landing.looks && land(landing))
    landing.by_look = true;
}

bool force(Landing& landing) {
  if (land(landing) && landing.has_timer && landing.delay != 0) set_timer(landing.timer, 0);
  return landing.by_timer.load(std::memory_order_relaxed);
}

void forget_timer(Landing& landing) {
  if (landing.has_timer) syscall(SYS_timer_delete, landing.timer);
  landing.has_timer = false;
}

}  // namespace resil::fault
