// SPDX-License-Identifier: Apache-2.0
//
// The CUDA driver's copies and fills. Those without a stream go through the default stream and wait.

#include "tests/fakegpu/cuda_driver.h"

using namespace fakegpu;
using namespace fakegpu::cuda;

namespace {

uintptr_t address_of(const void* host) { return reinterpret_cast<uintptr_t>(host); }

/// Calls without a stream, which cuda.h names synchronous: what they have begun may still be under way when they
/// return, unless the memory (CU_POINTER_ATTRIBUTE_SYNC_MEMOPS) or the context (CU_CTX_SYNC_MEMOPS) says otherwise.
class Plain {
 public:
  explicit Plain(Stream& stream, uintptr_t memory) : stream_(stream) {
    const Locked hold;
    waits = synchronous(*stream.context, memory);
  }
  ~Plain() {
    const Locked hold;
    stream_.context->last_plain = stream_.last;
  }
  bool waits;

 private:
  Stream& stream_;
};

CUresult copy_bytes(uintptr_t to, uintptr_t from, size_t bytes, CUstream handle, bool wait_for_end) {
  Stream* stream;
  if (const CUresult error = stream_of(handle, stream)) return error;
  return result_of(copy(*stream, {to, from, bytes, bytes, bytes, 1, true}, wait_for_end), *stream->context);
}

CUresult copy_plainly(uintptr_t to, uintptr_t from, size_t bytes, bool wait_for_end) {
  Stream* stream;
  if (const CUresult error = stream_of(nullptr, stream)) return error;
  const Plain plain(*stream, to);
  return copy_bytes(to, from, bytes, nullptr, wait_for_end || plain.waits);
}

CUresult set(CUdeviceptr to, size_t bytes, unsigned value, unsigned value_bytes, CUstream handle, bool wait_for_end) {
  Stream* stream;
  if (const CUresult error = stream_of(handle, stream)) return error;
  return result_of(fill(*stream, to, bytes, bytes, 1, value, value_bytes, wait_for_end), *stream->context);
}

CUresult set_plainly(CUdeviceptr to, size_t bytes, unsigned value, unsigned value_bytes) {
  Stream* stream;
  if (const CUresult error = stream_of(nullptr, stream)) return error;
  const Plain plain(*stream, to);
  return set(to, bytes, value, value_bytes, nullptr, plain.waits);
}

bool end_of(CUmemorytype type, const void* host, CUdeviceptr device_end, size_t x, size_t y, size_t pitch,
            uintptr_t& to) {
  if (type != CU_MEMORYTYPE_HOST && type != CU_MEMORYTYPE_DEVICE && type != CU_MEMORYTYPE_UNIFIED) return false;
  to = (type == CU_MEMORYTYPE_HOST ? address_of(host) : device_end) + y * pitch + x;
  return true;
}

CUresult copy_2d(const CUDA_MEMCPY2D* what, CUstream handle, bool wait_for_end) {
  Stream* stream;
  if (const CUresult error = stream_of(handle, stream)) return error;
  Copy it = {0, 0, what->dstPitch, what->srcPitch, what->WidthInBytes, what->Height, true};
  if (it.rows > 1 && (it.to_pitch < it.width || it.from_pitch < it.width)) return CUDA_ERROR_INVALID_VALUE;
  if (!end_of(what->dstMemoryType, what->dstHost, what->dstDevice, what->dstXInBytes, what->dstY, it.to_pitch, it.to) ||
      !end_of(what->srcMemoryType, what->srcHost, what->srcDevice, what->srcXInBytes, what->srcY, it.from_pitch,
              it.from))
    return CUDA_ERROR_NOT_SUPPORTED;
  return result_of(copy(*stream, it, wait_for_end), *stream->context);
}

}  // namespace

API cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t bytes) { return copy_plainly(to, from, bytes, true); }
API cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return copy_bytes(to, from, bytes, stream, false);
}
API cuMemcpyDtoH_v2(void* to, CUdeviceptr from, size_t bytes) {
  return copy_plainly(address_of(to), from, bytes, true);
}
API cuMemcpyDtoHAsync_v2(void* to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return copy_bytes(address_of(to), from, bytes, stream, false);
}
API cuMemcpyHtoD_v2(CUdeviceptr to, const void* from, size_t bytes) {
  return copy_plainly(to, address_of(from), bytes, true);
}
API cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void* from, size_t bytes, CUstream stream) {
  return copy_bytes(to, address_of(from), bytes, stream, false);
}
/// Within a device it does not wait for the host, and on the default stream orders itself.
API cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes) { return copy_plainly(to, from, bytes, false); }
API cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return copy_bytes(to, from, bytes, stream, false);
}
API cuMemcpyPeer(CUdeviceptr to, CUcontext, CUdeviceptr from, CUcontext, size_t bytes) {
  return copy_plainly(to, from, bytes, false);
}
API cuMemcpyPeerAsync(CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context, size_t bytes,
                      CUstream stream) {
  if (!is_context(context_of(to_context)) || !is_context(context_of(from_context))) return CUDA_ERROR_INVALID_CONTEXT;
  return copy_bytes(to, from, bytes, stream, false);
}
API cuMemcpy2D_v2(const CUDA_MEMCPY2D* what) { return copy_2d(what, nullptr, true); }
API cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D* what) { return copy_2d(what, nullptr, true); }
API cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D* what, CUstream stream) { return copy_2d(what, stream, false); }

API cuMemsetD8_v2(CUdeviceptr to, unsigned char value, size_t number) { return set_plainly(to, number, value, 1); }
API cuMemsetD16_v2(CUdeviceptr to, unsigned short value, size_t number) {
  return set_plainly(to, number * 2, value, 2);
}
API cuMemsetD32_v2(CUdeviceptr to, unsigned value, size_t number) { return set_plainly(to, number * 4, value, 4); }
API cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t number, CUstream stream) {
  return set(to, number, value, 1, stream, false);
}
API cuMemsetD16Async(CUdeviceptr to, unsigned short value, size_t number, CUstream stream) {
  return set(to, number * 2, value, 2, stream, false);
}
API cuMemsetD32Async(CUdeviceptr to, unsigned value, size_t number, CUstream stream) {
  return set(to, number * 4, value, 4, stream, false);
}
