// SPDX-License-Identifier: Apache-2.0
//
// What is used of CUPTI's callback interface (cupti_callbacks.h, cupti_driver_cbid.h, generated_cuda_meta.h): own
// declarations, so that building needs no CUDA. tests/unit/cupti_headers compares them with the headers. The interface
// is stable: callback ids are only ever added.
#pragma once

#include <cstdint>

namespace resil::gpu_runtime::cupti {

constexpr int kDriverDomain = 1;  // CUPTI_CB_DOMAIN_DRIVER_API
constexpr int kMaxLimit = 12, kMultipleSubscribers = 39;  // CUPTI_ERROR_

/// CUpti_CallbackData
struct CallbackData {
  int site;  ///< 0 entry, 1 exit
  const char* function;
  const void* params;  ///< struct of the arguments in order
  void* result;  ///< CUresult, on exit
  const char* symbol;
  void* context;
  uint32_t context_id;
  uint64_t* correlation;
  uint32_t correlation_id;
};

using Callback = void (*)(void* user, int domain, uint32_t id, const void* data);
using Subscribe = int (*)(void** subscriber, Callback callback, void* user);
using EnableCallback = int (*)(uint32_t enable, void* subscriber, int domain, uint32_t id);

enum class What : uint8_t {
  kStreamWait,
  kDeviceWait,
  kEventWait,
  kStreamQuery,
  kEventQuery,
  kRecord,
  kEventGone,
  kEventExported,
  kStreamMade,
  kStreamGone,
  kGraph
};

/// A function of the driver's that is looked at. In `params` a handle takes eight bytes, flags after handles the four
/// next.
struct Function {
  uint32_t id;
  What what;
  const char* name;
  bool per_thread = false;  ///< NULL is the per-thread default stream
  bool flags = false;  ///< records: the third parameter is flags; waits for a device: the first one is its context
};

constexpr Function kFunctions[] = {
    {17, What::kDeviceWait, "cuCtxSynchronize"},
    {800, What::kDeviceWait, "cuCtxSynchronize_v2", false, true},
    {126, What::kStreamWait, "cuStreamSynchronize"},
    {440, What::kStreamWait, "cuStreamSynchronize_ptsz", true},
    {125, What::kStreamQuery, "cuStreamQuery"},
    {439, What::kStreamQuery, "cuStreamQuery_ptsz", true},
    {121, What::kEventWait, "cuEventSynchronize"},
    {120, What::kEventQuery, "cuEventQuery"},
    {119, What::kRecord, "cuEventRecord"},
    {441, What::kRecord, "cuEventRecord_ptsz", true},
    {587, What::kRecord, "cuEventRecordWithFlags", false, true},
    {588, What::kRecord, "cuEventRecordWithFlags_ptsz", true, true},
    {122, What::kEventGone, "cuEventDestroy"},
    {325, What::kEventGone, "cuEventDestroy_v2"},
    {334, What::kEventExported, "cuIpcGetEventHandle"},
    {124, What::kStreamMade, "cuStreamCreate"},
    {367, What::kStreamMade, "cuStreamCreateWithPriority"},
    {127, What::kStreamGone, "cuStreamDestroy"},
    {326, What::kStreamGone, "cuStreamDestroy_v2"},
    {589, What::kGraph, "cuGraphAddEventRecordNode"},
    {595, What::kGraph, "cuGraphExecEventRecordNodeSetEvent"},
};
constexpr unsigned kFunctionCount = sizeof(kFunctions) / sizeof(kFunctions[0]);

constexpr const Function* function_of(uint32_t id) {
  for (const Function& function : kFunctions)
    if (function.id == id) return &function;
  return nullptr;
}

}  // namespace resil::gpu_runtime::cupti
