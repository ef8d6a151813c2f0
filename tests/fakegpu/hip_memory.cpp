// SPDX-License-Identifier: Apache-2.0
//
// The HIP runtime's memory, what it says about pointers, copies and fills.

#include <cstring>

#include "tests/fakegpu/hip_runtime.h"

using namespace fakegpu;
using namespace fakegpu::hip;

namespace {

uintptr_t address_of(const void* memory) { return reinterpret_cast<uintptr_t>(memory); }

hipError_t get(Kind kind, void** to, size_t bytes, unsigned flags) {
  Context* context;
  if (to == nullptr) return hipErrorInvalidValue;
  if (const hipError_t error = current(context)) return error;
  if (capture_forbids()) return hipErrorStreamCaptureUnsupported;
  *to = nullptr;
  if (bytes == 0) return hipSuccess;
  count(kind == Kind::kPinned ? Count::kPinned : Count::kAlloc);
  const Locked hold;
  *to = allocate(*context, kind, bytes, false, flags);
  return *to != nullptr ? hipSuccess : hipErrorOutOfMemory;
}

/// Freeing waits for the device's work.
hipError_t free_after_work(void* memory, Kind kind, hipError_t unknown) {
  if (const hipError_t error = ready()) return error;
  if (memory == nullptr) return kind == Kind::kRegistered ? hipErrorInvalidValue : hipSuccess;
  Context* context;
  {
    const Locked hold;
    const Allocation* it = find(address_of(memory));
    if (it == nullptr || it->base != address_of(memory)) return unknown;
    context = it->context;
  }
  if (context != nullptr && !wait(*context, [context] { return idle(*context); })) return state_of(*context);
  const Locked hold;
  return release(address_of(memory), kind) ? hipSuccess : unknown;
}

hipError_t move(const Copy& what, hipStream_t handle, bool wait_for_end) {
  Stream* stream;
  if (const hipError_t error = stream_of(handle, stream)) return error;
  return result_of(copy(*stream, what, wait_for_end), *stream->context);
}

hipError_t move(void* to, const void* from, size_t bytes, hipStream_t handle, bool wait_for_end) {
  return move({address_of(to), address_of(from), bytes, bytes, bytes, 1}, handle, wait_for_end);
}

hipError_t set(void* to, size_t bytes, unsigned value, unsigned value_bytes, hipStream_t handle, bool wait_for_end) {
  Stream* stream;
  if (const hipError_t error = stream_of(handle, stream)) return error;
  return result_of(fill(*stream, address_of(to), bytes, bytes, 1, value, value_bytes, wait_for_end), *stream->context);
}

void* pointer_of(hipDeviceptr_t memory) { return memory; }

}  // namespace

API hipMalloc(void** to, size_t bytes) { return said(get(Kind::kDevice, to, bytes, 0)); }
API hipMallocManaged(void** to, size_t bytes, unsigned flags) { return said(get(Kind::kManaged, to, bytes, flags)); }
API hipHostMalloc(void** to, size_t bytes, unsigned flags) { return said(get(Kind::kPinned, to, bytes, flags)); }
API hipFree(void* memory) { return said(free_after_work(memory, Kind::kDevice, hipErrorInvalidValue)); }
API hipHostFree(void* memory) { return said(free_after_work(memory, Kind::kPinned, hipErrorInvalidValue)); }

API hipMallocAsync(void** to, size_t bytes, hipStream_t handle) {
  Stream* stream;
  if (const hipError_t error = stream_of(handle, stream)) return said(error);
  count(Count::kAlloc);
  const Locked hold;
  *to = allocate(*stream->context, Kind::kDevice, bytes, true);
  return said(*to != nullptr ? hipSuccess : hipErrorOutOfMemory);
}

API hipFreeAsync(void* memory, hipStream_t handle) {
  Stream* stream;
  if (const hipError_t error = stream_of(handle, stream)) return said(error);
  const Locked hold;
  const Allocation* it = find(address_of(memory));
  if (it == nullptr || it->base != address_of(memory) || it->kind != Kind::kDevice) return said(hipErrorInvalidValue);
  enqueue_now(*stream, [memory](Time) { release(address_of(memory), Kind::kDevice); });
  return said(hipSuccess);
}

API hipHostRegister(void* memory, size_t bytes, unsigned flags) {
  Context* context;
  if (const hipError_t error = current(context)) return said(error);
  if (memory == nullptr || bytes == 0) return said(hipErrorInvalidValue);
  count(Count::kRegistered);
  const Locked hold;
  const int result = register_host(*context, memory, bytes, flags);
  return said(result == 0 ? hipSuccess : result == 1 ? hipErrorHostMemoryAlreadyRegistered : hipErrorOutOfMemory);
}

API hipHostUnregister(void* memory) {
  return said(free_after_work(memory, Kind::kRegistered, hipErrorHostMemoryNotRegistered));
}

