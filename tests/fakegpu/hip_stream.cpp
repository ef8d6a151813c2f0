// SPDX-License-Identifier: Apache-2.0
//
// The HIP runtime's streams, events, words in memory, modules and kernels.

#include "tests/fakegpu/hip_runtime.h"

namespace fakegpu::hip {

hipError_t stream_of(hipStream_t handle, Stream*& stream) {
  if (handle == nullptr || handle == hipStreamPerThread) {
    Context* context;
    if (const hipError_t error = current(context)) return error;
    stream = &context->legacy;
    if (handle == nullptr && captured_in(*context)) return hipErrorStreamCaptureImplicit;
    if (handle == hipStreamPerThread) {
      static thread_local Stream* own;
      const Locked hold;
      if (own == nullptr || own->context != context) own = stream_create(*context, true, 0, 0);
      stream = own;
    }
    return hipSuccess;
  }
  if (const hipError_t error = ready()) return error;
  const Locked hold;
  stream = reinterpret_cast<Stream*>(handle);
  return is_stream(stream) ? state_of(*stream->context) : hipErrorInvalidHandle;
}

hipError_t event_of(hipEvent_t handle, Event*& event) {
  if (const hipError_t error = ready()) return error;
  const Locked hold;
  event = reinterpret_cast<Event*>(handle);
  return is_event(event) ? state_of(*event->context) : hipErrorInvalidHandle;
}

namespace {

hipError_t write(hipStream_t handle, void* to, uint64_t value, size_t bytes) {
  Stream* stream;
  if (const hipError_t error = stream_of(handle, stream)) return error;
  return write_word(*stream, reinterpret_cast<uintptr_t>(to), value, bytes) ? hipSuccess : hipErrorInvalidValue;
}

hipError_t wait(hipStream_t handle, void* from, uint64_t value, uint64_t mask, unsigned flags, size_t bytes) {
  Stream* stream;
  if (const hipError_t error = stream_of(handle, stream)) return error;
  return wait_word(*stream, reinterpret_cast<uintptr_t>(from), value, mask, flags, bytes) ? hipSuccess
                                                                                          : hipErrorInvalidValue;
}

}  // namespace

}  // namespace fakegpu::hip

using namespace fakegpu;
using namespace fakegpu::hip;

// --- Streams ---

API hipStreamCreateWithPriority(hipStream_t* to, unsigned flags, int priority) {
  Context* context;
  if (const hipError_t error = current(context)) return said(error);
  if (flags > hipStreamNonBlocking) return said(hipErrorInvalidValue);
  const Locked hold;
  *to = reinterpret_cast<hipStream_t>(stream_create(*context, flags != hipStreamNonBlocking, flags, priority));
  return said(hipSuccess);
}

API hipStreamCreateWithFlags(hipStream_t* to, unsigned flags) { return hipStreamCreateWithPriority(to, flags, 0); }
API hipStreamCreate(hipStream_t* to) { return hipStreamCreateWithPriority(to, 0, 0); }

API hipStreamDestroy(hipStream_t handle) {
  Stream* stream;
  if (handle == nullptr || handle == hipStreamPerThread) return said(hipErrorInvalidHandle);
  if (const hipError_t error = stream_of(handle, stream)) return said(error);
  const Locked hold;
  stream_destroy(stream);
  return said(hipSuccess);
}

API hipStreamQuery(hipStream_t handle) {
  Stream* stream;
  if (const hipError_t error = stream_of(handle, stream)) return said(error);
  count(Count::kQuery);
  const Locked hold;
  if (stream->capturing) return said(hipErrorStreamCaptureUnsupported);
  return said(done(*stream) ? hipSuccess : hipErrorNotReady);
}

API hipStreamSynchronize(hipStream_t handle) {
  Stream* stream;
  if (const hipError_t error = stream_of(handle, stream)) return said(error);
  count(Count::kSync);
  if (stream->capturing) return said(hipErrorStreamCaptureUnsupported);
  Context& context = *stream->context;
  return said(synchronize(context, *stream) ? hipSuccess : state_of(context));
}

API hipStreamWaitEvent(hipStream_t handle, hipEvent_t event_handle, unsigned) {
  Stream* stream;
  Event* event;
  if (const hipError_t error = stream_of(handle, stream)) return said(error);
  if (const hipError_t error = event_of(event_handle, event)) return said(error);
  const Locked hold;
  wait_event(*stream, *event);
  return said(hipSuccess);
}

API hipStreamAddCallback(hipStream_t handle, hipStreamCallback_t function, void* data, unsigned) {
  Stream* stream;
  if (const hipError_t error = stream_of(handle, stream)) return said(error);
  const Locked hold;
  enqueue_now(*stream, [=](Time) { function(handle, hipSuccess, data); });
  return said(hipSuccess);
}

API hipLaunchHostFunc(hipStream_t handle, hipHostFn_t function, void* data) {
  Stream* stream;
  if (const hipError_t error = stream_of(handle, stream)) return said(error);
  const Locked hold;
  enqueue_now(*stream, [=](Time) { function(data); });
  return said(hipSuccess);
}

API hipStreamGetFlags(hipStream_t handle, unsigned* flags) {
  Stream* stream;
  if (const hipError_t error = stream_of(handle, stream)) return said(error);
  *flags = stream->flags;
  return said(hipSuccess);
}

API hipThreadExchangeStreamCaptureMode(hipStreamCaptureMode* mode) {
  const int before = capture_mode();
  capture_mode() = *mode;
  *mode = static_cast<hipStreamCaptureMode>(before);
  return said(ready());
}

API hipStreamBeginCapture(hipStream_t handle, hipStreamCaptureMode mode) {
  Stream* stream;
  if (const hipError_t error = stream_of(handle, stream)) return said(error);
  return said(capture_begin(*stream, mode) ? hipSuccess : hipErrorStreamCaptureUnsupported);
}

