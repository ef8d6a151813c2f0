// SPDX-License-Identifier: Apache-2.0
//
// HIP by its runtime's library. Its functions initialise the runtime: they are called only once ROCr has said that an
// address is a device's, so that the program has initialised it. A failing function sets the error that the program's
// hipGetLastError gives: one that was not there before is taken away again.

#include "pipeline/gpu/driver_common.h"
#include "shim/runtime/accelerators/hip_api.h"

namespace resil::gpu {

namespace {

hip::Functions functions;
Once found;

bool ready() { return look_up_once<functions>(found, kHipRuntime); }

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

int make_current(const Device& device, Previous* previous) {
  *previous = {};
  previous->error = functions.error_peek();
  int result = functions.device_get(&previous->device);
  if (result == 0 && previous->device != device.place.ordinal) {
    result = functions.device_set(device.place.ordinal);
    previous->changed = result == 0;
  }
  if (result != 0) {
    if (previous->error == 0) functions.error_take();
    return result;
  }
  suspend_capture(functions, previous);
  return 0;
}

void restore(const Device&, const Previous& previous) {
  resume_capture(functions, previous);
  if (previous.changed) functions.device_set(previous.device);
  if (previous.error == 0) functions.error_take();
}

int copy_peer(const Device& to_device, void* to, const Device& from_device, const void* from, size_t bytes,
              void* stream) {
  if (to_device.place.ordinal == from_device.place.ordinal)
    return functions.copy(to, from, bytes, hip::kAcross, stream);
  return functions.copy_peer(to, to_device.place.ordinal, from, from_device.place.ordinal, bytes, stream);
}

int ipc_export(uint8_t* handle, void* memory) {
  if (functions.ipc_export == nullptr) return kNotSupported;
  DriverIpcHandle made = {};
  const int result = functions.ipc_export(&made, memory);
  memcpy(handle, made.bytes, sizeof(made.bytes));
  return result;
}

/// The one flag that is allowed was 0 once, and is 1 now.
int ipc_open(void** memory, const uint8_t* handle) {
  if (functions.ipc_open == nullptr || functions.ipc_close == nullptr) return kNotSupported;
  DriverIpcHandle it;
  memcpy(it.bytes, handle, sizeof(it.bytes));
  const int result = functions.ipc_open(memory, it, 1);
  return result == kInvalidValue ? functions.ipc_open(memory, it, 0) : result;
}

int version() {
  int version = 0;
  return ready() && device_known(Api::kHip, -1) != nullptr && functions.driver_version(&version) == 0 ? version : 0;
}

}  // namespace

constinit const Driver hip_driver = with_common<functions>({
    .api = Api::kHip,
    .ready = ready,
    .place = place,
    .make_current = make_current,
    .restore = restore,
    .copy = [](void* to, const void* from, size_t bytes, bool up,
               void* stream) { return functions.copy(to, from, bytes, up ? hip::kUp : hip::kDown, stream); },
    .copy_2d =
        [](void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width, size_t rows, bool up,
           void* stream) {
          return functions.copy_2d(to, to_pitch, from, from_pitch, width, rows, up ? hip::kUp : hip::kDown, stream);
        },
    .copy_peer = copy_peer,
    .device_pointer = [](void** pointer, void* pinned) { return functions.host_device_pointer(pointer, pinned, 0); },
    .allocate = [](void** memory, size_t bytes) { return functions.allocate(memory, bytes); },
    .release = [](void* memory) { return functions.release(memory); },
    .ipc_export = ipc_export,
    .ipc_open = ipc_open,
    .ipc_close = [](void* memory) { return functions.ipc_close(memory); },
    .error_name = [](int result) -> const char* {
      const char* name = functions.error_name != nullptr ? functions.error_name(result) : nullptr;
      return name != nullptr ? name : "hipError?";
    },
    .version = version,
});

}  // namespace resil::gpu
