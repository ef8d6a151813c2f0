// SPDX-License-Identifier: Apache-2.0
//
// The CUDA runtime's names, for programs that use it as a shared library.
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
  Entry { #name, kApi, kNoDevice, __builtin_return_address(0) }

#pragma GCC visibility push(default)
extern "C" {

int cudaStreamSynchronize(void* stream) { return wait_stream(ENTRY(cudaStreamSynchronize), stream, stream); }
int cudaStreamQuery(void* stream) { return query_stream(ENTRY(cudaStreamQuery), stream, stream); }
int cudaEventRecord(void* event, void* stream) {
  return record_event(ENTRY(cudaEventRecord), event, stream, stream, nullptr);
}
int cudaEventRecordWithFlags(void* event, void* stream, unsigned flags) {
  return record_event(ENTRY(cudaEventRecordWithFlags), event, stream, stream, &flags);
}
int cudaStreamSynchronize_ptsz(void* stream) {
  return wait_stream(ENTRY(cudaStreamSynchronize_ptsz), per_thread(kApi, stream), stream);
}
int cudaStreamQuery_ptsz(void* stream) {
  return query_stream(ENTRY(cudaStreamQuery_ptsz), per_thread(kApi, stream), stream);
}
int cudaEventRecord_ptsz(void* event, void* stream) {
  return record_event(ENTRY(cudaEventRecord_ptsz), event, per_thread(kApi, stream), stream, nullptr);
}
int cudaEventRecordWithFlags_ptsz(void* event, void* stream, unsigned flags) {
  return record_event(ENTRY(cudaEventRecordWithFlags_ptsz), event, per_thread(kApi, stream), stream, &flags);
}
int cudaDeviceSynchronize() { return wait_device(ENTRY(cudaDeviceSynchronize)); }
int cudaEventSynchronize(void* event) { return wait_event(ENTRY(cudaEventSynchronize), event); }
int cudaEventQuery(void* event) { return query_event(ENTRY(cudaEventQuery), event); }
int cudaIpcGetEventHandle(void* handle, void* event) {
  return export_event(ENTRY(cudaIpcGetEventHandle), handle, event);
}
int cudaEventDestroy(void* event) { return destroy_event(ENTRY(cudaEventDestroy), event); }
int cudaStreamDestroy(void* stream) { return destroy_stream(ENTRY(cudaStreamDestroy), stream); }
int cudaStreamCreate(void** stream) { return create(ENTRY(cudaStreamCreate), stream, 0); }
int cudaStreamCreateWithFlags(void** stream, unsigned flags) {
  return create(ENTRY(cudaStreamCreateWithFlags), stream, flags, flags);
}
int cudaStreamCreateWithPriority(void** stream, unsigned flags, int priority) {
  return create(ENTRY(cudaStreamCreateWithPriority), stream, flags, flags, priority);
}
}  // extern "C"
#pragma GCC visibility pop
