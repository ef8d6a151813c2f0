// SPDX-License-Identifier: Apache-2.0
//
// Threads that wait for a word to change, without a lock or a condition variable. Async-signal-safe but for what the
// caller does; nothing is allocated.
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <cstdint>

#include "shim/base/clock.h"

namespace resil {

/// Who may wait there: threads of this process, or of all that have the word's memory.
enum class FutexScope { kProcess, kShared };

/// Sleeps while the word has that value; at most `seconds`, and sometimes shorter for no reason.
inline void futex_wait(const void* word, uint32_t value, double seconds, FutexScope scope = FutexScope::kProcess) {
  if (seconds <= 0) return;
  const timespec limit = duration(seconds);
  syscall(SYS_futex, word, scope == FutexScope::kShared ? FUTEX_WAIT : FUTEX_WAIT_PRIVATE, value, &limit, nullptr, 0);
}

/// However long it takes.
inline void futex_wait(const void* word, uint32_t value) {
  syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, nullptr, nullptr, 0);
}

inline void futex_wake(const void* word, int threads = INT_MAX, FutexScope scope = FutexScope::kProcess) {
  syscall(SYS_futex, word, scope == FutexScope::kShared ? FUTEX_WAKE : FUTEX_WAKE_PRIVATE, threads, nullptr, nullptr,
          0);
}

/// Until the word has another value; false: not within `seconds`.
inline bool futex_wait_while(const std::atomic<uint32_t>& word, uint32_t value, double seconds) {
  const double until = monotonic_seconds() + seconds;
  for (double now = until - seconds; word.load(std::memory_order_acquire) == value; now = monotonic_seconds()) {
    if (now >= until) return false;
    futex_wait(&word, value, until - now);
  }
  return true;
}

/// Likewise for `seconds` in which this process could run: while it is stopped, or the machine stands still, at most
/// `step` of them pass.
inline bool futex_wait_while_running(const std::atomic<uint32_t>& word, uint32_t value, double seconds, double step) {
  for (double left = seconds; word.load(std::memory_order_acquire) == value;) {
    if (left <= 0) return false;
    const double begin = monotonic_seconds();
    futex_wait(&word, value, left < step ? left : step);
    const double passed = monotonic_seconds() - begin;
    left -= passed < step ? passed : step;
  }
  return true;
}

}  // namespace resil
