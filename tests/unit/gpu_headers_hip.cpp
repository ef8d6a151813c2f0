// SPDX-License-Identifier: Apache-2.0
//
// Our own declarations of HIP and ROCr against AMD's. All is decided when this compiles.

#define __HIP_PLATFORM_AMD__ 1
#define __HIP_DISABLE_CPP_FUNCTIONS__ 1  // hipMalloc and others are templates too
#include <hip/hip_runtime_api.h>
#include <hsa/hsa_ext_amd.h>

#include "shim/runtime/accelerators/cuda_api.h"
#include "shim/runtime/accelerators/hip_api.h"
#include "tests/unit/gpu_headers.h"

#if HIP_VERSION_MAJOR * 100 + HIP_VERSION_MINOR < 506  // as later headers declare it
hipError_t hipStreamGetDevice(hipStream_t stream, hipDevice_t* device);
#endif

using namespace resil::gpu;
using namespace resil::gpu::hip;

#define X(member, cuda, symbol, arguments) \
  static_assert(AlikeFunction<decltype(Functions::member), decltype(&symbol)>::value);
RESIL_GPU_NEEDED(X)
RESIL_GPU_OPTIONAL(X)
#undef X
#define X(member, symbol, arguments) \
  static_assert(AlikeFunction<decltype(Functions::member), decltype(&symbol)>::value);
RESIL_HIP_NEEDED(X)
RESIL_HIP_OPTIONAL(X)
#undef X
static_assert(AlikeFunction<decltype(Functions::error_name), decltype(&hipGetErrorName)>::value);

SAME_PLACE(Attributes, device, hipPointerAttribute_t, device);
SAME_PLACE(Attributes, managed, hipPointerAttribute_t, isManaged);
static_assert(sizeof(Attributes) >= sizeof(hipPointerAttribute_t));
static_assert(kUp == hipMemcpyHostToDevice && kDown == hipMemcpyDeviceToHost && kAcross == hipMemcpyDeviceToDevice);
static_assert(kStreamNonBlocking == hipStreamNonBlocking && kEventNoTiming == hipEventDisableTiming);
static_assert(kRegisterPortable == hipHostRegisterPortable && kRegisterMapped == hipHostRegisterMapped);
static_assert(kInvalidValue == hipErrorInvalidValue && kNotSupported == hipErrorNotSupported);
static_assert(hipIpcMemLazyEnablePeerAccess == 0 || hipIpcMemLazyEnablePeerAccess == 1);
static_assert(kCaptureRelaxed == hipStreamCaptureModeRelaxed);

// The numbers are CUDA's.
using resil::gpu::cuda::is_lost;
static_assert(resil::gpu::kNotReady == hipErrorNotReady);
static_assert(is_lost(hipErrorDeinitialized) && is_lost(hipErrorInvalidContext) && is_lost(hipErrorECCNotCorrectable) &&
              is_lost(hipErrorInvalidHandle) && is_lost(hipErrorIllegalAddress) && is_lost(hipErrorLaunchTimeOut) &&
              is_lost(hipErrorContextIsDestroyed) && is_lost(hipErrorAssert) && is_lost(hipErrorLaunchFailure) &&
              is_lost(hipErrorUnknown));
static_assert(!is_lost(hipSuccess) && !is_lost(hipErrorNotReady) && !is_lost(hipErrorOutOfMemory) &&
              !is_lost(hipErrorInvalidValue) && !is_lost(hipErrorNotFound) && !is_lost(hipErrorNoBinaryForGpu));

// ROCr
static_assert(AlikeFunction<HsaPointerInfo*, decltype(&hsa_amd_pointer_info)>::value);
static_assert(AlikeFunction<HsaAgentInfo*, int (*)(uint64_t, hsa_agent_info_t, void*)>::value &&
              sizeof(hsa_agent_t) == sizeof(uint64_t));
SAME_PLACE(HsaInfo, bytes, hsa_amd_pointer_info_t, size);
SAME_PLACE(HsaInfo, type, hsa_amd_pointer_info_t, type);
SAME_PLACE(HsaInfo, agent_address, hsa_amd_pointer_info_t, agentBaseAddress);
SAME_PLACE(HsaInfo, host_address, hsa_amd_pointer_info_t, hostBaseAddress);
SAME_PLACE(HsaInfo, allocation_bytes, hsa_amd_pointer_info_t, sizeInBytes);
SAME_PLACE(HsaInfo, owner, hsa_amd_pointer_info_t, agentOwner);
static_assert(kHsaUnknown == HSA_EXT_POINTER_TYPE_UNKNOWN && kHsaLocked == HSA_EXT_POINTER_TYPE_LOCKED &&
              kHsaNotInitialized == int{HSA_STATUS_ERROR_NOT_INITIALIZED} && kHsaAgentDevice == HSA_AGENT_INFO_DEVICE &&
              kHsaCpu == HSA_DEVICE_TYPE_CPU);

int main() {}
