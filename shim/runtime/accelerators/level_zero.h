// SPDX-License-Identifier: Apache-2.0
//
// Whether the Level Zero libraries in a process mean that memory may be a device's. Many processes have the loader,
// since hwloc's plug-in brings it, on machines that have no such device; asking Level Zero itself would initialise it.
#pragma once

#include <cstddef>

namespace resil::gpu {

/// Of an object's file name: the loader, which has no memory to give but a driver's; a driver; what neither has memory
/// nor brings any; or no library of Level Zero at all.
enum class LevelZero : unsigned char { kNone, kLoader, kDriver, kHarmless };
LevelZero level_zero_library(const char* name);

/// Has the loader been told of drivers by names that nobody knows (ZE_ENABLE_ALT_DRIVERS)?
bool level_zero_any_driver();

/// Is there a device that it could drive: a render node that is not certainly NVIDIA's or AMD's, an accelerator node,
/// or Windows' GPU? True, too, where that cannot be told. Looks into `root`/dev and `root`/sys (root "" but in tests);
/// opens no device, initialises nothing. Any thread, makes system calls.
bool level_zero_device(const char* root);

}  // namespace resil::gpu
