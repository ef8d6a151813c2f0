// SPDX-License-Identifier: Apache-2.0
//
// What is used of the CUDA driver API: own declarations, so that building needs no CUDA.
// tests/unit/gpu_headers_cuda.cpp compares them with <cuda.h>. Symbols are those of the default (legacy) stream; no
// stream but resil's own is ever named.
#pragma once

#include <cstddef>
#include <cstdint>

namespace resil::gpu::cuda {

using Result = int;  // CUresult
using DevicePtr = uint64_t;  // CUdeviceptr

constexpr Result kInvalidValue = 1, kNotInitialized = 3, kNotReady = 600;  // CUDA_ERROR_

/// Nothing more will ever come of the context, or of what was made in it.
constexpr bool is_lost(Result result) {
  switch (result) {
    case 4:  // deinitialized: the process is ending
    case 201:  // invalid context
    case 214:  // ECC uncorrectable
    case 220:  // NVLink uncorrectable
    case 400:  // invalid handle: streams and events of resil's own went with their context
    case 700:  // illegal address
    case 702:  // launch timeout
    case 709:  // context is destroyed
    case 710:  // assert
    case 714:  // hardware stack error
    case 715:  // illegal instruction
    case 716:  // misaligned address
    case 717:  // invalid address space
    case 718:  // invalid program counter
    case 719:  // launch failed
    case 999:  // unknown
      return true;
    default: return false;
  }
}

/// cuPointerGetAttributes, asked in runtimes.cpp.
using PointerGetAttributes = Result(unsigned count, int* attributes, void** values, DevicePtr address);
// CU_POINTER_ATTRIBUTE_; the last two since 10.2
constexpr int kAttributeContext = 1, kAttributeMemoryType = 2, kAttributeIsManaged = 8, kAttributeOrdinal = 9,
              kAttributeBase = 11, kAttributeBytes = 12;

/// CUDA_MEMCPY2D_v2
struct Memcpy2d {
  size_t from_x, from_y;
  int from_type;
  const void* from_host;
  DevicePtr from_device;
  void* from_array;
  size_t from_pitch;
  size_t to_x, to_y;
  int to_type;
  void* to_host;
  DevicePtr to_device;
  void* to_array;
  size_t to_pitch;
  size_t width, rows;
};

constexpr int kTypeHost = 1, kTypeDevice = 2;  // CU_MEMORYTYPE_
constexpr unsigned kStreamNonBlocking = 1;  // CU_STREAM_
constexpr unsigned kEventNoTiming = 2;  // CU_EVENT_DISABLE_TIMING
constexpr unsigned kRegisterPortable = 1, kRegisterMapped = 2;  // CU_MEMHOSTREGISTER_
constexpr int kCaptureRelaxed = 2;  // CU_STREAM_CAPTURE_MODE_
constexpr unsigned kIpcLazyPeerAccess = 1;  // CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS
constexpr Result kNotSupported = 801;  // CUDA_ERROR_NOT_SUPPORTED

/// CUipcMemHandle: given by value.
struct IpcHandle {
  char bytes[64];
};
/// CUuuid
struct Uuid {
  char bytes[16];
};

// X(member, symbol, arguments). All return CUresult.
#define RESIL_CUDA_NEEDED(X)                                                                                         \
  X(context_current, cuCtxGetCurrent, (void** context))                                                              \
  X(context_push, cuCtxPushCurrent_v2, (void* context))                                                              \
  X(context_pop, cuCtxPopCurrent_v2, (void** context))                                                               \
  X(context_device, cuCtxGetDevice, (int* device))                                                                   \
  X(primary_state, cuDevicePrimaryCtxGetState, (int device, unsigned* flags, int* active))                           \
  X(primary_retain, cuDevicePrimaryCtxRetain, (void** context, int device))                                          \
  X(stream_create, cuStreamCreateWithPriority, (void** stream, unsigned flags, int priority))                        \
  X(stream_destroy, cuStreamDestroy_v2, (void* stream))                                                              \
  X(stream_wait, cuStreamWaitEvent, (void* stream, void* event, unsigned flags))                                     \
  X(event_create, cuEventCreate, (void** event, unsigned flags))                                                     \
  X(event_destroy, cuEventDestroy_v2, (void* event))                                                                 \
  X(event_record, cuEventRecord, (void* event, void* stream))                                                        \
  X(event_query, cuEventQuery, (void* event))                                                                        \
  X(copy_down, cuMemcpyDtoHAsync_v2, (void* to, DevicePtr from, size_t bytes, void* stream))                         \
  X(copy_up, cuMemcpyHtoDAsync_v2, (DevicePtr to, const void* from, size_t bytes, void* stream))                     \
  X(copy_across, cuMemcpyDtoDAsync_v2, (DevicePtr to, DevicePtr from, size_t bytes, void* stream))                   \
  X(copy_2d, cuMemcpy2DAsync_v2, (const Memcpy2d* what, void* stream))                                               \
  X(copy_peer, cuMemcpyPeerAsync,                                                                                    \
    (DevicePtr to, void* to_context, DevicePtr from, void* from_context, size_t bytes, void* stream))                \
  X(host_register, cuMemHostRegister_v2, (void* memory, size_t bytes, unsigned flags))                               \
  X(host_unregister, cuMemHostUnregister, (void* memory))                                                            \
  X(host_device_pointer, cuMemHostGetDevicePointer_v2, (DevicePtr * pointer, void* memory, unsigned flags))          \
  X(allocate, cuMemAlloc_v2, (DevicePtr * memory, size_t bytes))                                                     \
  X(release, cuMemFree_v2, (DevicePtr memory))                                                                       \
  X(module_load, cuModuleLoadData, (void** module, const void* image))                                               \
  X(module_function, cuModuleGetFunction, (void** function, void* module, const char* name))                         \
  X(launch, cuLaunchKernel,                                                                                          \
    (void* function, unsigned x, unsigned y, unsigned z, unsigned threads_x, unsigned threads_y, unsigned threads_z, \
     unsigned shared, void* stream, void** arguments, void** extra))                                                 \
  X(error_name, cuGetErrorName, (Result result, const char** name))                                                  \
  X(driver_version, cuDriverGetVersion, (int* version))

// Newer than the oldest driver that is worked with (11.0 and 12.0, 10.1), or known by another name before.
#define RESIL_CUDA_OPTIONAL(X)                                                               \
  X(primary_release, cuDevicePrimaryCtxRelease_v2, (int device))                             \
  X(context_id, cuCtxGetId, (void* context, unsigned long long* id))                         \
  X(exchange_capture_mode, cuThreadExchangeStreamCaptureMode, (int* mode))                   \
  X(priority_range, cuCtxGetStreamPriorityRange, (int* least, int* greatest))                \
  X(room, cuMemGetInfo_v2, (size_t * unused, size_t * all))                                  \
  X(ipc_export, cuIpcGetMemHandle, (IpcHandle * handle, DevicePtr memory))                   \
  X(ipc_open, cuIpcOpenMemHandle_v2, (DevicePtr * memory, IpcHandle handle, unsigned flags)) \
  X(ipc_close, cuIpcCloseMemHandle, (DevicePtr memory))                                      \
  X(device_uuid, cuDeviceGetUuid_v2, (Uuid * uuid, int device))                              \
  X(device_reaches, cuDeviceCanAccessPeer, (int* can, int device, int other))

struct Functions {
#define X(member, symbol, arguments) Result(*member) arguments;
  RESIL_CUDA_NEEDED(X)
  RESIL_CUDA_OPTIONAL(X)
#undef X
};

}  // namespace resil::gpu::cuda
