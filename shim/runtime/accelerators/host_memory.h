// SPDX-License-Identifier: Apache-2.0
//
// May the host touch this address? Usually the answer takes a compare or two: without an accelerator runtime in the
// process all is host memory, and the program's static data, the heap and the thread's stack are whatever is loaded.
// For other memory it depends on the runtimes; shim/runtime/accelerators/runtimes.cpp says how they are noticed and
// asked.
#pragma once

#include <cstddef>
#include <cstdint>

#include "shim/runtime/accelerators/runtimes.h"

namespace resil {

namespace gpu {
struct Said;
}

namespace host_memory_detail {

struct Range {
  uintptr_t low, high;  ///< 0, 0: not known yet

  bool holds(uintptr_t address, size_t bytes) const {
    const uintptr_t end = __atomic_load_n(&high, __ATOMIC_RELAXED);
    return address >= __atomic_load_n(&low, __ATOMIC_RELAXED) && address < end && bytes <= end - address;
  }
  /// In this order an empty range never looks like one that begins at 0.
  void set(uintptr_t new_low, uintptr_t new_high) {
    __atomic_store_n(&low, new_low, __ATOMIC_RELAXED);
    __atomic_store_n(&high, new_high, __ATOMIC_RELEASE);
  }
};

extern constinit thread_local Range stack __attribute__((tls_model("initial-exec")));
extern constinit Range data;  ///< the main program's writable data; threads that race to find it store the same
extern constinit Range heap;  ///< brk's

bool ask(const void* address, size_t bytes);

}  // namespace host_memory_detail

/// Is it known without asking? False: ask host_memory().
[[gnu::always_inline]] inline bool host_memory_known(const void* address, size_t bytes) {
  using namespace host_memory_detail;
  const auto at = reinterpret_cast<uintptr_t>(address);
  if (gpu::runtimes_absent()) [[likely]]
    return true;
  return heap.holds(at, bytes) || stack.holds(at, bytes) || data.holds(at, bytes);
}

/// The same, without a runtime being asked either, but with all that tells: which are in the process, the heap's end.
/// The first calls of a process and of a thread, and the first after an accelerator runtime was loaded, make system
/// calls.
bool host_memory_certain(const void* address, size_t bytes);

/// Memory of resil's own, [memory, memory + bytes), that runtimes know (registered with them): the host's for good. At
/// most 64 ranges, later ones are asked for each time. One thread at a time.
void host_memory_add(const void* memory, size_t bytes);

/// False for device and managed memory and for whatever is not certain. The host may then neither read nor write it;
/// count the message as uncovered, reason "device_buffer". Any thread, no MPI. Asks an accelerator runtime only if the
/// program has initialised it, and never initialises one. System calls as host_memory_certain().
[[gnu::always_inline]] inline bool host_memory(const void* address, size_t bytes) {
  if (host_memory_known(address, bytes)) [[likely]]
    return true;
  return host_memory_detail::ask(address, bytes);
}

/// Whose it is (runtimes.h): what the runtimes say of its first byte, kForeign where it begins as the host's and does
/// not end so, and kHost without asking where that is certain. Otherwise as host_memory().
gpu::Said whose_memory(const void* address, size_t bytes);

}  // namespace resil