API hipStreamEndCapture(hipStream_t handle, hipGraph_t* graph) {
  Stream* stream;
  if (const hipError_t error = stream_of(handle, stream)) return said(error);
  *graph = nullptr;
  if (!stream->capturing) return said(hipErrorInvalidValue);
  return said(capture_end(*stream) ? hipSuccess : hipErrorStreamCaptureInvalidated);
}

API hipStreamIsCapturing(hipStream_t handle, hipStreamCaptureStatus* status) {
  Stream* stream;
  if (const hipError_t error = stream_of(handle, stream)) return said(error);
  *status = stream->capturing ? hipStreamCaptureStatusActive : hipStreamCaptureStatusNone;
  return said(hipSuccess);
}

// --- Words ---

API hipStreamWriteValue32(hipStream_t stream, void* to, uint32_t value, unsigned) {
  return said(write(stream, to, value, 4));
}
API hipStreamWriteValue64(hipStream_t stream, void* to, uint64_t value, unsigned) {
  return said(write(stream, to, value, 8));
}
API hipStreamWaitValue32(hipStream_t stream, void* from, uint32_t value, unsigned flags, uint32_t mask) {
  return said(hip::wait(stream, from, value, mask, flags, 4));
}
API hipStreamWaitValue64(hipStream_t stream, void* from, uint64_t value, unsigned flags, uint64_t mask) {
  return said(hip::wait(stream, from, value, mask, flags, 8));
}

// --- Events ---

API hipEventCreateWithFlags(hipEvent_t* to, unsigned flags) {
  Context* context;
  if (const hipError_t error = current(context)) return said(error);
  const Locked hold;
  *to = reinterpret_cast<hipEvent_t>(event_create(*context, (flags & hipEventDisableTiming) == 0));
  return said(hipSuccess);
}

API hipEventCreate(hipEvent_t* to) { return hipEventCreateWithFlags(to, 0); }

API hipEventDestroy(hipEvent_t handle) {
  Event* event;
  if (const hipError_t error = event_of(handle, event)) return said(error);
  const Locked hold;
  event_destroy(event);
  return said(hipSuccess);
}

API hipEventRecord(hipEvent_t handle, hipStream_t stream_handle) {
  Event* event;
  Stream* stream;
  if (const hipError_t error = stream_of(stream_handle, stream)) return said(error);
  if (const hipError_t error = event_of(handle, event)) return said(error);
  if (event->context != stream->context) return said(hipErrorInvalidHandle);
  count(Count::kEvent);
  const Locked hold;
  record(*event, *stream);
  return said(hipSuccess);
}

API hipEventQuery(hipEvent_t handle) {
  Event* event;
  if (capture_forbids()) return said(hipErrorStreamCaptureUnsupported);
  if (const hipError_t error = event_of(handle, event)) return said(error);
  count(Count::kQuery);
  const Locked hold;
  return said(done(*event) ? hipSuccess : hipErrorNotReady);
}

API hipEventSynchronize(hipEvent_t handle) {
  Event* event;
  if (const hipError_t error = event_of(handle, event)) return said(error);
  count(Count::kSync);
  Context& context = *event->context;
  return said(synchronize(context, *event) ? hipSuccess : state_of(context));
}

API hipEventElapsedTime(float* milliseconds, hipEvent_t from_handle, hipEvent_t to_handle) {
  Event *from, *to;
  if (const hipError_t error = event_of(from_handle, from)) return said(error);
  if (const hipError_t error = event_of(to_handle, to)) return said(error);
  const Locked hold;
  if (!from->timing || !to->timing || from->record == nullptr || to->record == nullptr)
    return said(hipErrorInvalidHandle);
  if (!from->record->done || !to->record->done) return said(hipErrorNotReady);
  *milliseconds = elapsed(*from, *to);
  return said(hipSuccess);
}

// --- Kernels ---

API hipModuleLoadData(hipModule_t* module, const void* image) {
  Context* context;
  if (const hipError_t error = current(context)) return said(error);
  if (image == nullptr) return said(hipErrorInvalidValue);
  if (!settings().code) return said(hipErrorNoBinaryForGpu);
  *module = reinterpret_cast<hipModule_t>(context);
  return said(hipSuccess);
}

API hipModuleLoadDataEx(hipModule_t* module, const void* image, unsigned, hipJitOption*, void**) {
  return hipModuleLoadData(module, image);
}
API hipModuleLoad(hipModule_t* module, const char* path) { return hipModuleLoadData(module, path); }
API hipModuleUnload(hipModule_t) { return said(ready()); }

API hipModuleGetFunction(hipFunction_t* to, hipModule_t, const char* name) {
  if (const hipError_t error = ready()) return said(error);
  *to = reinterpret_cast<hipFunction_t>(function_of(name));
  return said(*to != nullptr ? hipSuccess : hipErrorNotFound);
}

API hipModuleLaunchKernel(hipFunction_t handle, unsigned x, unsigned y, unsigned z, unsigned threads_x,
                          unsigned threads_y, unsigned threads_z, unsigned, hipStream_t stream_handle, void** arguments,
                          void** extra) {
  Stream* stream;
  if (const hipError_t error = stream_of(stream_handle, stream)) return said(error);
  const auto* function = reinterpret_cast<const Function*>(handle);
  const uint64_t threads = uint64_t{threads_x} * threads_y * threads_z;
  if (function == nullptr || threads == 0 || threads > 1024 || uint64_t{x} * y * z == 0)
    return said(hipErrorInvalidValue);
  const Locked hold;
  launch(*stream, *function, x * y * z, static_cast<unsigned>(threads), arguments, extra);
  return said(hipSuccess);
}
