// SPDX-License-Identifier: Apache-2.0
//
// Which accelerator runtimes are in this process, and what they say about an address. The one place that knows: whether
// the host may touch a buffer (host_memory.h) and where it lies (gpu.h) are both answered from here.
//
// What counts are the drivers through which all memory of a device is had: a CUDA runtime, also one that is linked
// statically, loads libcuda when it is first used; HIP needs libhsa-runtime64. Both say of themselves that they have
// not been initialised, as they are not where there is no device.
#pragma once

#include <cstddef>
#include <cstdint>

#include "shim/call/runtime.h"
#include "shim/runtime/accelerators/loads.h"
#include "shim/runtime/accelerators/memory.h"

namespace resil::gpu {

enum Runtime : uint64_t {
  kCudaRuntime = 1,  ///< libcuda.so
  kHsaRuntime = 2,  ///< libhsa-runtime64.so, or what gives its functions
  kHipRuntime = 4,  ///< libamdhip64.so
  kOtherRuntime = 8,  ///< one that cannot be asked, and may have a device (Level Zero: level_zero.h)
  kRuntimeBits = 8
};

namespace runtimes_detail {
extern constinit const char* root;  ///< of /dev and /sys; "" but in tests
extern constinit uint64_t absent_until;  ///< loads::count() when no runtime was there; 0: never
extern constinit thread_local uint64_t absent_at __attribute__((tls_model("initial-exec")));
/// Ticks for which a thread relies on "no runtime" where the word is not found: 2 to 5 us on x86-64, at most 400 us on
/// AArch64.
constexpr uint64_t kTrusted = 10000;
}  // namespace runtimes_detail

/// No runtime is in the process while this word has that value; `word` null: not known. Neither the word nor the answer
/// goes away. Any thread.
struct Absence {
  const uint64_t* word;
  uint64_t value;
};
inline Absence absence() { return {loads::found(), __atomic_load_n(&runtimes_detail::absent_until, __ATOMIC_RELAXED)}; }

/// No runtime has been loaded since this process had none; or, where the loader does not let see that, this thread has
/// found none a few microseconds ago: opening a shared object takes longer, and getting memory from a driver that is
/// new in the process takes milliseconds.
inline bool runtimes_absent() {
  const Absence known = absence();
  if (known.word != nullptr) [[likely]]
    return __atomic_load_n(known.word, __ATOMIC_RELAXED) == known.value;
  return ticks() - runtimes_detail::absent_at < runtimes_detail::kTrusted;
}

/// Those that are in the process now: Runtime bits. Any thread, no MPI. Looks at all objects in the process when
/// their number has changed (loads.h).
uint64_t runtimes();

/// A runtime's library, for its functions, opened when runtimes() first met it; it then stays loaded. Null: not met.
void* runtime_library(Runtime runtime);

/// What the runtimes say about one byte. The first that knows the address as a device's decides.
struct Said {
  Memory memory;
  Api api;  ///< whose memory; kNone for kHost and kForeign
  void* context;  ///< CUDA's; null: it belongs to none (pools, mapped memory), or HIP
  int ordinal;  ///< device's number in its runtime, -1: not said
  uintptr_t base;  ///< allocation, 0: not said
  size_t bytes;  ///< of it
  bool mapped;  ///< a buffer of the program's may go on in the next allocation: virtual memory management
  bool settled = false;  ///< calls that the runtime names synchronous are over when they return, for this memory
};
constexpr Said kHosts = {Memory::kHost, Api::kNone, nullptr, -1, 0, 0, false, true};

/// `present`: of runtimes(), not 0. Asks a runtime only if the program has initialised it, and never initialises one.
/// Any thread; needs no current context or device and changes none.
Said ask_runtimes(uint64_t present, uintptr_t address);

}  // namespace resil::gpu
