/* SPDX-License-Identifier: Apache-2.0
 *
 * What the stand-in takes from cuda.h, for machines without it. With FAKEGPU_REAL_HEADER the same sources are compiled
 * against the real one, which must agree: functions by their declarations, values by the assertions at the end.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

// It finds no layout of these lists that it would leave.
// clang-format off
#define FAKEGPU_VALUES(X)                                                                                            \
  X(CUDA_SUCCESS, 0)                                                                                                 \
  X(CUDA_ERROR_INVALID_VALUE, 1)                                                                                     \
  X(CUDA_ERROR_OUT_OF_MEMORY, 2) X(CUDA_ERROR_NOT_INITIALIZED, 3) X(CUDA_ERROR_NO_DEVICE, 100)                       \
      X(CUDA_ERROR_INVALID_DEVICE, 101) X(CUDA_ERROR_INVALID_IMAGE, 200) X(CUDA_ERROR_INVALID_CONTEXT, 201)          \
          X(CUDA_ERROR_MAP_FAILED, 205) X(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, 217) X(CUDA_ERROR_INVALID_HANDLE, 400) \
              X(CUDA_ERROR_NOT_FOUND, 500) X(CUDA_ERROR_NO_BINARY_FOR_GPU, 209)                                      \
                  X(CUDA_ERROR_UNSUPPORTED_PTX_VERSION, 222) X(CUDA_ERROR_NOT_READY, 600)                            \
                      X(CUDA_ERROR_ILLEGAL_ADDRESS, 700) X(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, 704)              \
                          X(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED, 705) X(CUDA_ERROR_CONTEXT_IS_DESTROYED, 709)         \
                              X(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, 712)                                      \
                                  X(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, 713) X(CUDA_ERROR_NOT_PERMITTED, 800)     \
                                      X(CUDA_ERROR_NOT_SUPPORTED, 801) X(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, 900) \
                                          X(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, 901)                              \
                                              X(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, 906)
#define FAKEGPU_POINTER_ATTRIBUTES(X)                                                                             \
  X(CU_POINTER_ATTRIBUTE_CONTEXT, 1)                                                                              \
  X(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, 2)                                                                          \
  X(CU_POINTER_ATTRIBUTE_DEVICE_POINTER, 3) X(CU_POINTER_ATTRIBUTE_HOST_POINTER, 4)                               \
      X(CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, 6) X(CU_POINTER_ATTRIBUTE_BUFFER_ID, 7)                                 \
          X(CU_POINTER_ATTRIBUTE_IS_MANAGED, 8) X(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, 9)                         \
              X(CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, 10) X(CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, 11) \
                  X(CU_POINTER_ATTRIBUTE_RANGE_SIZE, 12) X(CU_POINTER_ATTRIBUTE_MAPPED, 13)                       \
                      X(CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, 14)                                            \
                          X(CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE, 15)                                  \
                              X(CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, 16) X(CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, 17)
#define FAKEGPU_DEVICE_ATTRIBUTES(X)                                                                            \
  X(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1)                                                               \
  X(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, 8)                                                         \
  X(CU_DEVICE_ATTRIBUTE_WARP_SIZE, 10) X(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 16)                          \
      X(CU_DEVICE_ATTRIBUTE_INTEGRATED, 18) X(CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY, 19)                      \
          X(CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, 33) X(CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT, 40)                   \
              X(CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 41) X(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 75) \
                  X(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 76) X(CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, 83) \
                      X(CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM, 91)                        \
                          X(CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, 115)                                    \
                              X(CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, 122)                         \
                                  X(CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR, 123)
#define FAKEGPU_OTHER_VALUES(X)                                                                                   \
  X(CU_MEMORYTYPE_HOST, 1)                                                                                        \
  X(CU_MEMORYTYPE_DEVICE, 2)                                                                                      \
  X(CU_MEMORYTYPE_ARRAY, 3) X(CU_MEMORYTYPE_UNIFIED, 4) X(CU_STREAM_NON_BLOCKING, 1) X(CU_EVENT_BLOCKING_SYNC, 1) \
      X(CU_EVENT_DISABLE_TIMING, 2) X(CU_STREAM_CAPTURE_STATUS_NONE, 0) X(CU_STREAM_CAPTURE_STATUS_ACTIVE, 1)     \
          X(CU_STREAM_CAPTURE_MODE_GLOBAL, 0) X(CU_STREAM_CAPTURE_MODE_RELAXED, 2) X(CU_STREAM_WAIT_VALUE_GEQ, 0) \
              X(CU_STREAM_WAIT_VALUE_EQ, 1) X(CU_STREAM_WAIT_VALUE_AND, 2) X(CU_STREAM_WAIT_VALUE_NOR, 3)         \
                  X(CU_GET_PROC_ADDRESS_SUCCESS, 0) X(CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND, 1)                    \
                      X(CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE, 3) X(CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS, 1)
// clang-format on

#ifdef FAKEGPU_REAL_HEADER

#define __CUDA_API_VERSION_INTERNAL  // every version by its own name
#include <cuda.h>
#define FAKEGPU_CHECK(name, value) static_assert(static_cast<long>(name) == value);
FAKEGPU_VALUES(FAKEGPU_CHECK)
FAKEGPU_POINTER_ATTRIBUTES(FAKEGPU_CHECK)
FAKEGPU_DEVICE_ATTRIBUTES(FAKEGPU_CHECK)
FAKEGPU_OTHER_VALUES(FAKEGPU_CHECK)

#else

#define FAKEGPU_NAME(name, value) name = value,
typedef enum { FAKEGPU_VALUES(FAKEGPU_NAME) CUDA_ERROR_UNKNOWN = 999 } CUresult;
typedef enum { FAKEGPU_POINTER_ATTRIBUTES(FAKEGPU_NAME) } CUpointer_attribute;
typedef enum { FAKEGPU_DEVICE_ATTRIBUTES(FAKEGPU_NAME) } CUdevice_attribute;
enum { FAKEGPU_OTHER_VALUES(FAKEGPU_NAME) };
typedef int CUmemorytype, CUfunction_attribute, CUjit_option, CUmemPool_attribute, CUdriverProcAddressQueryResult,
    CUstreamCaptureStatus, CUstreamCaptureMode;

typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef uint32_t cuuint32_t;
typedef uint64_t cuuint64_t;
typedef struct CUctx_st* CUcontext;
typedef struct CUstream_st* CUstream;
typedef struct CUevent_st* CUevent;
typedef struct CUmod_st* CUmodule;
typedef struct CUfunc_st* CUfunction;
typedef struct CUmemPoolHandle_st* CUmemoryPool;
typedef struct CUarray_st* CUarray;
typedef struct CUgraph_st* CUgraph;
typedef struct CUctxCreateParams_st CUctxCreateParams;
typedef struct {
  char bytes[16];
} CUuuid;
typedef struct {
  char reserved[64];
} CUipcMemHandle;
typedef struct {
  int type, id;
} CUmemLocation;
typedef unsigned long long CUmemGenericAllocationHandle;
typedef int CUmemAllocationGranularity_flags;
typedef struct {
  int type, requestedHandleTypes;
  CUmemLocation location;
  void* win32HandleMetaData;
  struct {
    unsigned char compressionType, gpuDirectRDMACapable;
    unsigned short usage;
    unsigned char reserved[4];
  } allocFlags;
} CUmemAllocationProp;
typedef struct {
  CUmemLocation location;
  int flags;
} CUmemAccessDesc;
typedef struct {
  int allocType, handleTypes;
  CUmemLocation location;
  void* win32SecurityAttributes;
  size_t maxSize;
  unsigned short usage;
  unsigned char reserved[54];
} CUmemPoolProps;
typedef struct {
  size_t srcXInBytes, srcY;
  CUmemorytype srcMemoryType;
  const void* srcHost;
  CUdeviceptr srcDevice;
  CUarray srcArray;
  size_t srcPitch;
  size_t dstXInBytes, dstY;
  CUmemorytype dstMemoryType;
  void* dstHost;
  CUdeviceptr dstDevice;
  CUarray dstArray;
  size_t dstPitch;
  size_t WidthInBytes, Height;
} CUDA_MEMCPY2D;
typedef void (*CUstreamCallback)(CUstream, CUresult, void*);
typedef void (*CUhostFn)(void*);

#define CU_STREAM_LEGACY ((CUstream)0x1)
#define CU_STREAM_PER_THREAD ((CUstream)0x2)
#define CU_LAUNCH_PARAM_END ((void*)0)
#define CU_LAUNCH_PARAM_BUFFER_POINTER ((void*)1)
#define CU_LAUNCH_PARAM_BUFFER_SIZE ((void*)2)

#endif
