// SPDX-License-Identifier: Apache-2.0
//
// Our own declarations of the CUDA driver API against NVIDIA's. All is decided when this compiles.

#include <cuda.h>

#include "shim/runtime/accelerators/cuda_api.h"
#include "tests/unit/gpu_headers.h"

using namespace resil::gpu;
using namespace resil::gpu::cuda;

// In <cuda.h> a name may be a macro that has the version's ending; given to ALIKE, it is expanded once.
#define ALIKE(member, symbol) static_assert(AlikeFunction<decltype(Functions::member), decltype(&symbol)>::value);
#define X(member, symbol, hip, arguments) ALIKE(member, symbol)
RESIL_GPU_NEEDED(X)
#undef X
#define X(member, symbol, older, arguments) ALIKE(member, symbol)
RESIL_CUDA_NEEDED(X)
#undef X
ALIKE(primary_release, cuDevicePrimaryCtxRelease_v2)
ALIKE(priority_range, cuCtxGetStreamPriorityRange)
ALIKE(exchange_capture_mode, cuThreadExchangeStreamCaptureMode)
#if CUDA_VERSION >= 12000
ALIKE(context_id, cuCtxGetId)
ALIKE(stream_id, cuStreamGetId)
ALIKE(write_value, cuStreamWriteValue64)  // _v2, by a macro
#endif
ALIKE(stream_synchronize, cuStreamSynchronize)
ALIKE(stream_query, cuStreamQuery)
ALIKE(event_synchronize, cuEventSynchronize)
ALIKE(device_synchronize, cuCtxSynchronize)
ALIKE(is_capturing, cuStreamIsCapturing)
ALIKE(fill, cuMemsetD32Async)
ALIKE(stream_context, cuStreamGetCtx)

SAME_PLACE(Memcpy2d, from_x, CUDA_MEMCPY2D, srcXInBytes);
SAME_PLACE(Memcpy2d, from_y, CUDA_MEMCPY2D, srcY);
SAME_PLACE(Memcpy2d, from_type, CUDA_MEMCPY2D, srcMemoryType);
SAME_PLACE(Memcpy2d, from_host, CUDA_MEMCPY2D, srcHost);
SAME_PLACE(Memcpy2d, from_device, CUDA_MEMCPY2D, srcDevice);
SAME_PLACE(Memcpy2d, from_array, CUDA_MEMCPY2D, srcArray);
SAME_PLACE(Memcpy2d, from_pitch, CUDA_MEMCPY2D, srcPitch);
SAME_PLACE(Memcpy2d, to_x, CUDA_MEMCPY2D, dstXInBytes);
SAME_PLACE(Memcpy2d, to_y, CUDA_MEMCPY2D, dstY);
SAME_PLACE(Memcpy2d, to_type, CUDA_MEMCPY2D, dstMemoryType);
SAME_PLACE(Memcpy2d, to_host, CUDA_MEMCPY2D, dstHost);
SAME_PLACE(Memcpy2d, to_device, CUDA_MEMCPY2D, dstDevice);
SAME_PLACE(Memcpy2d, to_array, CUDA_MEMCPY2D, dstArray);
SAME_PLACE(Memcpy2d, to_pitch, CUDA_MEMCPY2D, dstPitch);
SAME_PLACE(Memcpy2d, width, CUDA_MEMCPY2D, WidthInBytes);
SAME_PLACE(Memcpy2d, rows, CUDA_MEMCPY2D, Height);
static_assert(sizeof(Memcpy2d) == sizeof(CUDA_MEMCPY2D));

static_assert(kTypeHost == CU_MEMORYTYPE_HOST && kTypeDevice == CU_MEMORYTYPE_DEVICE);
static_assert(kStreamNonBlocking == CU_STREAM_NON_BLOCKING && kEventNoTiming == CU_EVENT_DISABLE_TIMING);
static_assert(kRegisterPortable == CU_MEMHOSTREGISTER_PORTABLE && kRegisterMapped == CU_MEMHOSTREGISTER_DEVICEMAP);
static_assert(AlikeFunction<decltype(Functions::room), decltype(&cuMemGetInfo)>::value);  // _v2, by a macro
static_assert(AlikeFunction<decltype(Functions::ipc_export), decltype(&cuIpcGetMemHandle)>::value);
static_assert(AlikeFunction<decltype(Functions::ipc_open), decltype(&cuIpcOpenMemHandle)>::value);  // _v2, by a macro
static_assert(AlikeFunction<decltype(Functions::ipc_close), decltype(&cuIpcCloseMemHandle)>::value);
static_assert(AlikeFunction<decltype(Functions::device_uuid), decltype(&cuDeviceGetUuid)>::value);
static_assert(AlikeFunction<decltype(Functions::device_reaches), decltype(&cuDeviceCanAccessPeer)>::value);
static_assert(kIpcLazyPeerAccess == CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS && kNotSupported == CUDA_ERROR_NOT_SUPPORTED);
static_assert(kCaptureRelaxed == CU_STREAM_CAPTURE_MODE_RELAXED);
static_assert(AlikeFunction<PointerGetAttributes*, decltype(&cuPointerGetAttributes)>::value);
static_assert(kAttributeMemoryType == CU_POINTER_ATTRIBUTE_MEMORY_TYPE &&
              kAttributeIsManaged == CU_POINTER_ATTRIBUTE_IS_MANAGED &&
              kAttributeContext == CU_POINTER_ATTRIBUTE_CONTEXT &&
              kAttributeOrdinal == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL &&
              kAttributeBase == CU_POINTER_ATTRIBUTE_RANGE_START_ADDR &&
              kAttributeBytes == CU_POINTER_ATTRIBUTE_RANGE_SIZE);
static_assert(kInvalidValue == CUDA_ERROR_INVALID_VALUE && kNotInitialized == CUDA_ERROR_NOT_INITIALIZED &&
              kNotReady == CUDA_ERROR_NOT_READY);
static_assert(is_lost(CUDA_ERROR_DEINITIALIZED) && is_lost(CUDA_ERROR_INVALID_CONTEXT) &&
              is_lost(CUDA_ERROR_ECC_UNCORRECTABLE) && is_lost(CUDA_ERROR_NVLINK_UNCORRECTABLE) &&
              is_lost(CUDA_ERROR_INVALID_HANDLE) && is_lost(CUDA_ERROR_ILLEGAL_ADDRESS) &&
              is_lost(CUDA_ERROR_LAUNCH_TIMEOUT) && is_lost(CUDA_ERROR_CONTEXT_IS_DESTROYED) &&
              is_lost(CUDA_ERROR_ASSERT) && is_lost(CUDA_ERROR_HARDWARE_STACK_ERROR) &&
              is_lost(CUDA_ERROR_ILLEGAL_INSTRUCTION) && is_lost(CUDA_ERROR_MISALIGNED_ADDRESS) &&
              is_lost(CUDA_ERROR_INVALID_ADDRESS_SPACE) && is_lost(CUDA_ERROR_INVALID_PC) &&
              is_lost(CUDA_ERROR_LAUNCH_FAILED) && is_lost(CUDA_ERROR_UNKNOWN));
static_assert(!is_lost(CUDA_SUCCESS) && !is_lost(CUDA_ERROR_NOT_READY) && !is_lost(CUDA_ERROR_OUT_OF_MEMORY) &&
              !is_lost(CUDA_ERROR_INVALID_VALUE) && !is_lost(CUDA_ERROR_NOT_FOUND) &&
              !is_lost(CUDA_ERROR_NO_BINARY_FOR_GPU));

int main() {}
