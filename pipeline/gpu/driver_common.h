// SPDX-License-Identifier: Apache-2.0
//
// The half of a Driver (device.h) that is the same for CUDA and HIP, by the functions that both have.
#pragma once

#include <cstring>

#include "pipeline/gpu/device.h"
#include "shim/runtime/accelerators/driver_functions.h"

namespace resil::gpu {

/// The driver's functions, looked up the first time. False: the library is not there, or lacks some that are needed.
template <auto& functions>
bool look_up_once(Once& found, Runtime runtime) {
  void* library = runtime_library(runtime);
  return library != nullptr && found.find_out([library] {
    look_up(library, &functions);
    return functions.complete();
  });
}

/// Queries and allocations are forbidden to all threads while one captures a stream into a graph in the strictest mode,
/// unless the thread says that its calls have nothing to do with it.
inline void suspend_capture(const DriverFunctions& functions, Previous* previous) {
  previous->capture_mode = kCaptureRelaxed;
  previous->exchanged =
      functions.exchange_capture_mode != nullptr && functions.exchange_capture_mode(&previous->capture_mode) == 0;
}
inline void resume_capture(const DriverFunctions& functions, const Previous& previous) {
  int mode = previous.capture_mode;
  if (previous.exchanged) functions.exchange_capture_mode(&mode);
}

/// `own`: the other half.
template <auto& functions>
constexpr Driver with_common(Driver own) {
  own.stream_create = [](void** stream) {
    // Before the program's work: kernels of resil's are short, and messages wait for them.
    int least = 0, greatest = 0;
    if (functions.priority_range == nullptr || functions.priority_range(&least, &greatest) != 0) greatest = 0;
    return functions.stream_create(stream, kStreamNonBlocking, greatest);
  };
  own.stream_destroy = [](void* stream) { return functions.stream_destroy(stream); };
  own.stream_wait = [](void* stream, void* event) { return functions.stream_wait(stream, event, 0); };
  own.event_create = [](void** event) { return functions.event_create(event, kEventNoTiming); };
  own.event_destroy = [](void* event) { return functions.event_destroy(event); };
  own.event_record = [](void* event, void* stream) { return functions.event_record(event, stream); };
  own.event_query = [](void* event) { return functions.event_query(event); };
  own.pin = [](void* memory, size_t bytes) {
    return functions.host_register(memory, bytes, kRegisterPortable | kRegisterMapped);
  };
  own.unpin = [](void* memory) { return functions.host_unregister(memory); };
  own.room = [](size_t* unused, size_t* all) {
    return functions.room == nullptr ? kNotSupported : functions.room(unused, all);
  };
  own.module_load = [](void** module, const void* image) { return functions.module_load(module, image); };
  own.module_function = [](void** function, void* module, const char* name) {
    return functions.module_function(function, module, name);
  };
  own.launch = [](void* function, unsigned blocks, unsigned threads, unsigned shared, void* stream, void** arguments) {
    return functions.launch(function, blocks, 1, 1, threads, 1, 1, shared, stream, arguments, nullptr);
  };
  own.device_uuid = [](uint8_t* uuid, int ordinal) {
    if (functions.device_uuid == nullptr) return kNotSupported;
    DriverUuid it = {};
    const int result = functions.device_uuid(&it, ordinal);
    memcpy(uuid, it.bytes, sizeof(it.bytes));
    return result;
  };
  own.device_reaches = [](int* can, int ordinal, int other) {
    return functions.device_reaches == nullptr ? kNotSupported : functions.device_reaches(can, ordinal, other);
  };
  return own;
}

}  // namespace resil::gpu
