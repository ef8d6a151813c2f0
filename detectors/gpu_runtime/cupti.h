// SPDX-License-Identifier: Apache-2.0
//
// The way to CUDA runtimes that are linked statically: they take the driver's functions by dlsym on its handle, past
// all names of this library. The driver itself says when its functions are entered and left, through CUPTI's callbacks.
//
// The driver opens the library named by CUDA_INJECTION64_PATH when the program initialises it, and calls its
// InitializeInjection: before the first context, so that no stream is missed. Where the driver is initialised before
// MPI_Init, the callbacks begin in MPI_Init, and streams that are older are not known.
//
// CUPTI has one client at a time: a profiler wins, and resil says that it is passive.
#pragma once

namespace resil::gpu_runtime {

/// In MPI_Init, before the real one.
void cupti_prepare();
/// After it: the driver may have been initialised meanwhile without the injection.
void cupti_look();

/// The driver is being initialised (InitializeInjection).
bool subscribe_from_driver();

/// For the report: "none", "prepared", "subscribed", "subscribed, contexts are older", "refused: a profiler is there",
/// "no libcupti", ...
const char* cupti_state();

}  // namespace resil::gpu_runtime
