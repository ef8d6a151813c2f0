// SPDX-License-Identifier: Apache-2.0
//
// HIP by its runtime's library. Its functions initialise the runtime: they are called only once ROCr has said that an
// address is a device's, so that the program has initialised it. A failing function sets the error that the program's
// hipGetLastError gives: one that was not there before is taken away again.

#include <dlfcn.h>

#include <cstring>

#include "pipeline/gpu/device.h"
#include "shim/runtime/accelerators/hip_api.h"

namespace resil::gpu {

namespace {

hip::Functions functions;
Once found;

template <class Function>
void look_up(void* library, const char* name, Function** to) {
  *to = reinterpret_cast<Function*>(dlsym(library, name));
}

bool ready() {
  void* library = runtime_library(kHipRuntime);
  return library != nullptr && found.get([library] {
#define X(member, symbol, arguments) look_up(library, #symbol, &functions.member);
    RESIL_HIP_NEEDED(X)
    RESIL_HIP_OPTIONAL(X)
#undef X
    look_up(library, "hipGetErrorName", &functions.error_name);
    bool all = true;
#define X(member, symbol, arguments) all = all && functions.member != nullptr;
    RESIL_HIP_NEEDED(X)
#undef X
    return all;
  });
}

/// Memory that ROCr knows and HIP does not (a program of OpenMP's beside it) fails here.
bool place(const Said& said, uintptr_t address, Place* place) {
  *place = {nullptr, 0, -1};
  if (said.memory != Memory::kDevice && said.memory != Memory::kManaged) return false;
  const int before = functions.error_peek();
  hip::Attributes attributes = {};
  attributes.device = -1;
  const int result = functions.pointer_attributes(&attributes, reinterpret_cast<const void*>(address));
  if (result == 0) place->ordinal = attributes.device;
  else if (before == 0) functions.error_take();
  return place->ordinal >= 0;
}

int enter(const Device& device, Entered* entered) {
  *entered = {};
  entered->error = functions.error_peek();
  int result = functions.device_get(&entered->device);
  if (result == 0 && entered->device != device.place.ordinal) {
    result = functions.device_set(device.place.ordinal);
    entered->changed = result == 0;
  }
  if (result != 0) {
    if (entered->error == 0) functions.error_take();
    return result;
  }
  entered->capture_mode = hip::kCaptureRelaxed;
  entered->exchanged =
      functions.exchange_capture_mode != nullptr && functions.exchange_capture_mode(&entered->capture_mode) == 0;
  return 0;
}

void leave(const Device&, const Entered& entered) {
  int mode = entered.capture_mode;
  if (entered.exchanged) functions.exchange_capture_mode(&mode);
  if (entered.changed) functions.device_set(entered.device);
  if (entered.error == 0) functions.error_take();
}

/// Before the program's work: kernels of resil's are short, and messages wait for them.
int stream_create(void** stream) {
  int least = 0, greatest = 0;
  if (functions.priority_range == nullptr || functions.priority_range(&least, &greatest) != 0) greatest = 0;
  return functions.stream_create(stream, hip::kStreamNonBlocking, greatest);
}

int copy_peer(const Device& to_device, void* to, const Device& from_device, const void* from, size_t bytes,
              void* stream) {
  if (to_device.place.ordinal == from_device.place.ordinal)
    return functions.copy(to, from, bytes, hip::kAcross, stream);
  return functions.copy_peer(to, to_device.place.ordinal, from, from_device.place.ordinal, bytes, stream);
}

int launch(void* function, unsigned blocks, unsigned threads, unsigned shared, void* stream, void** arguments) {
  return functions.launch(function, blocks, 1, 1, threads, 1, 1, shared, stream, arguments, nullptr);
}

int ipc_export(uint8_t* handle, void* memory) {
  if (functions.ipc_export == nullptr) return hip::kNotSupported;
  hip::IpcHandle made = {};
  const int result = functions.ipc_export(&made, memory);
  memcpy(handle, made.bytes, sizeof(made.bytes));
  return result;
}

/// The one flag that is allowed was 0 once, and is 1 now.
int ipc_open(void** memory, const uint8_t* handle) {
  if (functions.ipc_open == nullptr || functions.ipc_close == nullptr) return hip::kNotSupported;
  hip::IpcHandle it;
  memcpy(it.bytes, handle, sizeof(it.bytes));
  const int result = functions.ipc_open(memory, it, 1);
  return result == hip::kInvalidValue ? functions.ipc_open(memory, it, 0) : result;
}

int device_uuid(uint8_t* uuid, int ordinal) {
  if (functions.device_uuid == nullptr) return hip::kNotSupported;
  hip::Uuid it = {};
  const int result = functions.device_uuid(&it, ordinal);
  memcpy(uuid, it.bytes, sizeof(it.bytes));
  return result;
}

int device_reaches(int* can, int ordinal, int other) {
  return functions.device_reaches == nullptr ? hip::kNotSupported : functions.device_reaches(can, ordinal, other);
}

int version() {
  int version = 0;
  return ready() && device_known(Api::kHip, -1) != nullptr && functions.driver_version(&version) == 0 ? version : 0;
}

}  // namespace

constinit const Driver hip_driver = {
    .api = Api::kHip,
    .ready = ready,
    .place = place,
    .enter = enter,
    .leave = leave,
    .stream_create = stream_create,
    .stream_destroy = [](void* stream) { return functions.stream_destroy(stream); },
    .stream_wait = [](void* stream, void* event) { return functions.stream_wait(stream, event, 0); },
    .event_create = [](void** event) { return functions.event_create(event, hip::kEventNoTiming); },
    .event_destroy = [](void* event) { return functions.event_destroy(event); },
    .event_record = [](void* event, void* stream) { return functions.event_record(event, stream); },
    .event_query = [](void* event) { return functions.event_query(event); },
    .copy = [](void* to, const void* from, size_t bytes, bool up,
               void* stream) { return functions.copy(to, from, bytes, up ? hip::kUp : hip::kDown, stream); },
    .copy_2d =
        [](void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width, size_t rows, bool up,
           void* stream) {
          return functions.copy_2d(to, to_pitch, from, from_pitch, width, rows, up ? hip::kUp : hip::kDown, stream);
        },
    .copy_peer = copy_peer,
    .pin =
        [](void* memory, size_t bytes) {
          return functions.host_register(memory, bytes, hip::kRegisterPortable | hip::kRegisterMapped);
        },
    .unpin = [](void* memory) { return functions.host_unregister(memory); },
    .device_pointer = [](void** pointer, void* pinned) { return functions.host_device_pointer(pointer, pinned, 0); },
    .allocate = [](void** memory, size_t bytes) { return functions.allocate(memory, bytes); },
    .release = [](void* memory) { return functions.release(memory); },
    .room = [](size_t* unused,
               size_t* all) { return functions.room == nullptr ? hip::kNotSupported : functions.room(unused, all); },
    .module_load = [](void** module, const void* image) { return functions.module_load(module, image); },
    .module_function = [](void** function, void* module,
                          const char* name) { return functions.module_function(function, module, name); },
    .launch = launch,
    .ipc_export = ipc_export,
    .ipc_open = ipc_open,
    .ipc_close = [](void* memory) { return functions.ipc_close(memory); },
    .device_uuid = device_uuid,
    .device_reaches = device_reaches,
    .error_name = [](int result) -> const char* {
      const char* name = functions.error_name != nullptr ? functions.error_name(result) : nullptr;
      return name != nullptr ? name : "hipError?";
    },
    .version = version,
};

}  // namespace resil::gpu
