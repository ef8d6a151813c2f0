// SPDX-License-Identifier: Apache-2.0
//
// What is used of the HIP runtime (AMD's) beside driver_functions.h, and of ROCr beneath it.
#pragma once

#include "shim/runtime/accelerators/driver_functions.h"

namespace resil::gpu::hip {

using Result = int;  // hipError_t

/// hipPointerAttribute_t. The values of `type` are not the same in HIP 5 and 6: not used.
struct Attributes {
  int type;
  int device;
  void *device_address, *host_address;
  int managed;
  unsigned flags;
  char room[64];  ///< for what later versions may add
};

constexpr int kUp = 1, kDown = 2, kAcross = 3;  // hipMemcpyHostToDevice, DeviceToHost, DeviceToDevice
// X(member, symbol, arguments). All return hipError_t.
#define RESIL_HIP_NEEDED(X)                                                                               \
  X(device_get, hipGetDevice, (int* device))                                                              \
  X(device_set, hipSetDevice, (int device))                                                               \
  X(pointer_attributes, hipPointerGetAttributes, (Attributes * attributes, const void* address))          \
  X(copy, hipMemcpyAsync, (void* to, const void* from, size_t bytes, int kind, void* stream))             \
  X(copy_2d, hipMemcpy2DAsync,                                                                            \
    (void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width, size_t rows, int kind, \
     void* stream))                                                                                       \
  X(copy_peer, hipMemcpyPeerAsync,                                                                        \
    (void* to, int to_device, const void* from, int from_device, size_t bytes, void* stream))             \
  X(host_device_pointer, hipHostGetDevicePointer, (void** pointer, void* memory, unsigned flags))         \
  X(allocate, hipMalloc, (void** memory, size_t bytes))                                                   \
  X(release, hipFree, (void* memory))                                                                     \
  X(error_peek, hipPeekAtLastError, (void))                                                               \
  X(error_take, hipGetLastError, (void))

#define RESIL_HIP_OPTIONAL(X)                                                                          \
  X(ipc_export, hipIpcGetMemHandle, (DriverIpcHandle * handle, void* memory))                          \
  X(ipc_open, hipIpcOpenMemHandle, (void** memory, DriverIpcHandle handle, unsigned flags))            \
  X(ipc_close, hipIpcCloseMemHandle, (void* memory))                                                   \
  X(device_uuid, hipDeviceGetUuid, (DriverUuid * uuid, int device))                                    \
  X(write_value, hipStreamWriteValue64, (void* stream, void* address, uint64_t value, unsigned flags)) \
  X(fill, hipMemsetD32Async, (void* address, int value, size_t count, void* stream))                   \
  X(stream_device, hipStreamGetDevice, (void* stream, int* device))

struct Functions : DriverFunctions {
#define X(member, symbol, arguments) Result(*member) arguments;
  RESIL_HIP_NEEDED(X)
  RESIL_HIP_OPTIONAL(X)
#undef X
  const char* (*error_name)(Result result);  // hipGetErrorName
  constexpr bool complete() const {
    bool all = DriverFunctions::complete();
#define X(member, symbol, arguments) all = all && member != nullptr;
    RESIL_HIP_NEEDED(X)
#undef X
    return all;
  }
};

/// hsa_amd_pointer_info_t, as far as it is used
struct HsaInfo {
  uint32_t bytes;
  int32_t type;
  void *agent_address, *host_address;
  size_t allocation_bytes;
  void* user_data;
  uint64_t owner;
  uint32_t flags;
};
/// hsa_amd_pointer_info, hsa_agent_get_info
using HsaPointerInfo = int(const void* address, HsaInfo* info, void* allocate, uint32_t* agents, void* accessible);
using HsaAgentInfo = int(uint64_t agent, int attribute, void* value);
// HSA_EXT_POINTER_TYPE_; locked: host memory, registered; reserved and the one behind it: virtual memory management
constexpr int kHsaUnknown = 0, kHsaLocked = 2, kHsaReserved = 5;
constexpr int kHsaNotInitialized = 0x100B, kHsaAgentDevice = 17, kHsaCpu = 0;

}  // namespace resil::gpu::hip
