// SPDX-License-Identifier: Apache-2.0
//
// The serial number of a request: tells an old handle from its reuse. It is the time at which the request was entered:
// the time of the call will not do between threads, where it was taken on the way into MPI, maybe long before MPI had
// the handle to give. With threads that costs some 25 ns.
//
// While one thread is still inside the call that completed a request, MPI may give the handle to another thread's, and
// a third one may complete that: two entries of one key. Each of the two completing calls was made before the other
// request was started, or after: of all entries that are older than the call, the newest is meant.
//
// Used by the two levels of the request table alone.
#pragma once

#include <cstdint>

#include "shim/call/runtime.h"

namespace resil {

/// Ticks in a unit, as a power of two: some 20 to 40 ns, so that a handle's reuse has another number.
#if defined(__aarch64__)
inline constinit uint32_t serial_shift = 0;  // the counter has 25 MHz to 1 GHz
inline void request_serial_prepare() {
  uint64_t frequency;
  asm("mrs %0, cntfrq_el0" : "=r"(frequency));
  for (serial_shift = 0; frequency >> serial_shift > 50000000; ++serial_shift) {}
}
#else
constexpr uint32_t serial_shift = 6;
inline void request_serial_prepare() {}
#endif

inline uint32_t request_serial(uint64_t ticks) { return static_cast<uint32_t>(ticks >> serial_shift); }

/// Of a call that completes requests: not earlier than the loads that gave the program their handles.
inline uint32_t request_serial_now() {
#if defined(__x86_64__)
  __builtin_ia32_lfence();
#else
  asm volatile("isb" ::: "memory");
#endif
  return request_serial(ticks());
}

/// Who asks for the entry of a key.
struct RequestAsker {
  uint32_t trace;  ///< the thread's
  uint32_t entered;  ///< serial number of its call, if it is one that completes requests
  bool completes;  ///< else all entries are older, since MPI has not given the handle to anybody else

  /// Is an entry the better one than another? Ages go round: what is younger than the call seems oldest of all. They
  /// are wrong where a call or a request lasts for a multiple of the 91 s after which serial numbers repeat.
  bool prefers(uint32_t serial, bool own, uint32_t than_serial, bool than_own) const {
    const uint32_t at = completes ? entered : request_serial(ticks());
    const uint32_t age = at - serial, than_age = at - than_serial;
    return age != than_age ? age < than_age : own && !than_own;
  }
};

}  // namespace resil
