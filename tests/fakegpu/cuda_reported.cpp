// SPDX-License-Identifier: Apache-2.0
//
// What CUPTI's stand-in (cupti.cpp) is told of: entry and exit of the driver's waits, queries, and of what makes and
// ends streams and events, with the arguments as generated_cuda_meta.h has them. Functions that the driver calls inside
// itself are not told.

#include <atomic>

#include "tests/fakegpu/cuda_driver.h"

extern "C" CUresult cuCtxGetCurrent(CUcontext*);

namespace {

using Told = void (*)(int exit, const char* name, const void* parameters, CUresult* result, uint64_t* correlation,
                      CUcontext context);
std::atomic<Told> told;

template <class Parameters, class Run>
CUresult report(const char* name, const Parameters& parameters, Run run) {
  const Told tell = told.load(std::memory_order_acquire);
  if (tell == nullptr) return run();
  CUcontext context = nullptr;
  cuCtxGetCurrent(&context);
  uint64_t correlation = 0;
  tell(0, name, &parameters, nullptr, &correlation, context);
  CUresult result = run();
  tell(1, name, &parameters, &result, &correlation, context);
  return result;
}

struct None {};
struct OneStream {
  CUstream stream;
};
struct OneEvent {
  CUevent event;
};
struct Record {
  CUevent event;
  CUstream stream;
  unsigned flags;
};
struct Create {
  CUstream* stream;
  unsigned flags;
  int priority;
};

}  // namespace

extern "C" __attribute__((visibility("default"))) void fakegpu_set_api_callback(Told tell) { told.store(tell); }

#undef cuCtxSynchronize
#undef cuStreamSynchronize
#undef cuStreamQuery
#undef cuStreamCreate
#undef cuStreamCreateWithPriority
#undef cuStreamDestroy_v2
#undef cuEventSynchronize
#undef cuEventQuery
#undef cuEventRecord
#undef cuEventRecordWithFlags
#undef cuEventDestroy_v2

extern "C" {
CUresult plain_cuCtxSynchronize();
CUresult plain_cuStreamSynchronize(CUstream);
CUresult plain_cuStreamQuery(CUstream);
CUresult plain_cuStreamCreate(CUstream*, unsigned);
CUresult plain_cuStreamCreateWithPriority(CUstream*, unsigned, int);
CUresult plain_cuStreamDestroy_v2(CUstream);
CUresult plain_cuEventSynchronize(CUevent);
CUresult plain_cuEventQuery(CUevent);
CUresult plain_cuEventRecord(CUevent, CUstream);
CUresult plain_cuEventRecordWithFlags(CUevent, CUstream, unsigned);
CUresult plain_cuEventDestroy_v2(CUevent);
}

API cuCtxSynchronize() {
  return report("cuCtxSynchronize", None{}, [] { return plain_cuCtxSynchronize(); });
}

API cuStreamSynchronize(CUstream stream) {
  return report("cuStreamSynchronize", OneStream{stream}, [=] { return plain_cuStreamSynchronize(stream); });
}

API cuStreamQuery(CUstream stream) {
  return report("cuStreamQuery", OneStream{stream}, [=] { return plain_cuStreamQuery(stream); });
}

API cuStreamCreate(CUstream* stream, unsigned flags) {
  return report("cuStreamCreate", Create{stream, flags, 0}, [=] { return plain_cuStreamCreate(stream, flags); });
}

API cuStreamCreateWithPriority(CUstream* stream, unsigned flags, int priority) {
  return report("cuStreamCreateWithPriority", Create{stream, flags, priority},
                [=] { return plain_cuStreamCreateWithPriority(stream, flags, priority); });
}

API cuStreamDestroy_v2(CUstream stream) {
  return report("cuStreamDestroy_v2", OneStream{stream}, [=] { return plain_cuStreamDestroy_v2(stream); });
}

API cuEventSynchronize(CUevent event) {
  return report("cuEventSynchronize", OneEvent{event}, [=] { return plain_cuEventSynchronize(event); });
}

API cuEventQuery(CUevent event) {
  return report("cuEventQuery", OneEvent{event}, [=] { return plain_cuEventQuery(event); });
}

API cuEventRecord(CUevent event, CUstream stream) {
  return report("cuEventRecord", Record{event, stream, 0}, [=] { return plain_cuEventRecord(event, stream); });
}

API cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned flags) {
  return report("cuEventRecordWithFlags", Record{event, stream, flags},
                [=] { return plain_cuEventRecordWithFlags(event, stream, flags); });
}

API cuEventDestroy_v2(CUevent event) {
  return report("cuEventDestroy_v2", OneEvent{event}, [=] { return plain_cuEventDestroy_v2(event); });
}
