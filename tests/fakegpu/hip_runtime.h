// SPDX-License-Identifier: Apache-2.0
//
// What the files of the HIP runtime share. Compiled against AMD's header, which must agree with every function here.
#pragma once

#ifndef __HIP_PLATFORM_AMD__
#define __HIP_PLATFORM_AMD__
#endif
#include <hip/hip_runtime_api.h>

#include "tests/fakegpu/engine.h"

#define API extern "C" __attribute__((visibility("default"))) hipError_t

namespace fakegpu::hip {

/// As HIP 5 does it: each call sets the thread's last error, also when it succeeds.
hipError_t said(hipError_t error);

/// Every function initialises the runtime.
hipError_t ready();
/// The context of the thread's device; it is made when it is first needed.
hipError_t current(Context*& context);
hipError_t context_for(int ordinal, Context*& context);
hipError_t stream_of(hipStream_t handle, Stream*& stream);
hipError_t event_of(hipEvent_t handle, Event*& event);
hipError_t state_of(const Context& context);
hipError_t result_of(Copied copied, const Context& context);

}  // namespace fakegpu::hip
