// SPDX-License-Identifier: Apache-2.0
//
// The functions of libcuda and libamdhip64 that resil calls: those that both have, by the names that both give them,
// then each one's own (cuda_api.h, hip_api.h). Who needs them looks them up by dlsym in the library's handle, so that
// no call comes back through names that resil exports. Own declarations: building needs neither CUDA nor HIP.
// tests/unit/gpu_headers_cuda.cpp and gpu_headers_hip.cpp compare them with the vendors' headers.
#pragma once

#include <cstddef>
#include <cstdint>

namespace resil::gpu {

// X(member, CUDA's symbol, HIP's symbol, arguments). All return CUresult or hipError_t: int, 0 is success.
// What copies through pinned memory cannot do without (pipeline/gpu).
#define RESIL_GPU_NEEDED(X)                                                                                          \
  X(stream_create, cuStreamCreateWithPriority, hipStreamCreateWithPriority,                                          \
    (void** stream, unsigned flags, int priority))                                                                   \
  X(stream_destroy, cuStreamDestroy_v2, hipStreamDestroy, (void* stream))                                            \
  X(stream_wait, cuStreamWaitEvent, hipStreamWaitEvent, (void* stream, void* event, unsigned flags))                 \
  X(event_create, cuEventCreate, hipEventCreateWithFlags, (void** event, unsigned flags))                            \
  X(event_destroy, cuEventDestroy_v2, hipEventDestroy, (void* event))                                                \
  X(event_record, cuEventRecord, hipEventRecord, (void* event, void* stream))                                        \
  X(event_query, cuEventQuery, hipEventQuery, (void* event))                                                         \
  X(host_register, cuMemHostRegister_v2, hipHostRegister, (void* memory, size_t bytes, unsigned flags))              \
  X(host_unregister, cuMemHostUnregister, hipHostUnregister, (void* memory))                                         \
  X(module_load, cuModuleLoadData, hipModuleLoadData, (void** module, const void* image))                            \
  X(module_function, cuModuleGetFunction, hipModuleGetFunction, (void** function, void* module, const char* name))   \
  X(launch, cuLaunchKernel, hipModuleLaunchKernel,                                                                   \
    (void* function, unsigned x, unsigned y, unsigned z, unsigned threads_x, unsigned threads_y, unsigned threads_z, \
     unsigned shared, void* stream, void** arguments, void** extra))                                                 \
  X(driver_version, cuDriverGetVersion, hipDriverGetVersion, (int* version))

// Newer than the oldest drivers that are worked with (CUDA 10.1, 11.0 and 12.0), or asked for by detectors/gpu_runtime
// only.
#define RESIL_GPU_OPTIONAL(X)                                                                                  \
  X(exchange_capture_mode, cuThreadExchangeStreamCaptureMode, hipThreadExchangeStreamCaptureMode, (int* mode)) \
  X(priority_range, cuCtxGetStreamPriorityRange, hipDeviceGetStreamPriorityRange, (int* least, int* greatest)) \
  X(room, cuMemGetInfo_v2, hipMemGetInfo, (size_t * unused, size_t * all))                                     \
  X(device_reaches, cuDeviceCanAccessPeer, hipDeviceCanAccessPeer, (int* can, int device, int other))          \
  X(stream_synchronize, cuStreamSynchronize, hipStreamSynchronize, (void* stream))                             \
  X(stream_query, cuStreamQuery, hipStreamQuery, (void* stream))                                               \
  X(event_synchronize, cuEventSynchronize, hipEventSynchronize, (void* event))                                 \
  X(device_synchronize, cuCtxSynchronize, hipDeviceSynchronize, (void))                                        \
  X(is_capturing, cuStreamIsCapturing, hipStreamIsCapturing, (void* stream, int* status))

/// Null: this library has no such function.
struct DriverFunctions {
#define X(member, cuda, hip, arguments) int(*member) arguments;
  RESIL_GPU_NEEDED(X)
  RESIL_GPU_OPTIONAL(X)
#undef X
  constexpr bool complete() const {
    bool all = true;
#define X(member, cuda, hip, arguments) all = all && member != nullptr;
    RESIL_GPU_NEEDED(X)
#undef X
    return all;
  }
};

/// Flags and numbers that are equal in both.
constexpr unsigned kStreamNonBlocking = 1, kEventNoTiming = 2, kRegisterPortable = 1, kRegisterMapped = 2;
constexpr int kCaptureRelaxed = 2, kInvalidValue = 1, kNotInitialized = 3, kNotReady = 600, kNotSupported = 801;

/// CUipcMemHandle, hipIpcMemHandle_t: given by value.
struct DriverIpcHandle {
  char bytes[64];
};
/// CUuuid, hipUUID
struct DriverUuid {
  char bytes[16];
};

namespace cuda {
struct Functions;
}
namespace hip {
struct Functions;
}

/// Looks all of them up, newer names before older ones. `library`: the driver's, as dlopen gives it.
void look_up(void* library, cuda::Functions* functions);
void look_up(void* library, hip::Functions* functions);
/// Those of libcuda where it is in the process, else null: nothing is loaded or initialised. They are looked up once;
/// null too while another thread is at it.
const cuda::Functions* loaded_cuda();

}  // namespace resil::gpu
