// SPDX-License-Identifier: Apache-2.0
//
// What is used of the CUDA driver API beside driver_functions.h. Symbols are those of the default (legacy) stream; of
// the program's streams that one alone is ever named.
#pragma once

#include "shim/runtime/accelerators/driver_functions.h"

namespace resil::gpu::cuda {

using Result = int;  // CUresult
using DevicePtr = uint64_t;  // CUdeviceptr

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
constexpr int kAttributeContext = 1, kAttributeMemoryType = 2, kAttributeSynchronous = 6, kAttributeBuffer = 7,
              kAttributeIsManaged = 8, kAttributeOrdinal = 9, kAttributeBase = 11, kAttributeBytes = 12;
constexpr Result kContextDestroyed = 709;

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
constexpr unsigned kIpcLazyPeerAccess = 1;  // CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS

// X(member, symbol, older symbol or nullptr, arguments). All return CUresult.
#define RESIL_CUDA_NEEDED(X)                                                                                         \
  X(context_current, cuCtxGetCurrent, nullptr, (void** context))                                                     \
  X(context_push, cuCtxPushCurrent_v2, nullptr, (void* context))                                                     \
  X(context_pop, cuCtxPopCurrent_v2, nullptr, (void** context))                                                      \
  X(context_device, cuCtxGetDevice, nullptr, (int* device))                                                          \
  X(primary_state, cuDevicePrimaryCtxGetState, nullptr, (int device, unsigned* flags, int* active))                  \
  X(primary_retain, cuDevicePrimaryCtxRetain, nullptr, (void** context, int device))                                 \
  X(copy_down, cuMemcpyDtoHAsync_v2, nullptr, (void* to, DevicePtr from, size_t bytes, void* stream))                \
  X(copy_up, cuMemcpyHtoDAsync_v2, nullptr, (DevicePtr to, const void* from, size_t bytes, void* stream))            \
  X(copy_across, cuMemcpyDtoDAsync_v2, nullptr, (DevicePtr to, DevicePtr from, size_t bytes, void* stream))          \
  X(copy_2d, cuMemcpy2DAsync_v2, nullptr, (const Memcpy2d* what, void* stream))                                      \
  X(copy_peer, cuMemcpyPeerAsync, nullptr,                                                                           \
    (DevicePtr to, void* to_context, DevicePtr from, void* from_context, size_t bytes, void* stream))                \
  X(host_device_pointer, cuMemHostGetDevicePointer_v2, nullptr, (DevicePtr * pointer, void* memory, unsigned flags)) \
  X(allocate, cuMemAlloc_v2, nullptr, (DevicePtr * memory, size_t bytes))                                            \
  X(release, cuMemFree_v2, nullptr, (DevicePtr memory))                                                              \
  X(error_name, cuGetErrorName, nullptr, (Result result, const char** name))

// cuDeviceGetUuid tells no MIG instances apart (before 11.4).
#define RESIL_CUDA_OPTIONAL(X)                                                                          \
  X(primary_release, cuDevicePrimaryCtxRelease_v2, "cuDevicePrimaryCtxRelease", (int device))           \
  X(device_count, cuDeviceGetCount, nullptr, (int* count))                                              \
  X(device_get, cuDeviceGet, nullptr, (int* device, int ordinal))                                       \
  X(context_id, cuCtxGetId, nullptr, (void* context, unsigned long long* id))                           \
  X(pointer_attributes, cuPointerGetAttributes, nullptr,                                                \
    (unsigned count, int* attributes, void** values, DevicePtr address))                                \
  X(pointer_set, cuPointerSetAttribute, nullptr, (const void* value, int attribute, DevicePtr address)) \
  X(ipc_export, cuIpcGetMemHandle, nullptr, (DriverIpcHandle * handle, DevicePtr memory))               \
  X(ipc_open, cuIpcOpenMemHandle_v2, "cuIpcOpenMemHandle",                                              \
    (DevicePtr * memory, DriverIpcHandle handle, unsigned flags))                                       \
  X(ipc_close, cuIpcCloseMemHandle, nullptr, (DevicePtr memory))                                        \
  X(device_uuid, cuDeviceGetUuid_v2, "cuDeviceGetUuid", (DriverUuid * uuid, int device))                \
  X(write_value, cuStreamWriteValue64_v2, "cuStreamWriteValue64",                                       \
    (void* stream, DevicePtr address, uint64_t value, unsigned flags))                                  \
  X(fill, cuMemsetD32Async, nullptr, (DevicePtr address, unsigned value, size_t count, void* stream))   \
  X(stream_id, cuStreamGetId, nullptr, (void* stream, unsigned long long* id))                          \
  X(stream_context, cuStreamGetCtx, nullptr, (void* stream, void** context))

struct Functions : DriverFunctions {
#define X(member, symbol, older, arguments) Result(*member) arguments;
  RESIL_CUDA_NEEDED(X)
  RESIL_CUDA_OPTIONAL(X)
#undef X
  constexpr bool complete() const {
    bool all = DriverFunctions::complete();
#define X(member, symbol, older, arguments) all = all && member != nullptr;
    RESIL_CUDA_NEEDED(X)
#undef X
    return all;
  }
};

}  // namespace resil::gpu::cuda
