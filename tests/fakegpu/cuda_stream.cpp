// SPDX-License-Identifier: Apache-2.0
//
// The CUDA driver's streams, events, words in memory, modules and kernels.

#include <cstring>

#include "tests/fakegpu/cuda_driver.h"

namespace fakegpu::cuda {

CUresult stream_of(CUstream handle, Stream*& stream) {
  const auto number = reinterpret_cast<uintptr_t>(handle);
  if (number <= 2) {
    Context* context;
    if (const CUresult error = current(context)) return error;
    stream = &context->legacy;
    if (handle != CU_STREAM_PER_THREAD && captured_in(*context)) return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    if (handle == CU_STREAM_PER_THREAD) {
      static thread_local Stream* own;
      const Locked hold;
      if (own == nullptr || own->context != context) own = stream_create(*context, true, 0, 0);
      stream = own;
    }
    return CUDA_SUCCESS;
  }
  if (const CUresult error = ready()) return error;
  const Locked hold;
  stream = reinterpret_cast<Stream*>(handle);
  if (!is_stream(stream)) return CUDA_ERROR_INVALID_HANDLE;
  return state_of(*stream->context);
}

CUresult event_of(CUevent handle, Event*& event) {
  if (const CUresult error = ready()) return error;
  const Locked hold;
  event = reinterpret_cast<Event*>(handle);
  if (!is_event(event)) return CUDA_ERROR_INVALID_HANDLE;
  must_live(*event->context);
  return state_of(*event->context);
}

}  // namespace fakegpu::cuda

using namespace fakegpu;
using namespace fakegpu::cuda;

// --- Streams ---

API cuStreamCreateWithPriority(CUstream* to, unsigned flags, int priority) {
  Context* context;
  if (const CUresult error = current(context)) return error;
  if (flags > CU_STREAM_NON_BLOCKING) return CUDA_ERROR_INVALID_VALUE;
  const Locked hold;
  *to = reinterpret_cast<CUstream>(stream_create(*context, flags != CU_STREAM_NON_BLOCKING, flags, priority));
  return CUDA_SUCCESS;
}

API cuStreamCreate(CUstream* to, unsigned flags) { return cuStreamCreateWithPriority(to, flags, 0); }

API cuStreamDestroy_v2(CUstream handle) {
  Stream* stream;
  if (reinterpret_cast<uintptr_t>(handle) <= 2) return CUDA_ERROR_INVALID_HANDLE;
  if (const CUresult error = stream_of(handle, stream)) return error;
  const Locked hold;
  stream_destroy(stream);
  return CUDA_SUCCESS;
}

API cuStreamQuery(CUstream handle) {
  Stream* stream;
  if (const CUresult error = stream_of(handle, stream)) return error;
  count(Count::kQuery);
  const Locked hold;
  if (stream->capturing) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (const CUresult error = state_of(*stream->context)) return error;
  return done(*stream) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

API cuStreamSynchronize(CUstream handle) {
  Stream* stream;
  if (const CUresult error = stream_of(handle, stream)) return error;
  count(Count::kSync);
  if (stream->capturing) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  Context& context = *stream->context;
  return synchronize(context, *stream) ? CUDA_SUCCESS : state_of(context);
}

API cuStreamWaitEvent(CUstream handle, CUevent event_handle, unsigned) {
  Stream* stream;
  Event* event;
  if (const CUresult error = stream_of(handle, stream)) return error;
  if (const CUresult error = event_of(event_handle, event)) return error;
  const Locked hold;
  wait_event(*stream, *event);
  return CUDA_SUCCESS;
}

API cuStreamAddCallback(CUstream handle, CUstreamCallback function, void* data, unsigned) {
  Stream* stream;
  if (const CUresult error = stream_of(handle, stream)) return error;
  const Locked hold;
  enqueue_now(*stream, [=](Time) { function(handle, CUDA_SUCCESS, data); });
  return CUDA_SUCCESS;
}

API cuLaunchHostFunc(CUstream handle, CUhostFn function, void* data) {
  Stream* stream;
  if (const CUresult error = stream_of(handle, stream)) return error;
  const Locked hold;
  enqueue_now(*stream, [=](Time) { function(data); });
  return CUDA_SUCCESS;
}

API cuStreamGetCtx(CUstream handle, CUcontext* context) {
  Stream* stream;
  if (const CUresult error = stream_of(handle, stream)) return error;
  *context = handle_of(stream->context);
  return CUDA_SUCCESS;
}

API cuStreamGetFlags(CUstream handle, unsigned* flags) {
  Stream* stream;
  if (const CUresult error = stream_of(handle, stream)) return error;
  *flags = stream->flags;
  return CUDA_SUCCESS;
}

API cuStreamGetPriority(CUstream handle, int* priority) {
  Stream* stream;
  if (const CUresult error = stream_of(handle, stream)) return error;
  *priority = stream->priority;
  return CUDA_SUCCESS;
}

/// In each thread: whether calls that a capture forbids are forbidden to it.
API cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  if (const CUresult error = ready()) return error;
  const int before = capture_mode();
  capture_mode() = *mode;
  *mode = static_cast<CUstreamCaptureMode>(before);
  return CUDA_SUCCESS;
}

