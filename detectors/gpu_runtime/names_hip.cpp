// SPDX-License-Identifier: Apache-2.0
//
// HIP's names.
//
// Declared as the real ones are called: handles are pointers, results ints, whatever the header calls them. A return
// address is taken here, where the program's call comes in.

#include "detectors/gpu_runtime/names.h"

using namespace resil::gpu_runtime;

namespace {

constexpr Api kApi = Api::kHip;

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

int hipStreamSynchronize(void* stream) { return wait_stream(ENTRY(hipStreamSynchronize), stream, stream); }
int hipStreamQuery(void* stream) { return query_stream(ENTRY(hipStreamQuery), stream, stream); }
int hipEventRecord(void* event, void* stream) {
  return record_event(ENTRY(hipEventRecord), event, stream, stream, nullptr);
}
int hipEventRecordWithFlags(void* event, void* stream, unsigned flags) {
  return record_event(ENTRY(hipEventRecordWithFlags), event, stream, stream, &flags);
}
int hipStreamSynchronize_spt(void* stream) {
  return wait_stream(ENTRY(hipStreamSynchronize_spt), per_thread(kApi, stream), stream);
}
int hipStreamQuery_spt(void* stream) {
  return query_stream(ENTRY(hipStreamQuery_spt), per_thread(kApi, stream), stream);
}
int hipEventRecord_spt(void* event, void* stream) {
  return record_event(ENTRY(hipEventRecord_spt), event, per_thread(kApi, stream), stream, nullptr);
}
int hipDeviceSynchronize() { return wait_device(ENTRY(hipDeviceSynchronize)); }
int hipCtxSynchronize() { return wait_device(ENTRY(hipCtxSynchronize)); }
int hipEventSynchronize(void* event) { return wait_event(ENTRY(hipEventSynchronize), event); }
int hipEventQuery(void* event) { return query_event(ENTRY(hipEventQuery), event); }
int hipIpcGetEventHandle(void* handle, void* event) { return export_event(ENTRY(hipIpcGetEventHandle), handle, event); }
int hipEventDestroy(void* event) { return destroy_event(ENTRY(hipEventDestroy), event); }
int hipStreamDestroy(void* stream) { return destroy_stream(ENTRY(hipStreamDestroy), stream); }
int hipStreamCreate(void** stream) { return create(ENTRY(hipStreamCreate), stream, 0); }
int hipStreamCreateWithFlags(void** stream, unsigned flags) {
  return create(ENTRY(hipStreamCreateWithFlags), stream, flags, flags);
}
int hipStreamCreateWithPriority(void** stream, unsigned flags, int priority) {
  return create(ENTRY(hipStreamCreateWithPriority), stream, flags, flags, priority);
}
int hipExtStreamCreateWithCUMask(void** stream, unsigned words, const unsigned* mask) {
  return create(ENTRY(hipExtStreamCreateWithCUMask), stream, 0, words, mask);
}
}  // extern "C"
#pragma GCC visibility pop
