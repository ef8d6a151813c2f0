// SPDX-License-Identifier: Apache-2.0
//
// What the exported names have in common (exported.cpp): the preloaded library wins the name, so that
// the program's call comes here and goes on to the real function.
//
// In a process without the runtime somebody may still probe for a name and find it here: then the answer is the error
// that the real library gives where there is no device.
#pragma once

#include "detectors/gpu_runtime/call.h"
#include "shim/call/next.h"

namespace resil::gpu_runtime {

/// One exported function, in its call: whom it came from.
struct Entry {
  const char* name;
  Api api;
  int absent;  ///< result where there is no such runtime
  const void* return_address;
};

template <class... A>
using Function = int (*)(A...);

template <class... A>
Function<A...> next_of(const Entry& entry) {
  return reinterpret_cast<Function<A...>>(next_function(entry.name, entry.return_address));
}

/// Nothing is to be done but to go on.
inline bool passive() { return !running.load(std::memory_order_relaxed) || inside != 0; }

int wait_stream(const Entry& entry, void* stream, void* given);
int wait_event(const Entry& entry, void* event);
int wait_device(const Entry& entry);
int query_stream(const Entry& entry, void* stream, void* given);
int query_event(const Entry& entry, void* event);
/// `flags`: null when the function has none.
int record_event(const Entry& entry, void* event, void* stream, void* given, const unsigned* flags);
int destroy_event(const Entry& entry, void* event);
int export_event(const Entry& entry, void* handle, void* event);
/// After the real function made a stream, `result` says how.
void made_stream(Api api, const void* function, int result, void** stream, unsigned flags);
int destroy_stream(const Entry& entry, void* stream);

/// What NULL names in functions for per-thread default streams.
inline void* per_thread(Api api, void* stream) {
  if (stream != nullptr) return stream;
  stream_per_thread_seen(api);
  return kPerThreadStream;
}

}  // namespace resil::gpu_runtime
