// SPDX-License-Identifier: Apache-2.0
//
// The CUDA driver's names, for programs that link libcuda themselves.
//
// Declared as the real ones are called: handles are pointers, results ints, whatever the header calls them. A return
// address is taken here, where the program's call comes in.

#include "detectors/gpu_runtime/names.h"

using namespace resil::gpu_runtime;

namespace {

constexpr Api kApi = Api::kCuda;

/// `flags` as the stream has them, `rest` as the function takes them.
template <class... A>
int create(const Entry& entry, void** stream, unsigned flags, A... rest) {
  const auto real = next_of<void**, A...>(entry);
  if (real == nullptr)
    return entry.absent;
  const int result = real(stream, rest...);
  made_stream(kApi, reinterpret_cast<const void*>(real), result, stream, flags);
  return result;
}

}  // namespace

#define ENTRY(name) \
  Entry { #name, kApi, kNotInitialized, __builtin_return_address(0) }

#pragma GCC visibility push(default)
extern "C" {

int cuStreamSynchronize(void* stream) { return wait_stream(ENTRY(cuStreamSynchronize), stream, stream); }
int cuStreamQuery(void* stream) { return query_stream(ENTRY(cuStreamQuery), stream, stream); }
int cuEventRecord(void* event, void* stream) {
  return record_event(ENTRY(cuEventRecord), event, stream, stream, nullptr);
}
int cuEventRecordWithFlags(void* event, void* stream, unsigned flags) {
  return record_event(ENTRY(cuEventRecordWithFlags), event, stream, stream, &flags);
}
int cuStreamSynchronize_ptsz(void* stream) {
  return wait_stream(ENTRY(cuStreamSynchronize_ptsz), per_thread(kApi, stream), stream);
}
int cuStreamQuery_ptsz(void* stream) {
  return query_stream(ENTRY(cuStreamQuery_ptsz), per_thread(kApi, stream), stream);
}
int cuEventRecord_ptsz(void* event, void* stream) {
  return record_event(ENTRY(cuEventRecord_ptsz), event, per_thread(kApi, stream), stream, nullptr);
}
int cuEventRecordWithFlags_ptsz(void* event, void* stream, unsigned flags) {
  return record_event(ENTRY(cuEventRecordWithFlags_ptsz), event, per_thread(kApi, stream), stream, &flags);
}
int cuCtxSynchronize() { return wait_device(ENTRY(cuCtxSynchronize)); }
int cuEventSynchronize(void* event) { return wait_event(ENTRY(cuEventSynchronize), event); }
int cuEventQuery(void* event) { return query_event(ENTRY(cuEventQuery), event); }
int cuIpcGetEventHandle(void* handle, void* event) { return export_event(ENTRY(cuIpcGetEventHandle), handle, event); }
int cuEventDestroy(void* event) { return destroy_event(ENTRY(cuEventDestroy), event); }
int cuEventDestroy_v2(void* event) { return destroy_event(ENTRY(cuEventDestroy_v2), event); }
int cuStreamDestroy(void* stream) { return destroy_stream(ENTRY(cuStreamDestroy), stream); }
int cuStreamDestroy_v2(void* stream) { return destroy_stream(ENTRY(cuStreamDestroy_v2), stream); }
int cuStreamCreate(void** stream, unsigned flags) { return create(ENTRY(cuStreamCreate), stream, flags, flags); }
int cuStreamCreateWithPriority(void** stream, unsigned flags, int priority) {
  return create(ENTRY(cuStreamCreateWithPriority), stream, flags, flags, priority);
}
}  // extern "C"
#pragma GCC visibility pop
