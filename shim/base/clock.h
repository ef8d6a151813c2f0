// SPDX-License-Identifier: Apache-2.0
//
// The system's clocks, read: no state, async-signal-safe. Monotonic for durations and deadlines, real time for what is
// written down. The call path reads ticks() instead (shim/call/runtime.h): a tenth of the price.
#pragma once

#include <time.h>

#include <cstdint>

namespace resil {

inline timespec clock_now(clockid_t clock) {
  timespec now = {};
  clock_gettime(clock, &now);
  return now;
}

inline uint64_t clock_ns(clockid_t clock) {
  const timespec now = clock_now(clock);
  return static_cast<uint64_t>(now.tv_sec) * 1000000000 + static_cast<uint64_t>(now.tv_nsec);
}

inline uint64_t monotonic_ns() { return clock_ns(CLOCK_MONOTONIC); }
inline uint64_t realtime_ns() { return clock_ns(CLOCK_REALTIME); }  ///< since 1970
inline uint64_t thread_cpu_ns() { return clock_ns(CLOCK_THREAD_CPUTIME_ID); }  ///< of the calling thread

inline double monotonic_seconds() {
  const timespec now = clock_now(CLOCK_MONOTONIC);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

inline timespec duration(double seconds) {
  const auto whole = static_cast<time_t>(seconds);
  return {whole, static_cast<long>((seconds - static_cast<double>(whole)) * 1e9)};
}

}  // namespace resil
