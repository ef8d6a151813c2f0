// SPDX-License-Identifier: Apache-2.0
//
// The names themselves: the CUDA runtime's, for programs that use it as a shared library; the CUDA driver's, for those
// that link libcuda themselves; HIP's. What all three have is written once.
//
// Declared as the real ones are called: handles are pointers, results ints, whatever the header calls them. A return
// address is taken here, where the program's call comes in.

#include "detectors/gpu_runtime/names.h"

using namespace resil::gpu_runtime;

namespace {

/// `flags` as the stream has them, `rest` as the function takes them.
template <class... A>
int create(const Entry& entry, void** stream, unsigned flags, A... rest) {
  const auto real = next_of<void**, A...>(entry);
  if (real == nullptr) return entry.absent;
  const int result = real(stream, rest...);
  made_stream(entry.api, reinterpret_cast<const void*>(real), result, stream, flags);
  return result;
}

/// By the first letters of a name: what it belongs to, and what it answers where that is absent.
struct Family {
  Api api;
  int absent;
};
constexpr Family cuda = {Api::kCuda, kNoDevice}, cu = {Api::kCuda, kNotInitialized}, hip = {Api::kHip, kNoDevice};

}  // namespace

#define ENTRY(family, name) \
  Entry { #name, family.api, family.absent, __builtin_return_address(0) }

/// `own`: how the family ends the names of functions whose NULL is the thread's own default stream.
#define NAMES(family, own)                                                                                           \
  int family##StreamSynchronize(void* stream) {                                                                      \
    return wait_stream(ENTRY(family, family##StreamSynchronize), stream, stream);                                    \
  }                                                                                                                  \
  int family##StreamQuery(void* stream) { return query_stream(ENTRY(family, family##StreamQuery), stream, stream); } \
  int family##EventRecord(void* event, void* stream) {                                                               \
    return record_event(ENTRY(family, family##EventRecord), event, stream, stream, nullptr);                         \
  }                                                                                                                  \
  int family##EventRecordWithFlags(void* event, void* stream, unsigned flags) {                                      \
    return record_event(ENTRY(family, family##EventRecordWithFlags), event, stream, stream, &flags);                 \
  }                                                                                                                  \
  int family##StreamSynchronize##own(void* stream) {                                                                 \
    return wait_stream(ENTRY(family, family##StreamSynchronize##own), per_thread(family.api, stream), stream);       \
  }                                                                                                                  \
  int family##StreamQuery##own(void* stream) {                                                                       \
    return query_stream(ENTRY(family, family##StreamQuery##own), per_thread(family.api, stream), stream);            \
  }                                                                                                                  \
  int family##EventRecord##own(void* event, void* stream) {                                                          \
    return record_event(ENTRY(family, family##EventRecord##own), event, per_thread(family.api, stream), stream,      \
                        nullptr);                                                                                    \
  }                                                                                                                  \
  int family##EventSynchronize(void* event) { return wait_event(ENTRY(family, family##EventSynchronize), event); }   \
  int family##EventQuery(void* event) { return query_event(ENTRY(family, family##EventQuery), event); }              \
  int family##IpcGetEventHandle(void* handle, void* event) {                                                         \
    return export_event(ENTRY(family, family##IpcGetEventHandle), handle, event);                                    \
  }                                                                                                                  \
  int family##EventDestroy(void* event) { return destroy_event(ENTRY(family, family##EventDestroy), event); }        \
  int family##StreamDestroy(void* stream) { return destroy_stream(ENTRY(family, family##StreamDestroy), stream); }   \
  int family##StreamCreateWithPriority(void** stream, unsigned flags, int priority) {                                \
    return create(ENTRY(family, family##StreamCreateWithPriority), stream, flags, flags, priority);                  \
  }

#define PER_THREAD_RECORD_WITH_FLAGS(family)                                                                     \
  int family##EventRecordWithFlags_ptsz(void* event, void* stream, unsigned flags) {                             \
    return record_event(ENTRY(family, family##EventRecordWithFlags_ptsz), event, per_thread(family.api, stream), \
                        stream, &flags);                                                                         \
  }

#define RUNTIME_NAMES(family)                                                                                \
  int family##DeviceSynchronize() { return wait_device(ENTRY(family, family##DeviceSynchronize)); }          \
  int family##StreamCreate(void** stream) { return create(ENTRY(family, family##StreamCreate), stream, 0); } \
  int family##StreamCreateWithFlags(void** stream, unsigned flags) {                                         \
    return create(ENTRY(family, family##StreamCreateWithFlags), stream, flags, flags);                       \
  }

#pragma GCC visibility push(default)
extern "C" {

NAMES(cuda, _ptsz)
PER_THREAD_RECORD_WITH_FLAGS(cuda)
RUNTIME_NAMES(cuda)

NAMES(cu, _ptsz)
PER_THREAD_RECORD_WITH_FLAGS(cu)
int cuCtxSynchronize() { return wait_device(ENTRY(cu, cuCtxSynchronize)); }
int cuEventDestroy_v2(void* event) { return destroy_event(ENTRY(cu, cuEventDestroy_v2), event); }
int cuStreamDestroy_v2(void* stream) { return destroy_stream(ENTRY(cu, cuStreamDestroy_v2), stream); }
int cuStreamCreate(void** stream, unsigned flags) { return create(ENTRY(cu, cuStreamCreate), stream, flags, flags); }

NAMES(hip, _spt)
RUNTIME_NAMES(hip)
int hipCtxSynchronize() { return wait_device(ENTRY(hip, hipCtxSynchronize)); }
int hipExtStreamCreateWithCUMask(void** stream, unsigned words, const unsigned* mask) {
  return create(ENTRY(hip, hipExtStreamCreateWithCUMask), stream, 0, words, mask);
}

}  // extern "C"
#pragma GCC visibility pop
