// SPDX-License-Identifier: Apache-2.0
//
// See driver_functions.h.

#include "shim/runtime/accelerators/driver_functions.h"

#include <dlfcn.h>

#include <atomic>

#include "shim/runtime/accelerators/cuda_api.h"
#include "shim/runtime/accelerators/hip_api.h"

namespace resil::gpu {

namespace {

template <class Function>
void find(void* library, Function** to, const char* name, const char* older = nullptr) {
  void* found = dlsym(library, name);
  if (found == nullptr && older != nullptr) found = dlsym(library, older);
  *to = reinterpret_cast<Function*>(found);
}

constinit cuda::Functions loaded = {};
constinit std::atomic<int> loaded_state;  // 0 not found so far, 1 being filled, 2 there

}  // namespace

void look_up(void* library, cuda::Functions* functions) {
#define X(member, symbol, hip, arguments) find(library, &functions->member, #symbol);
  RESIL_GPU_NEEDED(X)
  RESIL_GPU_OPTIONAL(X)
#undef X
#define X(member, symbol, older, arguments) find(library, &functions->member, #symbol, older);
  RESIL_CUDA_NEEDED(X)
  RESIL_CUDA_OPTIONAL(X)
#undef X
}

void look_up(void* library, hip::Functions* functions) {
#define X(member, cuda, symbol, arguments) find(library, &functions->member, #symbol);
  RESIL_GPU_NEEDED(X)
  RESIL_GPU_OPTIONAL(X)
#undef X
#define X(member, symbol, arguments) find(library, &functions->member, #symbol);
  RESIL_HIP_NEEDED(X)
  RESIL_HIP_OPTIONAL(X)
#undef X
  find(library, &functions->error_name, "hipGetErrorName");
}

const cuda::Functions* loaded_cuda() {
  if (loaded_state.load(std::memory_order_acquire) == 2) return &loaded;
  int expected = 0;
  if (!loaded_state.compare_exchange_strong(expected, 1)) return expected == 2 ? &loaded : nullptr;
  void* library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);  // kept: what is found must stay
  if (library != nullptr) look_up(library, &loaded);
  loaded_state.store(library != nullptr ? 2 : 0, std::memory_order_release);
  return library != nullptr ? &loaded : nullptr;
}

}  // namespace resil::gpu