API hipHostGetDevicePointer(void** to, void* host, unsigned) {
  if (const hipError_t error = ready()) return said(error);
  const Locked hold;
  const Allocation* it = find(address_of(host));
  if (it == nullptr || it->kind == Kind::kDevice) return said(hipErrorInvalidValue);
  *to = host;
  return said(hipSuccess);
}

API hipMemGetInfo(size_t* free, size_t* total) {
  Context* context;
  if (const hipError_t error = current(context)) return said(error);
  const Locked hold;
  *free = device_memory_free(*context->device);
  *total = settings().memory;
  return said(hipSuccess);
}

API hipMemGetAddressRange(hipDeviceptr_t* base, size_t* bytes, hipDeviceptr_t address) {
  if (const hipError_t error = ready()) return said(error);
  const Locked hold;
  const Allocation* it = find(address_of(address));
  if (it == nullptr) return said(hipErrorNotFound);
  *base = reinterpret_cast<hipDeviceptr_t>(it->base);
  *bytes = it->bytes;
  return said(hipSuccess);
}

API hipPointerGetAttributes(hipPointerAttribute_t* attributes, const void* address) {
  if (const hipError_t error = ready()) return said(error);
  const Locked hold;
  const Allocation* it = find(address_of(address));
  memset(attributes, 0, sizeof(*attributes));
  if (it == nullptr) return said(hipErrorInvalidValue);
  void* const same = const_cast<void*>(address);
  attributes->memoryType = it->kind == Kind::kDevice ? hipMemoryTypeDevice : hipMemoryTypeHost;
  attributes->device = it->device->ordinal;
  attributes->devicePointer = same;
  attributes->hostPointer = it->kind == Kind::kDevice ? nullptr : same;
  attributes->isManaged = it->kind == Kind::kManaged;
  attributes->allocationFlags = it->flags;
  return said(hipSuccess);
}

// --- Copies ---

API hipMemcpy(void* to, const void* from, size_t bytes, hipMemcpyKind) {
  return said(move(to, from, bytes, nullptr, true));
}
API hipMemcpyAsync(void* to, const void* from, size_t bytes, hipMemcpyKind, hipStream_t stream) {
  return said(move(to, from, bytes, stream, false));
}
API hipMemcpyWithStream(void* to, const void* from, size_t bytes, hipMemcpyKind, hipStream_t stream) {
  return said(move(to, from, bytes, stream, true));
}
API hipMemcpyDtoH(void* to, hipDeviceptr_t from, size_t bytes) {
  return said(move(to, pointer_of(from), bytes, nullptr, true));
}
API hipMemcpyHtoD(hipDeviceptr_t to, void* from, size_t bytes) {
  return said(move(pointer_of(to), from, bytes, nullptr, true));
}
API hipMemcpyDtoD(hipDeviceptr_t to, hipDeviceptr_t from, size_t bytes) {
  return said(move(pointer_of(to), pointer_of(from), bytes, nullptr, false));
}
API hipMemcpyDtoHAsync(void* to, hipDeviceptr_t from, size_t bytes, hipStream_t stream) {
  return said(move(to, pointer_of(from), bytes, stream, false));
}
API hipMemcpyHtoDAsync(hipDeviceptr_t to, void* from, size_t bytes, hipStream_t stream) {
  return said(move(pointer_of(to), from, bytes, stream, false));
}
API hipMemcpyDtoDAsync(hipDeviceptr_t to, hipDeviceptr_t from, size_t bytes, hipStream_t stream) {
  return said(move(pointer_of(to), pointer_of(from), bytes, stream, false));
}
API hipMemcpyPeer(void* to, int, const void* from, int, size_t bytes) {
  return said(move(to, from, bytes, nullptr, false));
}
API hipMemcpyPeerAsync(void* to, int to_device, const void* from, int from_device, size_t bytes, hipStream_t stream) {
  if (device(to_device) == nullptr || device(from_device) == nullptr) return said(hipErrorInvalidDevice);
  return said(move(to, from, bytes, stream, false));
}
API hipMemcpy2D(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width, size_t rows,
                hipMemcpyKind) {
  if (rows > 1 && (to_pitch < width || from_pitch < width)) return said(hipErrorInvalidPitchValue);
  return said(move({address_of(to), address_of(from), to_pitch, from_pitch, width, rows}, nullptr, true));
}
API hipMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width, size_t rows,
                     hipMemcpyKind, hipStream_t stream) {
  if (rows > 1 && (to_pitch < width || from_pitch < width)) return said(hipErrorInvalidPitchValue);
  return said(move({address_of(to), address_of(from), to_pitch, from_pitch, width, rows}, stream, false));
}

API hipMemset(void* to, int value, size_t bytes) {
  return said(set(to, bytes, static_cast<unsigned>(value), 1, nullptr, false));
}
API hipMemsetAsync(void* to, int value, size_t bytes, hipStream_t stream) {
  return said(set(to, bytes, static_cast<unsigned>(value), 1, stream, false));
}
API hipMemsetD32Async(hipDeviceptr_t to, int value, size_t number, hipStream_t stream) {
  return said(set(pointer_of(to), number * 4, static_cast<unsigned>(value), 4, stream, false));
}
