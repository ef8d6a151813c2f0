// SPDX-License-Identifier: Apache-2.0
//
// What the runtime checks ask of a driver: a few functions of libcuda, or the same ones of libamdhip64
// (shim/runtime/accelerators/driver_functions.h). Errors are the runtime's numbers (both number alike where it matters
// here).
//
// Application's threads only.
#pragma once

#include <cstdint>

#include "shim/runtime/accelerators/driver_functions.h"
#include "shim/runtime/accelerators/memory.h"

namespace resil::gpu_runtime {

using gpu::Api;
using gpu::kNotInitialized, gpu::kNotReady, gpu::kNotSupported;
constexpr int kSuccess = 0, kNoDevice = 100;

/// Stream handles with a meaning of their own; equal in CUDA and HIP.
inline void* const kDefaultStream = nullptr;
inline void* const kLegacyStream = reinterpret_cast<void*>(1);
inline void* const kPerThreadStream = reinterpret_cast<void*>(2);

inline bool is_legacy(const void* stream) { return stream == kDefaultStream || stream == kLegacyStream; }

/// Null members: this driver has no such function. Addresses in device memory are pointers here, as HIP has them.
struct Driver : gpu::DriverFunctions {
  Api api;
  int (*write_value)(void* stream, void* address, uint64_t value, unsigned flags);
  int (*fill)(void* address, unsigned value, size_t count, void* stream);  ///< 32-bit elements
  int (*device_pointer)(void** device, void* host, unsigned flags);
  int (*allocate)(void** device, size_t bytes);
  // CUDA
  int (*stream_id)(void* stream, unsigned long long* id);
  int (*current_context)(void** context);
  int (*push_context)(void* context);
  int (*pop_context)(void** context);
  int (*stream_context)(void* stream, void** context);
  // HIP
  int (*get_device)(int* device);
  int (*set_device)(int device);
  int (*stream_device)(void* stream, int* device);
};

/// Null: the library is not in the process, or lacks what is needed. One load after the first time. `inside`: the
/// address of one of HIP's functions, by which its library is found (it has many file names); ignored for CUDA.
const Driver* driver(Api api, const void* inside = nullptr);

/// The context (CUDA) or device (HIP: its number + 1) of a stream, current on this thread while this object lives.
class Current {
 public:
  Current(const Driver& driver, void* stream);
  ~Current();
  Current(const Current&) = delete;
  /// Null: there is none (nothing has been initialised), or it cannot be had.
  void* context() const { return context_; }

 private:
  const Driver& driver_;
  void* context_ = nullptr;
  void* before_ = nullptr;
  bool changed_ = false;
};

/// Of this thread, without changing it. Null: none.
void* current_context(const Driver& driver);

}  // namespace resil::gpu_runtime