API cuStreamBeginCapture_v2(CUstream handle, CUstreamCaptureMode mode) {
  Stream* stream;
  if (const CUresult error = stream_of(handle, stream)) return error;
  return capture_begin(*stream, mode) ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

API cuStreamEndCapture(CUstream handle, CUgraph* graph) {
  Stream* stream;
  if (const CUresult error = stream_of(handle, stream)) return error;
  *graph = nullptr;
  if (!stream->capturing) return CUDA_ERROR_INVALID_VALUE;
  return capture_end(*stream) ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
}

API cuStreamIsCapturing(CUstream handle, CUstreamCaptureStatus* status) {
  Stream* stream;
  Context* context;
  // About the default stream it says so, too, but breaks no capture.
  if (reinterpret_cast<uintptr_t>(handle) <= 1 && current(context) == CUDA_SUCCESS && capturing_in(*context))
    return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  if (const CUresult error = stream_of(handle, stream)) return error;
  *status = stream->capturing ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
  return CUDA_SUCCESS;
}

// --- Words ---

namespace {

CUresult write(CUstream handle, CUdeviceptr to, uint64_t value, size_t bytes) {
  Stream* stream;
  if (const CUresult error = stream_of(handle, stream)) return error;
  return write_word(*stream, to, value, bytes) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult wait(CUstream handle, CUdeviceptr from, uint64_t value, unsigned flags, size_t bytes) {
  Stream* stream;
  if (const CUresult error = stream_of(handle, stream)) return error;
  return wait_word(*stream, from, value, ~uint64_t{0}, flags & 3, bytes) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace

API cuStreamWriteValue32_v2(CUstream stream, CUdeviceptr to, cuuint32_t value, unsigned) {
  return write(stream, to, value, 4);
}
API cuStreamWriteValue64_v2(CUstream stream, CUdeviceptr to, cuuint64_t value, unsigned) {
  return write(stream, to, value, 8);
}
API cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr from, cuuint32_t value, unsigned flags) {
  return wait(stream, from, value, flags, 4);
}
API cuStreamWaitValue64_v2(CUstream stream, CUdeviceptr from, cuuint64_t value, unsigned flags) {
  return wait(stream, from, value, flags, 8);
}

// --- Events ---

API cuEventCreate(CUevent* to, unsigned flags) {
  Context* context;
  if (const CUresult error = current(context)) return error;
  const Locked hold;
  *to = reinterpret_cast<CUevent>(event_create(*context, (flags & CU_EVENT_DISABLE_TIMING) == 0));
  return CUDA_SUCCESS;
}

API cuEventDestroy_v2(CUevent handle) {
  Event* event;
  if (const CUresult error = event_of(handle, event)) return error;
  const Locked hold;
  event_destroy(event);
  return CUDA_SUCCESS;
}

API cuEventRecord(CUevent handle, CUstream stream_handle) {
  Event* event;
  Stream* stream;
  if (const CUresult error = stream_of(stream_handle, stream)) return error;
  if (const CUresult error = event_of(handle, event)) return error;
  if (event->context != stream->context) return CUDA_ERROR_INVALID_HANDLE;
  count(Count::kEvent);
  const Locked hold;
  record(*event, *stream);
  return CUDA_SUCCESS;
}

API cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned) { return cuEventRecord(event, stream); }

API cuEventQuery(CUevent handle) {
  Event* event;
  if (capture_forbids()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (const CUresult error = event_of(handle, event)) return error;
  count(Count::kQuery);
  const Locked hold;
  if (const CUresult error = state_of(*event->context)) return error;
  return done(*event) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

API cuEventSynchronize(CUevent handle) {
  Event* event;
  if (const CUresult error = event_of(handle, event)) return error;
  count(Count::kSync);
  Context& context = *event->context;
  return synchronize(context, *event) ? CUDA_SUCCESS : state_of(context);
}

API cuEventElapsedTime(float* milliseconds, CUevent from_handle, CUevent to_handle) {
  Event *from, *to;
  if (const CUresult error = event_of(from_handle, from)) return error;
  if (const CUresult error = event_of(to_handle, to)) return error;
  const Locked hold;
  if (!from->timing || !to->timing || from->record == nullptr || to->record == nullptr)
    return CUDA_ERROR_INVALID_HANDLE;
  if (!from->record->done || !to->record->done) return CUDA_ERROR_NOT_READY;
  *milliseconds = elapsed(*from, *to);
  return CUDA_SUCCESS;
}

API cuEventElapsedTime_v2(float* milliseconds, CUevent from, CUevent to) {
  return cuEventElapsedTime(milliseconds, from, to);
}

// --- Kernels ---

namespace {

/// A cubin or a fat binary; else it is text.
bool is_code(const void* image) {
  constexpr unsigned char kElf[] = {0x7f, 'E', 'L', 'F'}, kFat[] = {0x50, 0xed, 0x55, 0xba};
  return memcmp(image, kElf, 4) == 0 || memcmp(image, kFat, 4) == 0;
}

}  // namespace

API cuModuleLoadData(CUmodule* module, const void* image) {
  Context* context;
  if (const CUresult error = current(context)) return error;
  if (image == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (is_code(image) ? !settings().code : !settings().text)
    return is_code(image) ? CUDA_ERROR_NO_BINARY_FOR_GPU : CUDA_ERROR_UNSUPPORTED_PTX_VERSION;
  *module = reinterpret_cast<CUmodule>(context);
  return CUDA_SUCCESS;
}

API cuModuleLoadDataEx(CUmodule* module, const void* image, unsigned, CUjit_option*, void**) {
  return cuModuleLoadData(module, image);
}
API cuModuleLoadFatBinary(CUmodule* module, const void* image) { return cuModuleLoadData(module, image); }
API cuModuleLoad(CUmodule* module, const char* path) { return cuModuleLoadData(module, path); }
API cuModuleUnload(CUmodule) { return ready(); }

API cuModuleGetFunction(CUfunction* function, CUmodule, const char* name) {
  if (const CUresult error = ready()) return error;
  *function = reinterpret_cast<CUfunction>(function_of(name));
  return *function != nullptr ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

API cuFuncSetAttribute(CUfunction, CUfunction_attribute, int) { return ready(); }

API cuFuncGetAttribute(int* value, CUfunction_attribute, CUfunction) {
  *value = 0;
  return ready();
}

API cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CUfunction, int, size_t) {
  *blocks = 2;
  return ready();
}

API cuLaunchKernel(CUfunction handle, unsigned x, unsigned y, unsigned z, unsigned threads_x, unsigned threads_y,
                   unsigned threads_z, unsigned, CUstream stream_handle, void** arguments, void** extra) {
  Context* context;
  if (const CUresult error = current(context)) return error;
  Stream* stream;
  if (const CUresult error = stream_of(stream_handle, stream)) return error;
  if (stream->context != context)
    return CUDA_ERROR_INVALID_CONTEXT;  // copies may go to other contexts' streams, kernels may not
  const auto* function = reinterpret_cast<const Function*>(handle);
  const uint64_t threads = uint64_t{threads_x} * threads_y * threads_z;
  if (function == nullptr || threads == 0 || threads > 1024 || uint64_t{x} * y * z == 0)
    return CUDA_ERROR_INVALID_VALUE;
  const Locked hold;
  launch(*stream, *function, x * y * z, static_cast<unsigned>(threads), arguments, extra);
  return CUDA_SUCCESS;
}
