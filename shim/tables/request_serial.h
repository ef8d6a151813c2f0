// SPDX-License-Identifier: Apache-2.0
//
// The serial number of a request: tells an old handle from its reuse. It is the time at which the request was entered:
// the time of the call will not do between threads, where it was taken on the way into MPI, maybe long before MPI had
// the handle to give. With threads that costs some 25 ns. Used by request_table.cpp alone.
#pragma once

#include <cstdint>

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

}  // namespace resil
