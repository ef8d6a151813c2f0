// SPDX-License-Identifier: Apache-2.0
//
// The CUDA driver's virtual memory: addresses are reserved, memory is made, and mapped there in pieces, as frameworks'
// allocators do it. Such memory belongs to no context.

#include "tests/fakegpu/cuda_driver.h"

using namespace fakegpu;
using namespace fakegpu::cuda;

API cuMemGetAllocationGranularity(size_t* bytes, const CUmemAllocationProp*, CUmemAllocationGranularity_flags) {
  *bytes = kGranularity;
  return ready();
}

API cuMemAddressReserve(CUdeviceptr* to, size_t bytes, size_t, CUdeviceptr, unsigned long long) {
  if (const CUresult error = ready()) return error;
  const Locked hold;
  *to = reserve(bytes);
  return *to != 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

API cuMemAddressFree(CUdeviceptr at, size_t bytes) {
  if (const CUresult error = ready()) return error;
  const Locked hold;
  return unreserve(at, bytes) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

API cuMemCreate(CUmemGenericAllocationHandle* to, size_t bytes, const CUmemAllocationProp* props, unsigned long long) {
  if (const CUresult error = ready()) return error;
  const Locked hold;
  Device* it = device(props->location.id);
  if (it == nullptr || bytes % kGranularity != 0) return CUDA_ERROR_INVALID_VALUE;
  *to = reinterpret_cast<CUmemGenericAllocationHandle>(physical_create(*it, bytes));
  return *to != 0 ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

API cuMemRelease(CUmemGenericAllocationHandle handle) {
  if (const CUresult error = ready()) return error;
  const Locked hold;
  return physical_release(reinterpret_cast<Physical*>(handle)) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

API cuMemMap(CUdeviceptr at, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle, unsigned long long) {
  if (const CUresult error = ready()) return error;
  const Locked hold;
  return offset == 0 && map_physical(at, bytes, reinterpret_cast<Physical*>(handle)) ? CUDA_SUCCESS
                                                                                     : CUDA_ERROR_INVALID_VALUE;
}

API cuMemSetAccess(CUdeviceptr, size_t, const CUmemAccessDesc*, size_t) { return ready(); }

API cuMemUnmap(CUdeviceptr at, size_t bytes) {
  if (const CUresult error = ready()) return error;
  const Locked hold;
  return unmap_physical(at, bytes) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
