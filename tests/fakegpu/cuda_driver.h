// SPDX-License-Identifier: Apache-2.0
//
// What the files of the CUDA driver share: handles, the current context, errors.
#pragma once

#include "tests/fakegpu/cuda_api.h"
#include "tests/fakegpu/engine.h"

#define API extern "C" __attribute__((visibility("default"))) CUresult

namespace fakegpu::cuda {

/// Initialised, and not in a callback of the driver's?
inline CUresult ready() {
  if (!started()) return CUDA_ERROR_NOT_INITIALIZED;
  return inside_callback() ? CUDA_ERROR_NOT_PERMITTED : CUDA_SUCCESS;
}

/// The error of a context that is no longer good.
inline CUresult state_of(const Context& context) {
  if (context.destroyed) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  return context.poisoned ? CUDA_ERROR_ILLEGAL_ADDRESS : CUDA_SUCCESS;
}

/// A context that has been destroyed, or what was made in it, handed to the driver by a thread where it is not current:
/// undefined with the real one (580.159 crashes when the context is left again). The process says so and dies.
void must_live(const Context& context);
/// The thread's current context, which must be there and good.
CUresult current(Context*& context);
/// The context that is made current for the device, without retaining it.
Context* primary(Device& device);
CUresult stream_of(CUstream handle, Stream*& stream);
CUresult event_of(CUevent handle, Event*& event);
CUresult result_of(Copied copied, const Context& context);

inline Context* context_of(CUcontext handle) { return reinterpret_cast<Context*>(handle); }
inline CUcontext handle_of(Context* context) { return reinterpret_cast<CUcontext>(context); }

}  // namespace fakegpu::cuda
