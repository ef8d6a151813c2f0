// SPDX-License-Identifier: Apache-2.0
//
// A stand-in for CUPTI's callbacks (libcupti.so.12) over the stand-in driver: one subscriber, functions of the driver's
// domain, enabled one by one. FAKECUPTI=busy: somebody else is subscribed, as under a profiler.

#include <dlfcn.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#define API extern "C" __attribute__((visibility("default"))) int

namespace {

struct Data {  // CUpti_CallbackData
  int site;
  const char* function;
  const void* parameters;
  void* result;
  const char* symbol;
  void* context;
  uint32_t context_id;
  uint64_t* correlation;
  uint32_t correlation_id;
};
using Callback = void (*)(void*, int, uint32_t, const void*);

constexpr struct {
  const char* name;
  uint32_t id;
} kFunctions[] = {{"cuCtxSynchronize", 17},        {"cuStreamSynchronize", 126},
                  {"cuStreamQuery", 125},          {"cuEventSynchronize", 121},
                  {"cuEventQuery", 120},           {"cuEventRecord", 119},
                  {"cuEventRecordWithFlags", 587}, {"cuEventDestroy_v2", 325},
                  {"cuStreamCreate", 124},         {"cuStreamCreateWithPriority", 367},
                  {"cuStreamDestroy_v2", 326}};
constexpr unsigned kIds = 1000;
constexpr int kSuccess = 0, kInvalidParameter = 1, kInvalidId = 5, kNotInitialized = 15, kMultipleSubscribers = 39;

std::atomic<Callback> subscriber;
void* user_data;
std::atomic<bool> enabled[kIds];
std::atomic<uint32_t> correlations;

void tell(int exit, const char* name, const void* parameters, int* result, uint64_t* correlation, void* context) {
  const Callback callback = subscriber.load();
  for (const auto& function : kFunctions)
    if (callback != nullptr && strcmp(function.name, name) == 0 && enabled[function.id]) {
      const Data data = {exit, name, parameters, result, nullptr, context, 1, correlation, ++correlations};
      callback(user_data, 1, function.id, &data);
    }
}

}  // namespace

API cuptiSubscribe(void** handle, Callback callback, void* user) {
  if (handle == nullptr || callback == nullptr) return kInvalidParameter;
  const char* busy = getenv("FAKECUPTI");
  if ((busy != nullptr && strcmp(busy, "busy") == 0) || subscriber.load() != nullptr) return kMultipleSubscribers;
  void* driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
  using Set = void (*)(void (*)(int, const char*, const void*, int*, uint64_t*, void*));
  const auto set = driver != nullptr ? reinterpret_cast<Set>(dlsym(driver, "fakegpu_set_api_callback")) : nullptr;
  if (set == nullptr) return kNotInitialized;
  user_data = user;
  subscriber.store(callback);
  *handle = &subscriber;
  set(tell);
  return kSuccess;
}

API cuptiEnableCallback(uint32_t enable, void* handle, int domain, uint32_t id) {
  if (handle != &subscriber || domain != 1) return kInvalidParameter;
  if (id >= kIds) return kInvalidId;
  enabled[id] = enable != 0;
  return kSuccess;
}
