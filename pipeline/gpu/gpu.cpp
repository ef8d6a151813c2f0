// SPDX-License-Identifier: Apache-2.0
//
// See gpu.h: the same for all APIs. Devices, their streams and events, and what a runtime's errors mean.

#include "pipeline/gpu/gpu.h"

#include <cstring>

#include "pipeline/gpu/device.h"
#include "pipeline/gpu/kernels/image.h"
#include "shim/runtime/accelerators/cuda_api.h"
#include "shim/runtime/accelerators/host_memory.h"
#include "shim/runtime/memory.h"

namespace resil::gpu {

namespace {

constexpr unsigned kDevices = 64;
constexpr uint32_t kFreeEvents = 4096;

constinit Device devices[kDevices] = {};
std::atomic<uint32_t> device_count;
SpinLock devices_lock;

constinit thread_local const char* error_text __attribute__((tls_model("initial-exec"))) = "";

Device* find(const Driver* driver, const Place& place, uint32_t from, uint32_t count) {
  for (uint32_t i = from; i < count; ++i) {
    Device& device = devices[i];
    if (device.driver != driver || device.place.ordinal != place.ordinal || device.place.context != place.context ||
        device.lost.load(std::memory_order_relaxed))
      continue;
    if (device.place.id == place.id) return &device;
    device.lost.store(true, std::memory_order_relaxed);  // another context at the address of one that is gone
  }
  return nullptr;
}

}  // namespace

Device* device_for(const Said& said, uintptr_t address) {
  const Driver* driver = said.api == Api::kCuda ? &cuda_driver : said.api == Api::kHip ? &hip_driver : nullptr;
  Place place;
  if (driver == nullptr || !driver->ready() || !driver->place(said, address, &place)) return nullptr;
  const uint32_t seen = device_count.load(std::memory_order_acquire);
  if (Device* known = find(driver, place, 0, seen)) [[likely]]
    return known;
  auto** events = memory::map_array<void*>(kFreeEvents);
  Device* made = nullptr;
  bool added = false;
  {
    SpinGuard guard(devices_lock);
    const uint32_t count = device_count.load(std::memory_order_relaxed);
    made = find(driver, place, seen, count);
    if (made == nullptr && count < kDevices) {
      made = &devices[count];
      made->driver = driver;
      made->place = place;
      if (events != nullptr) {
        made->events = events;
        made->event_room = kFreeEvents;
        events = nullptr;
      }
      added = true;
      device_count.store(count + 1, std::memory_order_release);
    }
  }
  memory::unmap_array(events, kFreeEvents);
  if (added && driver->adopt != nullptr) {
    Inside inside(*made);
    if (inside.good()) driver->adopt(*made);
  }
  return made;
}

const Device* device_known(Api api, int ordinal) {
  const uint32_t count = device_count.load(std::memory_order_acquire);
  for (uint32_t i = 0; i < count; ++i)
    if (devices[i].driver->api == api && (ordinal < 0 || devices[i].place.ordinal == ordinal) &&
        !devices[i].lost.load(std::memory_order_relaxed))
      return &devices[i];
  return nullptr;
}

bool seen() { return device_count.load(std::memory_order_relaxed) != 0; }

// --- Errors ---

void keep_error(const char* name) { error_text = name; }

const char* last_error() { return error_text; }

Inside::Inside(Device& device) : device_(device), previous_{}, good_(false) {
  if (device.lost.load(std::memory_order_relaxed)) {
    keep_error("the device's context is gone");
    return;
  }
  const int result = device.driver->make_current(device, &previous_);
  good_ = result == 0;
  if (!good_) check(result);
}

Inside::~Inside() {
  if (good_) device_.driver->restore(device_, previous_);
}

bool Inside::check(int result) {
  if (result == 0) [[likely]]
    return true;
  keep_error(device_.driver->error_name(result));
  if (cuda::is_lost(result)) device_.lost.store(true, std::memory_order_relaxed);
  return false;
}

bool Inside::tried(int result) {
  if (result != 0) keep_error(device_.driver->error_name(result));
  return result == 0;
}

// --- Whose memory ---

namespace {

void* event_of(EventHandle event) { return reinterpret_cast<void*>(event); }

bool on_device(Memory memory) { return memory == Memory::kDevice || memory == Memory::kManaged; }

/// Memory may be mapped in pieces one after the other (virtual memory management, as frameworks' allocators use it):
/// the range that a buffer needs is then more than the piece that the runtime tells of.
void extend(Pointer* pointer, uintptr_t end) {
  while (pointer->base != 0 && pointer->bytes != 0 && end - pointer->base > pointer->bytes) {
    const uintptr_t next = pointer->base + pointer->bytes;
    const Said said = whose_memory(reinterpret_cast<const void*>(next), 1);
    if (!said.mapped || said.memory != pointer->memory || said.base != next || said.bytes == 0 ||
        device_for(said, next) != pointer->device)
      return;
    pointer->bytes += said.bytes;
  }
}

}  // namespace

Pointer classify(const void* address, size_t bytes) {
  const Said said = host_memory_known(address, bytes) ? kHosts : whose_memory(address, bytes);
  Pointer pointer = {said.memory, nullptr, said.base, said.bytes, said.settled, !said.mapped};
  if (!on_device(said.memory)) return pointer;
  const auto first = reinterpret_cast<uintptr_t>(address);
  pointer.device = device_for(said, first);
  if (said.mapped) extend(&pointer, first + bytes);
  return pointer;
}

void settle(const Pointer& pointer, const void* address) {
  if (pointer.settled || pointer.device == nullptr) return;
  Device& device = *pointer.device;
  const Driver& driver = *device.driver;
  if (driver.settle == nullptr) return;
  {
    Inside inside(device);
    if (!inside.good() || (pointer.in_context && driver.settle(address))) return;
  }
  // No promise can be had: the copies follow on what the default stream has now.
  const EventHandle event = event_acquire(device);
  if (event == 0) return;
  bool recorded = false;
  {
    Inside inside(device);
    recorded = inside.good() && driver.record_default(event_of(event)) == 0;
  }
  for (unsigned role = 0; recorded && role < kStreamRoles; ++role)
    stream_wait(device, static_cast<StreamRole>(role), event);
  event_release(device, event);
}

// --- Names ---

Api api_of(const Device& device) { return device.driver->api; }

const char* api_name(Api api) { return api == Api::kCuda ? "cuda" : api == Api::kHip ? "hip" : ""; }

int ordinal_of(const Device& device) { return device.place.ordinal; }

int driver_version(Api api) {
  return api == Api::kCuda ? cuda_driver.version() : api == Api::kHip ? hip_driver.version() : 0;
}

bool alive(Device& device) {
  Inside inside(device);
  return inside.good();
}

// --- Streams and events ---

namespace {

/// Made on first use. Null: refused. Inside the device.
void* stream_of_role(Device& device, Inside& inside, StreamRole role) {
  std::atomic<void*>& kept = device.streams[static_cast<unsigned>(role)];
  void* stream = kept.load(std::memory_order_acquire);
  if (stream != nullptr) [[likely]]
    return stream;
  void* made = nullptr;
  if (!inside.check(device.driver->stream_create(&made))) return nullptr;
  if (kept.compare_exchange_strong(stream, made, std::memory_order_acq_rel)) return made;
  device.driver->stream_destroy(made);
  return stream;
}

}  // namespace

EventHandle event_acquire(Device& device) {
  if (device.lost.load(std::memory_order_relaxed)) return 0;
  {
    SpinGuard guard(device.events_lock);
    if (device.event_count != 0) return reinterpret_cast<EventHandle>(device.events[--device.event_count]);
  }
  void* event = nullptr;
  Inside inside(device);
  return inside.good() && inside.check(device.driver->event_create(&event)) ? reinterpret_cast<EventHandle>(event) : 0;
}

void event_release(Device& device, EventHandle event) {
  if (event == 0 || device.lost.load(std::memory_order_relaxed)) return;
  {
    SpinGuard guard(device.events_lock);
    if (device.event_count < device.event_room) {
      device.events[device.event_count++] = event_of(event);
      return;
    }
  }
  Inside inside(device);
  if (inside.good()) inside.check(device.driver->event_destroy(event_of(event)));
}

bool event_record(Device& device, StreamRole role, EventHandle event) {
  Inside inside(device);
  void* stream = inside.good() ? stream_of_role(device, inside, role) : nullptr;
  return stream != nullptr && inside.check(device.driver->event_record(event_of(event), stream));
}

bool stream_wait(Device& device, StreamRole role, EventHandle event) {
  Inside inside(device);
  void* stream = inside.good() ? stream_of_role(device, inside, role) : nullptr;
  return stream != nullptr && inside.check(device.driver->stream_wait(stream, event_of(event)));
}

State event_query(Device& device, EventHandle event) {
  Inside inside(device);
  if (!inside.good()) return State::kFailed;
  const int result = device.driver->event_query(event_of(event));
  return result == kNotReady ? State::kPending : inside.check(result) ? State::kDone : State::kFailed;
}

// --- Copies ---

namespace {

bool copy(Device& device, StreamRole role, void* to, const void* from, size_t bytes) {
  if (bytes == 0) return true;
  Inside inside(device);
  void* stream = inside.good() ? stream_of_role(device, inside, role) : nullptr;
  return stream != nullptr && inside.check(device.driver->copy(to, from, bytes, role == StreamRole::kUp, stream));
}

bool copy_2d(Device& device, StreamRole role, void* to, size_t to_pitch, const void* from, size_t from_pitch,
             size_t width, size_t rows) {
  if (width == 0 || rows == 0) return true;
  Inside inside(device);
  void* stream = inside.good() ? stream_of_role(device, inside, role) : nullptr;
  return stream != nullptr && inside.check(device.driver->copy_2d(to, to_pitch, from, from_pitch, width, rows,
                                                                  role == StreamRole::kUp, stream));
}

}  // namespace

bool copy_down(Device& device, void* host, const void* from, size_t bytes) {
  return copy(device, StreamRole::kDown, host, from, bytes);
}

bool copy_up(Device& device, void* to, const void* host, size_t bytes) {
  return copy(device, StreamRole::kUp, to, host, bytes);
}

bool copy_down_2d(Device& device, void* host, size_t host_pitch, const void* from, size_t pitch, size_t width,
                  size_t rows) {
  return copy_2d(device, StreamRole::kDown, host, host_pitch, from, pitch, width, rows);
}

bool copy_up_2d(Device& device, void* to, size_t pitch, const void* host, size_t host_pitch, size_t width,
                size_t rows) {
  return copy_2d(device, StreamRole::kUp, to, pitch, host, host_pitch, width, rows);
}

bool copy_peer(Device& to_device, void* to, Device& from_device, const void* from, size_t bytes, StreamRole role) {
  if (bytes == 0) return true;
  if (to_device.driver != from_device.driver || from_device.lost.load(std::memory_order_relaxed)) {
    keep_error("the two devices are not of one runtime, or one is gone");
    return false;
  }
  Inside inside(to_device);
  void* stream = inside.good() ? stream_of_role(to_device, inside, role) : nullptr;
  return stream != nullptr &&
         inside.check(to_device.driver->copy_peer(to_device, to, from_device, from, bytes, stream));
}

// --- Kernels ---

namespace {

bool load_module(Device& device) {
  return device.module_found.find_out([&device] {
    const KernelImage image = kernel_image(device.driver->api);
    if (image.bytes == 0) {
      device.no_module = "not in this build";
      return false;
    }
    Inside inside(device);
    const bool good =
        inside.good() &&
        (inside.check(device.driver->module_load(&device.module, image.data)) ||
         (image.portable != nullptr && inside.check(device.driver->module_load(&device.module, image.portable))));
    if (!good) device.no_module = last_error();
    return good;
  });
}

}  // namespace

void* kernel(Device& device, const char* name) {
  if (!load_module(device)) {
    keep_error(device.no_module);
    return nullptr;
  }
  auto known = [&device, name](void** function) {
    for (uint32_t i = 0; i < device.kernel_count; ++i)
      if (strcmp(device.kernels[i].name, name) == 0) {
        *function = device.kernels[i].function;
        return true;
      }
    return false;
  };
  void* function = nullptr;
  {
    SpinGuard guard(device.kernels_lock);
    if (known(&function)) return function;
  }
  {
    Inside inside(device);
    if (!inside.good()) return nullptr;
    if (!inside.check(device.driver->module_function(&function, device.module, name))) function = nullptr;
  }
  SpinGuard guard(device.kernels_lock);
  void* other = nullptr;
  if (known(&other)) return other;
  if (device.kernel_count < kKernels) device.kernels[device.kernel_count++] = {name, function};
  return function;
}

bool launch(Device& device, StreamRole role, void* kernel, unsigned blocks, unsigned threads, unsigned shared_bytes,
            void** arguments, EventHandle event) {
  Inside inside(device);
  void* stream = inside.good() ? stream_of_role(device, inside, role) : nullptr;
  return stream != nullptr &&
         inside.check(device.driver->launch(kernel, blocks, threads, shared_bytes, stream, arguments)) &&
         (event == 0 || inside.check(device.driver->event_record(event_of(event), stream)));
}

void* device_address(Device& device, void* pinned) {
  void* address = nullptr;
  Inside inside(device);
  return inside.good() && inside.check(device.driver->device_pointer(&address, pinned)) ? address : nullptr;
}

void* device_allocate(Device& device, size_t bytes) {
  void* memory = nullptr;
  Inside inside(device);
  return inside.good() && inside.check(device.driver->allocate(&memory, bytes)) ? memory : nullptr;
}

void device_free(Device& device, void* memory) {
  if (memory == nullptr) return;
  Inside inside(device);
  if (inside.good()) inside.check(device.driver->release(memory));
}

bool device_room(Device& device, size_t* unused, size_t* all) {
  Inside inside(device);
  return inside.good() && inside.check(device.driver->room(unused, all));
}

}  // namespace resil::gpu
