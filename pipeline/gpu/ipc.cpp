// SPDX-License-Identifier: Apache-2.0
//
// Memory of another process of the node. Drivers answer "invalid context" to a process that opens a handle of its own,
// and "invalid handle" when the memory is gone: no reason to give up the device, as these errors are elsewhere.

#include <cstring>

#include "pipeline/gpu/device.h"

namespace resil::gpu {

namespace {

constexpr int kOrdinals = 64;

bool known(const uint8_t (&uuid)[16]) {
  constexpr uint8_t kNone[16] = {};
  return memcmp(uuid, kNone, sizeof(kNone)) != 0;
}

/// Does this device say that it cannot reach the one with the UUID? Only of devices that this process sees.
bool says_unreachable(Device& on, const uint8_t (&uuid)[16]) {
  const Driver& driver = *on.driver;
  uint8_t seen[16] = {};
  if (!known(uuid) || (driver.device_uuid(seen, on.place.ordinal) == 0 && memcmp(seen, uuid, sizeof(seen)) == 0))
    return false;
  for (int ordinal = 0; ordinal < kOrdinals && driver.device_uuid(seen, ordinal) == 0; ++ordinal) {
    int can = 1;
    if (memcmp(seen, uuid, sizeof(seen)) == 0)
      return driver.device_reaches(&can, on.place.ordinal, ordinal) == 0 && can == 0;
  }
  return false;
}

}  // namespace

bool ipc_export(Device& device, const void* memory, IpcHandle* handle) {
  *handle = {};
  const Pointer pointer = classify(memory, 1);
  if (pointer.memory != Memory::kDevice || pointer.device != &device || pointer.base == 0) {
    keep_error("not plain memory of this device");
    return false;
  }
  Inside inside(device);
  if (!inside.good() || !inside.tried(device.driver->ipc_export(handle->driver, reinterpret_cast<void*>(pointer.base))))
    return false;
  if (device.driver->device_uuid(handle->device, device.place.ordinal) != 0)
    memset(handle->device, 0, sizeof(handle->device));
  handle->offset = reinterpret_cast<uintptr_t>(memory) - pointer.base;
  handle->api = device.driver->api;
  return true;
}

bool ipc_open(Device& on, const IpcHandle& handle, void** memory) {
  *memory = nullptr;
  if (handle.api != on.driver->api) {
    keep_error("memory of another runtime");
    return false;
  }
  Inside inside(on);
  if (!inside.good()) return false;
  if (says_unreachable(on, handle.device)) {
    keep_error("the devices do not reach each other");
    return false;
  }
  void* base = nullptr;
  if (!inside.tried(on.driver->ipc_open(&base, handle.driver))) return false;
  *memory = static_cast<char*>(base) + handle.offset;
  return true;
}

void ipc_close(Device& on, const IpcHandle& handle, void* memory) {
  Inside inside(on);
  if (memory != nullptr && inside.good())
    inside.tried(on.driver->ipc_close(static_cast<char*>(memory) - handle.offset));
}

}  // namespace resil::gpu
