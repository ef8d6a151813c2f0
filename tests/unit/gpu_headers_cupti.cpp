// SPDX-License-Identifier: Apache-2.0
//
// Own declarations of CUPTI (detectors/gpu_runtime/cupti_api.h) against its headers. That it compiles is the test.

#include <cuda.h>

#include <cupti.h>

#include <cstddef>
#include <string_view>

#include "detectors/gpu_runtime/cupti_api.h"

namespace ours = resil::gpu_runtime::cupti;

#define SAME_MEMBER(own, theirs) \
  static_assert(offsetof(ours::CallbackData, own) == offsetof(CUpti_CallbackData, theirs))
SAME_MEMBER(site, callbackSite);
SAME_MEMBER(function, functionName);
SAME_MEMBER(params, functionParams);
SAME_MEMBER(result, functionReturnValue);
SAME_MEMBER(symbol, symbolName);
SAME_MEMBER(context, context);
SAME_MEMBER(context_id, contextUid);
SAME_MEMBER(correlation, correlationData);
SAME_MEMBER(correlation_id, correlationId);
static_assert(sizeof(ours::CallbackData) == sizeof(CUpti_CallbackData));
static_assert(CUPTI_API_ENTER == 0 && CUPTI_API_EXIT == 1);
static_assert(ours::kDriverDomain == CUPTI_CB_DOMAIN_DRIVER_API);
static_assert(ours::kMaxLimit == CUPTI_ERROR_MAX_LIMIT_REACHED);
#if CUPTI_API_VERSION >= 18
static_assert(ours::kMultipleSubscribers == CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED);
#endif

constexpr bool has(unsigned id, std::string_view name) {
  const ours::Function* function = ours::function_of(id);
  return function != nullptr && function->name == name;
}
#define SAME_ID(name) static_assert(has(CUPTI_DRIVER_TRACE_CBID_##name, #name))
SAME_ID(cuCtxSynchronize);
SAME_ID(cuStreamSynchronize);
SAME_ID(cuStreamSynchronize_ptsz);
SAME_ID(cuStreamQuery);
SAME_ID(cuStreamQuery_ptsz);
SAME_ID(cuEventSynchronize);
SAME_ID(cuEventQuery);
SAME_ID(cuEventRecord);
SAME_ID(cuEventRecord_ptsz);
SAME_ID(cuEventDestroy);
SAME_ID(cuEventDestroy_v2);
SAME_ID(cuIpcGetEventHandle);
SAME_ID(cuStreamCreate);
SAME_ID(cuStreamCreateWithPriority);
SAME_ID(cuStreamDestroy);
SAME_ID(cuStreamDestroy_v2);
#if CUDA_VERSION >= 11010
SAME_ID(cuEventRecordWithFlags);
SAME_ID(cuEventRecordWithFlags_ptsz);
SAME_ID(cuGraphAddEventRecordNode);
SAME_ID(cuGraphExecEventRecordNodeSetEvent);
#endif
#if CUDA_VERSION >= 13000
SAME_ID(cuCtxSynchronize_v2);
static_assert(offsetof(cuCtxSynchronize_v2_params, ctx) == 0);
#endif

// Where cupti.cpp reads the arguments.
static_assert(offsetof(cuStreamSynchronize_params, hStream) == 0 && offsetof(cuStreamQuery_params, hStream) == 0);
static_assert(offsetof(cuEventSynchronize_params, hEvent) == 0 && offsetof(cuEventQuery_params, hEvent) == 0);
static_assert(offsetof(cuEventRecord_params, hEvent) == 0 && offsetof(cuEventRecord_params, hStream) == 8);
static_assert(offsetof(cuEventRecordWithFlags_params, flags) == 16);
static_assert(offsetof(cuIpcGetEventHandle_params, event) == 8);
static_assert(offsetof(cuStreamCreate_params, phStream) == 0 && offsetof(cuStreamCreate_params, Flags) == 8);
static_assert(offsetof(cuStreamCreateWithPriority_params, phStream) == 0 &&
              offsetof(cuStreamCreateWithPriority_params, flags) == 8);
static_assert(offsetof(cuStreamDestroy_params, hStream) == 0 && offsetof(cuEventDestroy_params, hEvent) == 0);

int main() { return 0; }
