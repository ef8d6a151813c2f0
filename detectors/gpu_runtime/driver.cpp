// SPDX-License-Identifier: Apache-2.0
//
// See driver.h.

#include "detectors/gpu_runtime/driver.h"

#include <dlfcn.h>

#include <atomic>

namespace resil::gpu_runtime {

namespace {

constinit Driver drivers[2];
constinit std::atomic<int> state[2];  // 0 not looked for, 1 being filled, 2 there

template <class F>
void take(void* library, F& function, const char* name, const char* older = nullptr) {
  void* found = dlsym(library, name);
  if (found == nullptr && older != nullptr) found = dlsym(library, older);
  function = reinterpret_cast<F>(found);
}

/// The names are those that <cuda.h> gives the functions today; older drivers export them under the second name only.
bool fill_cuda(Driver& d) {
  void* library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
  if (library == nullptr) return false;
  take(library, d.stream_synchronize, "cuStreamSynchronize");
  take(library, d.stream_query, "cuStreamQuery");
  take(library, d.event_synchronize, "cuEventSynchronize");
  take(library, d.event_query, "cuEventQuery");
  take(library, d.device_synchronize, "cuCtxSynchronize");
  take(library, d.is_capturing, "cuStreamIsCapturing");
  take(library, d.exchange_capture_mode, "cuThreadExchangeStreamCaptureMode");
  take(library, d.write_value, "cuStreamWriteValue64_v2", "cuStreamWriteValue64");
  take(library, d.fill, "cuMemsetD32Async");
  take(library, d.register_host, "cuMemHostRegister_v2");
  take(library, d.device_pointer, "cuMemHostGetDevicePointer_v2");
  take(library, d.allocate, "cuMemAlloc_v2");
  take(library, d.stream_id, "cuStreamGetId");
  take(library, d.current_context, "cuCtxGetCurrent");
  take(library, d.push_context, "cuCtxPushCurrent_v2");
  take(library, d.pop_context, "cuCtxPopCurrent_v2");
  take(library, d.stream_context, "cuStreamGetCtx");
  return d.current_context != nullptr && d.push_context != nullptr && d.pop_context != nullptr &&
         d.stream_context != nullptr;
}

bool fill_hip(Driver& d, const void* inside) {
  Dl_info info;
  void* library = nullptr;
  if (inside != nullptr && dladdr(inside, &info) != 0 && info.dli_fname != nullptr)
    library = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
  if (library == nullptr) return false;
  take(library, d.stream_synchronize, "hipStreamSynchronize");
  take(library, d.stream_query, "hipStreamQuery");
  take(library, d.event_synchronize, "hipEventSynchronize");
  take(library, d.event_query, "hipEventQuery");
  take(library, d.device_synchronize, "hipDeviceSynchronize");
  take(library, d.is_capturing, "hipStreamIsCapturing");
  take(library, d.exchange_capture_mode, "hipThreadExchangeStreamCaptureMode");
  take(library, d.write_value, "hipStreamWriteValue64");
  take(library, d.fill, "hipMemsetD32Async");
  take(library, d.register_host, "hipHostRegister");
  take(library, d.device_pointer, "hipHostGetDevicePointer");
  take(library, d.allocate, "hipMalloc");
  take(library, d.get_device, "hipGetDevice");
  take(library, d.set_device, "hipSetDevice");
  take(library, d.stream_device, "hipStreamGetDevice");
  return d.get_device != nullptr && d.set_device != nullptr;
}

bool usable(const Driver& d) {
  return d.stream_query != nullptr && d.stream_synchronize != nullptr && d.event_query != nullptr &&
         d.event_synchronize != nullptr && d.register_host != nullptr && d.device_pointer != nullptr &&
         (d.write_value != nullptr || d.fill != nullptr);
}

void* device_handle(int device) { return reinterpret_cast<void*>(static_cast<uintptr_t>(device) + 1); }
int device_of(void* handle) { return static_cast<int>(reinterpret_cast<uintptr_t>(handle) - 1); }

bool special(const void* stream) { return reinterpret_cast<uintptr_t>(stream) <= 2; }

}  // namespace

const Driver* driver(Api api, const void* inside) {
  const auto i = static_cast<unsigned>(api);
  if (state[i].load(std::memory_order_acquire) == 2) [[likely]]
    return &drivers[i];
  int expected = 0;
  if (!state[i].compare_exchange_strong(expected, 1))
    return expected == 2 ? &drivers[i] : nullptr;  // another thread is at it: this call goes unchecked
  Driver d = {};
  d.api = api;
  const bool found = (api == Api::kCuda ? fill_cuda(d) : fill_hip(d, inside)) && usable(d);
  if (found) drivers[i] = d;
  state[i].store(found ? 2 : 0, std::memory_order_release);
  return found ? &drivers[i] : nullptr;
}

void* current_context(const Driver& driver) {
  void* context = nullptr;
  int device = 0;
  if (driver.api == Api::kCuda) return driver.current_context(&context) == kSuccess ? context : nullptr;
  return driver.get_device(&device) == kSuccess ? device_handle(device) : nullptr;
}

Current::Current(const Driver& driver, void* stream) : driver_(driver) {
  before_ = current_context(driver);
  context_ = before_;
  if (special(stream)) return;  // theirs is the current one
  int device = 0;
  if (driver.api == Api::kCuda) {
    if (driver.stream_context(stream, &context_) != kSuccess) context_ = nullptr;
    else if (context_ != before_ && context_ != nullptr) changed_ = driver.push_context(context_) == kSuccess;
  } else if (driver.stream_device != nullptr && before_ != nullptr) {
    if (driver.stream_device(stream, &device) != kSuccess) context_ = nullptr;
    else if (device_handle(device) != before_)
      context_ = device_handle(device), changed_ = driver.set_device(device) == kSuccess;
  }
  if (context_ != before_ && !changed_) context_ = nullptr;
}

Current::~Current() {
  void* popped = nullptr;
  if (!changed_) return;
  if (driver_.api == Api::kCuda) driver_.pop_context(&popped);
  else driver_.set_device(device_of(before_));
}

}  // namespace resil::gpu_runtime
