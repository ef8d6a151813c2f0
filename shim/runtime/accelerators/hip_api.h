// SPDX-License-Identifier: Apache-2.0
//
// What is used of the HIP runtime (AMD's) and of ROCr beneath it: own declarations, so that building needs no HIP.
// tests/unit/gpu_headers_hip.cpp compares them with <hip/hip_runtime_api.h> and <hsa/hsa_ext_amd.h>.
#pragma once

#include <cstddef>
#include <cstdint>

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
constexpr unsigned kStreamNonBlocking = 1, kEventNoTiming = 2;
constexpr unsigned kRegisterPortable = 1, kRegisterMapped = 2;
constexpr int kCaptureRelaxed = 2;
constexpr Result kInvalidValue = 1, kNotSupported = 801;  // hipError

/// hipIpcMemHandle_t: given by value.
struct IpcHandle {
  char bytes[64];
};
/// hipUUID
struct Uuid {
  char bytes[16];
};

// X(member, symbol, arguments). All return hipError_t.
#define RESIL_HIP_NEEDED(X)                                                                                          \
  X(device_get, hipGetDevice, (int* device))                                                                         \
  X(device_set, hipSetDevice, (int device))                                                                          \
  X(pointer_attributes, hipPointerGetAttributes, (Attributes * attributes, const void* address))                     \
  X(stream_create, hipStreamCreateWithPriority, (void** stream, unsigned flags, int priority))                       \
  X(stream_destroy, hipStreamDestroy, (void* stream))                                                                \
  X(stream_wait, hipStreamWaitEvent, (void* stream, void* event, unsigned flags))                                    \
  X(event_create, hipEventCreateWithFlags, (void** event, unsigned flags))                                           \
  X(event_destroy, hipEventDestroy, (void* event))                                                                   \
  X(event_record, hipEventRecord, (void* event, void* stream))                                                       \
  X(event_query, hipEventQuery, (void* event))                                                                       \
  X(copy, hipMemcpyAsync, (void* to, const void* from, size_t bytes, int kind, void* stream))                        \
  X(copy_2d, hipMemcpy2DAsync,                                                                                       \
    (void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width, size_t rows, int kind,            \
     void* stream))                                                                                                  \
  X(copy_peer, hipMemcpyPeerAsync,                                                                                   \
    (void* to, int to_device, const void* from, int from_device, size_t bytes, void* stream))                        \
  X(host_register, hipHostRegister, (void* memory, size_t bytes, unsigned flags))                                    \
  X(host_unregister, hipHostUnregister, (void* memory))                                                              \
  X(host_device_pointer, hipHostGetDevicePointer, (void** pointer, void* memory, unsigned flags))                    \
  X(allocate, hipMalloc, (void** memory, size_t bytes))                                                              \
  X(release, hipFree, (void* memory))                                                                                \
  X(module_load, hipModuleLoadData, (void** module, const void* image))                                              \
  X(module_function, hipModuleGetFunction, (void** function, void* module, const char* name))                        \
  X(launch, hipModuleLaunchKernel,                                                                                   \
    (void* function, unsigned x, unsigned y, unsigned z, unsigned threads_x, unsigned threads_y, unsigned threads_z, \
     unsigned shared, void* stream, void** arguments, void** extra))                                                 \
  X(driver_version, hipDriverGetVersion, (int* version))                                                             \
  X(error_peek, hipPeekAtLastError, (void))                                                                          \
  X(error_take, hipGetLastError, (void))

#define RESIL_HIP_OPTIONAL(X)                                                         \
  X(exchange_capture_mode, hipThreadExchangeStreamCaptureMode, (int* mode))           \
  X(priority_range, hipDeviceGetStreamPriorityRange, (int* least, int* greatest))     \
  X(room, hipMemGetInfo, (size_t * unused, size_t * all))                             \
  X(ipc_export, hipIpcGetMemHandle, (IpcHandle * handle, void* memory))               \
  X(ipc_open, hipIpcOpenMemHandle, (void** memory, IpcHandle handle, unsigned flags)) \
  X(ipc_close, hipIpcCloseMemHandle, (void* memory))                                  \
  X(device_uuid, hipDeviceGetUuid, (Uuid * uuid, int device))                         \
  X(device_reaches, hipDeviceCanAccessPeer, (int* can, int device, int other))

struct Functions {
#define X(member, symbol, arguments) Result(*member) arguments;
  RESIL_HIP_NEEDED(X)
  RESIL_HIP_OPTIONAL(X)
#undef X
  const char* (*error_name)(Result result);  // hipGetErrorName
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
