// SPDX-License-Identifier: Apache-2.0
//
// The table of devices, their streams and events, and what a runtime's errors mean.

#include "pipeline/gpu/device.h"

#include "shim/runtime/accelerators/cuda_api.h"
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

Inside::Inside(Device& device) : device_(device), entered_{}, good_(false) {
  if (device.lost.load(std::memory_order_relaxed)) {
    keep_error("the device's context is gone");
    return;
  }
  const int result = device.driver->enter(device, &entered_);
  good_ = result == 0;
  if (!good_) check(result);
}

Inside::~Inside() {
  if (good_) device_.driver->leave(device_, entered_);
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

}  // namespace resil::gpu
