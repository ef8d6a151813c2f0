// SPDX-License-Identifier: Apache-2.0
//
// See driver_functions.h.

#include "shim/runtime/accelerators/driver_functions.h"

#include <dlfcn.h>

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

}  // namespace resil::gpu
