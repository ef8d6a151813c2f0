// SPDX-License-Identifier: Apache-2.0
//
// The CUDA driver's memory: device, managed, pools, page-locked and registered host memory; what it says about
// pointers.

#include <cstring>

#include "tests/fakegpu/cuda_driver.h"

using namespace fakegpu;
using namespace fakegpu::cuda;

namespace {

struct Pool {
  Device* device;
};

Pool& default_pool(Device& device) {
  static Pool pools[64];
  Pool& pool = pools[device.ordinal];
  pool.device = &device;
  return pool;
}

/// Freeing waits for the work of the memory's context, as the real one does.
CUresult free_after_work(CUdeviceptr address, Kind kind, CUresult unknown) {
  if (const CUresult error = ready()) return error;
  if (address == 0) return kind == Kind::kDevice ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  Context* context;
  {
    const Locked hold;
    const Allocation* it = find(address);
    if (it == nullptr || it->base != address) return unknown;
    context = it->context;
  }
  if (context != nullptr && !wait(*context, [context] { return idle(*context); })) return state_of(*context);
  const Locked hold;
  return release(address, kind) ? CUDA_SUCCESS : unknown;
}

CUresult get(Kind kind, size_t bytes, unsigned flags, void** to) {
  Context* context;
  if (const CUresult error = current(context)) return error;
  if (capture_forbids()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (bytes == 0 || to == nullptr) return CUDA_ERROR_INVALID_VALUE;
  count(kind == Kind::kPinned ? Count::kPinned : Count::kAlloc);
  const Locked hold;
  *to = allocate(*context, kind, bytes, false, flags);
  return *to != nullptr ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult get(Kind kind, size_t bytes, CUdeviceptr* to) {
  void* memory = nullptr;
  const CUresult result = get(kind, bytes, 0, &memory);
  if (result == CUDA_SUCCESS) *to = reinterpret_cast<CUdeviceptr>(memory);
  return result;
}

}  // namespace

API cuMemAlloc_v2(CUdeviceptr* to, size_t bytes) { return get(Kind::kDevice, bytes, to); }
API cuMemAllocManaged(CUdeviceptr* to, size_t bytes, unsigned) { return get(Kind::kManaged, bytes, to); }
API cuMemHostAlloc(void** to, size_t bytes, unsigned flags) { return get(Kind::kPinned, bytes, flags, to); }
API cuMemAllocHost_v2(void** to, size_t bytes) { return get(Kind::kPinned, bytes, 0, to); }

API cuMemAllocPitch_v2(CUdeviceptr* to, size_t* pitch, size_t width, size_t height, unsigned) {
  *pitch = (width + 511) / 512 * 512;
  return get(Kind::kDevice, *pitch * height, to);
}

API cuMemFree_v2(CUdeviceptr address) { return free_after_work(address, Kind::kDevice, CUDA_ERROR_INVALID_VALUE); }

API cuMemFreeHost(void* address) {
  return free_after_work(reinterpret_cast<CUdeviceptr>(address), Kind::kPinned, CUDA_ERROR_INVALID_VALUE);
}

API cuMemHostRegister_v2(void* address, size_t bytes, unsigned flags) {
  Context* context;
  if (const CUresult error = current(context)) return error;
  if (capture_forbids()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (address == nullptr || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  count(Count::kRegistered);
  const Locked hold;
  const int result = register_host(*context, address, bytes, flags);
  return result == 0   ? CUDA_SUCCESS
         : result == 1 ? CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED
                       : CUDA_ERROR_OUT_OF_MEMORY;
}

API cuMemHostUnregister(void* address) {
  return free_after_work(reinterpret_cast<CUdeviceptr>(address), Kind::kRegistered,
                         CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
}

API cuMemHostGetDevicePointer_v2(CUdeviceptr* to, void* host, unsigned) {
  if (const CUresult error = ready()) return error;
  const Locked hold;
  const Allocation* it = find(reinterpret_cast<uintptr_t>(host));
  if (it == nullptr || it->kind == Kind::kDevice) return CUDA_ERROR_INVALID_VALUE;
  *to = reinterpret_cast<CUdeviceptr>(host);
  return CUDA_SUCCESS;
}

API cuMemHostGetFlags(unsigned* flags, void* host) {
  if (const CUresult error = ready()) return error;
  const Locked hold;
  const Allocation* it = find(reinterpret_cast<uintptr_t>(host));
  if (it == nullptr || it->kind != Kind::kPinned) return CUDA_ERROR_INVALID_VALUE;
  *flags = it->flags;
  return CUDA_SUCCESS;
}

API cuMemGetInfo_v2(size_t* free, size_t* total) {
  Context* context;
  if (const CUresult error = current(context)) return error;
  const Locked hold;
  *free = device_memory_free(*context->device);
  *total = settings().memory;
  return CUDA_SUCCESS;
}

API cuMemGetAddressRange_v2(CUdeviceptr* base, size_t* bytes, CUdeviceptr address) {
  if (const CUresult error = ready()) return error;
  const Locked hold;
  const Allocation* it = find(address);
  if (it == nullptr) return CUDA_ERROR_NOT_FOUND;
  if (base != nullptr) *base = it->base;
  if (bytes != nullptr) *bytes = it->bytes;
  return CUDA_SUCCESS;
}

// --- Pools: memory that comes and goes in order with a stream, and belongs to no context ---

API cuDeviceGetDefaultMemPool(CUmemoryPool* pool, CUdevice ordinal) {
  if (const CUresult error = ready()) return error;
  if (device(ordinal) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  *pool = reinterpret_cast<CUmemoryPool>(&default_pool(*device(ordinal)));
  return CUDA_SUCCESS;
}

API cuDeviceGetMemPool(CUmemoryPool* pool, CUdevice ordinal) { return cuDeviceGetDefaultMemPool(pool, ordinal); }

API cuMemPoolCreate(CUmemoryPool* pool, const CUmemPoolProps* props) {
  if (const CUresult error = ready()) return error;
  if (device(props->location.id) == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *pool = reinterpret_cast<CUmemoryPool>(new Pool{device(props->location.id)});
  return CUDA_SUCCESS;
}

API cuMemPoolDestroy(CUmemoryPool) { return ready(); }
API cuMemPoolTrimTo(CUmemoryPool, size_t) { return ready(); }
API cuMemPoolSetAttribute(CUmemoryPool, CUmemPool_attribute, void*) { return ready(); }

API cuMemAllocFromPoolAsync(CUdeviceptr* to, size_t bytes, CUmemoryPool pool, CUstream handle) {
  Stream* stream;
  if (const CUresult error = stream_of(handle, stream)) return error;
  if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  count(Count::kAlloc);
  const Locked hold;
  Device* where = reinterpret_cast<Pool*>(pool)->device;
  Context anywhere = {};
  anywhere.device = where;
  *to = reinterpret_cast<CUdeviceptr>(allocate(anywhere, Kind::kDevice, bytes, true));
  return *to != 0 ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

API cuMemAllocAsync(CUdeviceptr* to, size_t bytes, CUstream handle) {
  Stream* stream;
  if (const CUresult error = stream_of(handle, stream)) return error;
  return cuMemAllocFromPoolAsync(to, bytes, reinterpret_cast<CUmemoryPool>(&default_pool(*stream->context->device)),
                                 handle);
}

API cuMemFreeAsync(CUdeviceptr address, CUstream handle) {
  Stream* stream;
  if (const CUresult error = stream_of(handle, stream)) return error;
  const Locked hold;
  const Allocation* it = find(address);
  if (it == nullptr || it->base != address || it->kind != Kind::kDevice) return CUDA_ERROR_INVALID_VALUE;
  enqueue_now(*stream, [address](Time) { release(address, Kind::kDevice); });
  return CUDA_SUCCESS;
}

// --- Whose is it? ---

namespace {

template <class T>
void put(void* to, T value) {
  memcpy(to, &value, sizeof(value));
}

/// False: this pointer has no such attribute.
bool attribute(void* to, CUpointer_attribute which, CUdeviceptr address) {
  const Allocation* it = find(address);
  const Kind kind = it != nullptr ? it->kind : Kind::kHost;
  const bool known = it != nullptr;
  const auto handle = reinterpret_cast<void*>(address);
  uintptr_t base = known ? it->base : 0;
  size_t bytes = known ? it->bytes : 0;
  if (known && it->mapped != nullptr)  // of mapped memory they tell the reserved range, as cuda.h says
    reserved_range(address, &base, &bytes);
  switch (which) {
    case CU_POINTER_ATTRIBUTE_CONTEXT: put(to, known ? it->context : nullptr); return known;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      put(to, !known                                               ? 0u
              : kind == Kind::kPinned || kind == Kind::kRegistered ? unsigned{CU_MEMORYTYPE_HOST}
                                                                   : unsigned{CU_MEMORYTYPE_DEVICE});
      return known;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER: put(to, known ? handle : nullptr); return known;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      put(to, known && kind != Kind::kDevice ? handle : nullptr);
      return known && kind != Kind::kDevice;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID: put<unsigned long long>(to, known ? it->id : 0); return known;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED: put<unsigned>(to, kind == Kind::kManaged); return known;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: put<int>(to, known ? it->device->ordinal : -2); return known;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR: put(to, base); return known;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE: put(to, bytes); return known;
    case CU_POINTER_ATTRIBUTE_MAPPED: put<unsigned>(to, known); return known;
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
      put<unsigned>(to, known && (it->synchronous || kind == Kind::kManaged));
      return known;
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
      put<unsigned>(to, kind == Kind::kDevice && !it->pool);
      return known;
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS: put<unsigned>(to, CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE); return known;
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
      put(to, known && it->pool ? &default_pool(*it->device) : nullptr);
      return known;
    default: return false;
  }
}

}  // namespace

API cuPointerGetAttribute(void* to, CUpointer_attribute which, CUdeviceptr address) {
  if (const CUresult error = ready()) return error;
  const Locked hold;
  char value[16];
  if (!attribute(value, which, address)) return CUDA_ERROR_INVALID_VALUE;
  attribute(to, which, address);
  return CUDA_SUCCESS;
}

/// About pointers that it does not know it says zeros, and success.
API cuPointerGetAttributes(unsigned number, CUpointer_attribute* which, void** to, CUdeviceptr address) {
  if (const CUresult error = ready()) return error;
  const Locked hold;
  for (unsigned i = 0; i < number; ++i) attribute(to[i], which[i], address);
  return CUDA_SUCCESS;
}

/// What calls without a stream have begun before is waited for. Pools take the promise and do not keep it, mapped
/// memory does not take it (580.159).
API cuPointerSetAttribute(const void* value, CUpointer_attribute which, CUdeviceptr address) {
  Context* context;
  if (const CUresult error = current(context)) return error;
  if (which != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS) return CUDA_ERROR_INVALID_VALUE;
  {
    const Locked hold;
    auto* it = const_cast<Allocation*>(find(address));
    if (it == nullptr || it->kind == Kind::kRegistered) return CUDA_ERROR_INVALID_VALUE;
    if (it->mapped != nullptr) return CUDA_ERROR_NOT_SUPPORTED;
    it->synchronous = *static_cast<const unsigned*>(value) != 0;
    if (it->context != nullptr) context = it->context;
  }
  return wait_plain(*context) ? CUDA_SUCCESS : state_of(*context);
}
