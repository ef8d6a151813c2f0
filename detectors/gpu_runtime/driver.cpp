// SPDX-License-Identifier: Apache-2.0
//
// See driver.h.

#include "detectors/gpu_runtime/driver.h"

#include <dlfcn.h>

#include <atomic>

#include "shim/runtime/accelerators/cuda_api.h"
#include "shim/runtime/accelerators/hip_api.h"

namespace resil::gpu_runtime {

namespace {

constexpr unsigned kApis = 3;  // by Api
constinit Driver drivers[kApis] = {};
constinit std::atomic<int> state[kApis];  // 0 not looked for, 1 being filled, 2 there

/// A function whose addresses in device memory are integers, by one that has them as pointers: the same registers.
template <class To, class From>
void as_pointers(To& to, From from) {
  to = reinterpret_cast<To>(reinterpret_cast<void*>(from));
}

template <class Functions>
void fill_common(Driver& d, const Functions& found) {
  static_cast<gpu::DriverFunctions&>(d) = found;
  as_pointers(d.write_value, found.write_value);
  as_pointers(d.fill, found.fill);
  as_pointers(d.device_pointer, found.host_device_pointer);
  as_pointers(d.allocate, found.allocate);
}

bool fill_cuda(Driver& d) {
  const gpu::cuda::Functions* found = gpu::loaded_cuda();
  if (found == nullptr) return false;
  fill_common(d, *found);
  d.stream_id = found->stream_id;
  d.current_context = found->context_current;
  d.push_context = found->context_push;
  d.pop_context = found->context_pop;
  d.stream_context = found->stream_context;
  return d.current_context != nullptr && d.push_context != nullptr && d.pop_context != nullptr &&
         d.stream_context != nullptr;
}

bool fill_hip(Driver& d, const void* inside) {
  Dl_info info;
  void* library = nullptr;
  if (inside != nullptr && dladdr(inside, &info) != 0 && info.dli_fname != nullptr)
    library = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
  if (library == nullptr) return false;
  gpu::hip::Functions found = {};
  gpu::look_up(library, &found);
  fill_common(d, found);
  d.get_device = found.device_get;
  d.set_device = found.device_set;
  d.stream_device = found.stream_device;
  return d.get_device != nullptr && d.set_device != nullptr;
}

bool usable(const Driver& d) {
  return d.stream_query != nullptr && d.stream_synchronize != nullptr && d.event_query != nullptr &&
         d.event_synchronize != nullptr && d.host_register != nullptr && d.device_pointer != nullptr &&
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
