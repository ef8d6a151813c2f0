// SPDX-License-Identifier: Apache-2.0
//
// CUDA by its driver's library. The driver serves all runtimes in the process, static or shared; its functions set no
// error that the program's cudaGetLastError would see.

#include "pipeline/gpu/driver_common.h"
#include "shim/runtime/accelerators/cuda_api.h"

namespace resil::gpu {

namespace {

cuda::Functions functions;
Once found;

bool ready() { return look_up_once<functions>(found, kCudaRuntime); }

cuda::DevicePtr address_of(const void* memory) { return reinterpret_cast<cuda::DevicePtr>(memory); }

/// The device's primary context, if the program has it active; null: it has not.
void* primary_of(int ordinal) {
  unsigned flags = 0;
  int active = 0;
  void* context = nullptr;
  if (functions.primary_release == nullptr || functions.primary_state(ordinal, &flags, &active) != 0 || active == 0 ||
      functions.primary_retain(&context, ordinal) != 0)
    return nullptr;
  functions.primary_release(ordinal);  // its handle was all that was wanted: the program's own hold keeps it active
  return context;
}

/// The number that the driver gives the memory at the address, never to two; 0: it knows none there.
uint64_t memory_number(uint64_t address) {
  int attribute = cuda::kAttributeBuffer;
  unsigned long long number = 0;
  void* value = &number;
  return functions.pointer_attributes(1, &attribute, &value, address) == 0 ? number : 0;
}

/// Has the context been destroyed, or reset? Asks about resil's memory in it: a driver that is given the context itself
/// may crash (CUDA 13.0 does).
bool gone(const Device& device) {
  const uint64_t mark = device.mark.load(std::memory_order_acquire);
  return mark != 0 && memory_number(mark) != device.mark_number;
}

void adopt(Device& device) {
  cuda::DevicePtr memory = 0;
  if (functions.pointer_attributes == nullptr || functions.allocate(&memory, 8) != 0) return;
  device.mark_number = memory_number(memory);
  if (device.mark_number != 0) device.mark.store(memory, std::memory_order_release);
  else functions.release(memory);
}

bool settle(const void* address) {
  const unsigned yes = 1;
  return functions.pointer_set != nullptr &&
         functions.pointer_set(&yes, cuda::kAttributeSynchronous, address_of(address)) == 0;
}

/// Not while a stream that the default one waits for is being captured: that would break the capture.
int record_default(void* event) {
  int capturing = 0;
  if (functions.is_capturing == nullptr || functions.is_capturing(nullptr, &capturing) != 0 || capturing != 0)
    return kNotSupported;
  return functions.event_record(event, nullptr);
}

/// Memory of pools and mapped memory belongs to a device, not to a context: any context of the device's will do.
bool place(const Said& said, uintptr_t, Place* place) {
  place->context = said.context;
  place->ordinal = said.ordinal;
  place->id = 0;
  if (place->context == nullptr && said.ordinal >= 0) {
    place->context = primary_of(said.ordinal);
    int current = -1;
    if (place->context == nullptr && functions.context_device(&current) == 0 && current == said.ordinal)
      functions.context_current(&place->context);
    const Device* known = place->context == nullptr ? device_known(Api::kCuda, said.ordinal) : nullptr;
    if (known != nullptr && !gone(*known)) place->context = known->place.context;
  }
  if (place->context == nullptr) return false;
  unsigned long long id = 0;
  if (functions.context_id != nullptr && functions.context_id(place->context, &id) == 0) place->id = id;
  return true;
}

int make_current(const Device& device, Previous* previous) {
  *previous = {};
  void* current = nullptr;
  int result = functions.context_current(&current);
  if (result != 0) return result;
  if (gone(device)) return cuda::kContextDestroyed;
  if (current != device.place.context) {
    result = functions.context_push(device.place.context);
    if (result != 0) return result;
    previous->changed = true;
  }
  suspend_capture(functions, previous);
  return 0;
}

void restore(const Device&, const Previous& previous) {
  resume_capture(functions, previous);
  void* popped = nullptr;
  if (previous.changed) functions.context_pop(&popped);
}

int copy(void* to, const void* from, size_t bytes, bool up, void* stream) {
  return up ? functions.copy_up(address_of(to), from, bytes, stream)
            : functions.copy_down(to, address_of(from), bytes, stream);
}

int copy_2d(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width, size_t rows, bool up,
            void* stream) {
  cuda::Memcpy2d what = {};
  what.from_type = up ? cuda::kTypeHost : cuda::kTypeDevice;
  what.to_type = up ? cuda::kTypeDevice : cuda::kTypeHost;
  if (up) {
    what.from_host = from;
    what.to_device = address_of(to);
  } else {
    what.from_device = address_of(from);
    what.to_host = to;
  }
  what.from_pitch = from_pitch;
  what.to_pitch = to_pitch;
  what.width = width;
  what.rows = rows;
  return functions.copy_2d(&what, stream);
}

int copy_peer(const Device& to_device, void* to, const Device& from_device, const void* from, size_t bytes,
              void* stream) {
  if (to_device.place.context == from_device.place.context)
    return functions.copy_across(address_of(to), address_of(from), bytes, stream);
  return functions.copy_peer(address_of(to), to_device.place.context, address_of(from), from_device.place.context,
                             bytes, stream);
}

int allocate(void** memory, size_t bytes) {
  cuda::DevicePtr pointer = 0;
  const int result = functions.allocate(&pointer, bytes);
  *memory = reinterpret_cast<void*>(pointer);
  return result;
}

int device_pointer(void** pointer, void* pinned) {
  cuda::DevicePtr address = 0;
  const int result = functions.host_device_pointer(&address, pinned, 0);
  *pointer = reinterpret_cast<void*>(address);
  return result;
}

int ipc_export(uint8_t* handle, void* memory) {
  if (functions.ipc_export == nullptr) return kNotSupported;
  DriverIpcHandle made = {};
  const int result = functions.ipc_export(&made, address_of(memory));
  memcpy(handle, made.bytes, sizeof(made.bytes));
  return result;
}

int ipc_open(void** memory, const uint8_t* handle) {
  if (functions.ipc_open == nullptr || functions.ipc_close == nullptr) return kNotSupported;
  DriverIpcHandle it;
  memcpy(it.bytes, handle, sizeof(it.bytes));
  cuda::DevicePtr pointer = 0;
  const int result = functions.ipc_open(&pointer, it, cuda::kIpcLazyPeerAccess);
  *memory = reinterpret_cast<void*>(pointer);
  return result;
}

const char* error_name(int result) {
  const char* name = nullptr;
  return functions.error_name(result, &name) == 0 && name != nullptr ? name : "CUDA_ERROR_?";
}

int version() {
  int version = 0;
  return ready() && functions.driver_version(&version) == 0 ? version : 0;
}

}  // namespace

constinit const Driver cuda_driver = with_common<functions>({
    .api = Api::kCuda,
    .ready = ready,
    .place = place,
    .adopt = adopt,
    .settle = settle,
    .record_default = record_default,
    .make_current = make_current,
    .restore = restore,
    .copy = copy,
    .copy_2d = copy_2d,
    .copy_peer = copy_peer,
    .device_pointer = device_pointer,
    .allocate = allocate,
    .release = [](void* memory) { return functions.release(address_of(memory)); },
    .ipc_export = ipc_export,
    .ipc_open = ipc_open,
    .ipc_close = [](void* memory) { return functions.ipc_close(address_of(memory)); },
    .error_name = error_name,
    .version = version,
});

}  // namespace resil::gpu
