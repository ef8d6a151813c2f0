// SPDX-License-Identifier: Apache-2.0
//
// The code of resil's own kernels, as it was built into the library: what cuModuleLoadData and hipModuleLoadData take.
#pragma once

#include <cstddef>

#include "pipeline/gpu/gpu.h"

namespace resil::gpu {

struct KernelImage {
  const void* data;
  size_t bytes;  ///< 0: no compiler for it was there when the library was built; kernels are then not used
  /// For devices and drivers that `data` has nothing for (its code is older than the device, or its compiler newer than
  /// the driver): text that the driver compiles. Null: none.
  const void* portable = nullptr;
};

/// Constant for the life of the process; any thread.
KernelImage kernel_image(Api api);

/// What the image was built with, for the report: "nvcc", "clang", ...; "" when it is empty.
const char* kernel_compiler(Api api);

}  // namespace resil::gpu
