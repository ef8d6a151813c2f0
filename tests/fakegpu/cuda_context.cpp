// SPDX-License-Identifier: Apache-2.0
//
// The CUDA driver's beginning: initialisation and injection, devices, contexts, names of errors and functions.

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "tests/fakegpu/cuda_driver.h"

namespace fakegpu::cuda {

namespace {

thread_local std::vector<Context*>* stack;

std::vector<Context*>& contexts() {
  if (stack == nullptr) stack = new std::vector<Context*>;  // never freed: threads of a test are few
  return *stack;
}

constexpr int kVersion = 12040;

}  // namespace

void must_live(const Context& context) {
  if (!context.destroyed || context.primary || (!contexts().empty() && contexts().back() == &context)) return;
  fprintf(stderr, "fakegpu: a handle of a context that has been destroyed was given to the driver\n");
  abort();
}

CUresult current(Context*& context) {
  if (const CUresult error = ready()) return error;
  if (contexts().empty() || contexts().back() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  context = contexts().back();
  return state_of(*context);
}

Context* primary(Device& device) {
  if (device.primary == nullptr || device.primary->destroyed) device.primary = context_create(device, true, 0);
  return device.primary;
}

CUresult result_of(Copied copied, const Context& context) {
  if (copied == Copied::kBadAddress) return CUDA_ERROR_INVALID_VALUE;
  return copied == Copied::kGone ? state_of(context) : CUDA_SUCCESS;
}

namespace {

void inject() {
  const char* path = getenv("CUDA_INJECTION64_PATH");
  if (path == nullptr || path[0] == 0) return;
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  auto* begin = library != nullptr ? reinterpret_cast<int (*)()>(dlsym(library, "InitializeInjection")) : nullptr;
  if (begin != nullptr) begin();
}

CUresult checked_device(CUdevice ordinal, Device*& to) {
  if (const CUresult error = ready()) return error;
  to = device(ordinal);
  return to != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

}  // namespace

}  // namespace fakegpu::cuda

using namespace fakegpu;
using namespace fakegpu::cuda;

API cuInit(unsigned flags) {
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  static std::once_flag once;
  bool first = false;
  const bool good = start();
  std::call_once(once, [&] { first = true; });
  if (first && good) inject();
  return good ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE;
}

API cuDriverGetVersion(int* version) {
  *version = kVersion;
  return CUDA_SUCCESS;
}

API cuGetErrorName(CUresult error, const char** name) {
#define NAME(word, value) \
  if (error == word) {    \
    *name = #word;        \
    return CUDA_SUCCESS;  \
  }
  FAKEGPU_VALUES(NAME)
  *name = nullptr;
  return CUDA_ERROR_INVALID_VALUE;
}

API cuGetErrorString(CUresult error, const char** text) { return cuGetErrorName(error, text); }

/// Names here have one version each; the newest of a name is what programs ask for.
API cuGetProcAddress_v2(const char* symbol, void** function, int version, cuuint64_t,
                        CUdriverProcAddressQueryResult* status) {
  if (symbol == nullptr || function == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Dl_info self;
  *function = nullptr;
  if (dladdr(reinterpret_cast<void*>(cuInit), &self) != 0) {
    void* library = dlopen(self.dli_fname, RTLD_NOW | RTLD_NOLOAD);
    char name[160];
    for (const char* suffix : {"_v4", "_v2", ""}) {
      if (strcmp(suffix, "_v4") == 0 && version < 12050) continue;
      if (strcmp(symbol, "cuGetProcAddress") == 0 && version < 12000 && suffix[0] != 0) continue;
      snprintf(name, sizeof(name), "%s%s", symbol, suffix);
      if (strncmp(symbol, "cu", 2) == 0 && *function == nullptr) *function = dlsym(library, name);
    }
    if (library != nullptr) dlclose(library);
  }
  if (status != nullptr)
    *status = *function != nullptr ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  return *function != nullptr || status != nullptr ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

API cuGetProcAddress(const char* symbol, void** function, int version, cuuint64_t flags) {
  return cuGetProcAddress_v2(symbol, function, version, flags, nullptr);
}

// --- Devices ---

API cuDeviceGetCount(int* number) {
  if (const CUresult error = ready()) return error;
  for (*number = 0; device(*number) != nullptr;) ++*number;
  return CUDA_SUCCESS;
}

API cuDeviceGet(CUdevice* to, int ordinal) {
  Device* it;
  if (const CUresult error = checked_device(ordinal, it)) return error;
  *to = ordinal;
  return CUDA_SUCCESS;
}

API cuDeviceGetName(char* name, int bytes, CUdevice ordinal) {
  Device* it;
  if (const CUresult error = checked_device(ordinal, it)) return error;
  snprintf(name, static_cast<size_t>(bytes), "stand-in %d", ordinal);
  return CUDA_SUCCESS;
}

API cuDeviceGetPCIBusId(char* name, int bytes, CUdevice ordinal) {
  Device* it;
  if (const CUresult error = checked_device(ordinal, it)) return error;
  snprintf(name, static_cast<size_t>(bytes), "0000:%02x:00.0", ordinal + 1);
  return CUDA_SUCCESS;
}

API cuDeviceGetByPCIBusId(CUdevice* to, const char* name) {
  unsigned bus;
  Device* it;
  if (sscanf(name, "0000:%x:00.0", &bus) != 1) return CUDA_ERROR_INVALID_VALUE;
  *to = static_cast<int>(bus) - 1;
  return checked_device(*to, it);
}

API cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice ordinal) {
  Device* it;
  if (const CUresult error = checked_device(ordinal, it)) return error;
  memset(uuid, 0, sizeof(*uuid));
  memcpy(uuid, "stand-in", 8);
  reinterpret_cast<char*>(uuid)[15] = static_cast<char>(static_cast<unsigned>(ordinal) + settings().first);
  return CUDA_SUCCESS;
}

API cuDeviceTotalMem_v2(size_t* bytes, CUdevice ordinal) {
  Device* it;
  if (const CUresult error = checked_device(ordinal, it)) return error;
  *bytes = settings().memory;
  return CUDA_SUCCESS;
}

API cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice ordinal) {
  Device* it;
  if (const CUresult error = checked_device(ordinal, it)) return error;
  switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK: *value = 1024; break;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK: *value = 49152; break;
    case CU_DEVICE_ATTRIBUTE_WARP_SIZE: *value = 32; break;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: *value = 8; break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: *value = 8; break;
    case CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT: *value = 2; break;
    case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID: *value = ordinal + 1; break;
    case CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY:
    case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING:
    case CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY:
    case CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM: *value = 1; break;
    default: *value = attribute >= 92 && attribute <= 94;  // stream memory operations, as old headers number them
  }
  return CUDA_SUCCESS;
}

API cuDeviceCanAccessPeer(int* can, CUdevice one, CUdevice other) {
  Device* it;
  if (const CUresult error = checked_device(one, it)) return error;
  *can = one != other && settings().ipc != 3;
  return checked_device(other, it);
}

// --- Contexts ---

API cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice ordinal) {
  Device* it;
  if (const CUresult error = checked_device(ordinal, it)) return error;
  const Locked hold;
  ++it->primary_users;
  *context = handle_of(primary(*it));
  return CUDA_SUCCESS;
}

API cuDevicePrimaryCtxRelease_v2(CUdevice ordinal) {
  Device* it;
  if (const CUresult error = checked_device(ordinal, it)) return error;
  const Locked hold;
  if (it->primary_users == 0) return CUDA_ERROR_INVALID_CONTEXT;
  if (--it->primary_users == 0 && it->primary != nullptr) context_destroy(*it->primary);
  return CUDA_SUCCESS;
}

API cuDevicePrimaryCtxReset_v2(CUdevice ordinal) {
  Device* it;
  if (const CUresult error = checked_device(ordinal, it)) return error;
  const Locked hold;
  if (it->primary != nullptr && !it->primary->destroyed) context_destroy(*it->primary);
  return CUDA_SUCCESS;
}

API cuDevicePrimaryCtxGetState(CUdevice ordinal, unsigned* flags, int* active) {
  Device* it;
  if (const CUresult error = checked_device(ordinal, it)) return error;
  const Locked hold;
  *active = it->primary != nullptr && !it->primary->destroyed;
  *flags = *active ? it->primary->flags : 0;
  return CUDA_SUCCESS;
}

API cuDevicePrimaryCtxSetFlags_v2(CUdevice ordinal, unsigned flags) {
  Device* it;
  if (const CUresult error = checked_device(ordinal, it)) return error;
  const Locked hold;
  primary(*it)->flags = flags;
  return CUDA_SUCCESS;
}

API cuCtxCreate_v2(CUcontext* context, unsigned flags, CUdevice ordinal) {
  Device* it;
  if (const CUresult error = checked_device(ordinal, it)) return error;
  const Locked hold;
  *context = handle_of(context_create(*it, false, flags));
  contexts().push_back(context_of(*context));
  return CUDA_SUCCESS;
}

API cuCtxCreate_v4(CUcontext* context, CUctxCreateParams*, unsigned flags, CUdevice ordinal) {
  return cuCtxCreate_v2(context, flags, ordinal);
}

API cuCtxDestroy_v2(CUcontext handle) {
  if (const CUresult error = ready()) return error;
  Context* context = context_of(handle);
  {
    const Locked hold;
    if (!is_context(context) || context->primary) return CUDA_ERROR_INVALID_CONTEXT;
    if (const CUresult error = context->destroyed ? CUDA_ERROR_CONTEXT_IS_DESTROYED : CUDA_SUCCESS) return error;
    context_destroy(*context);
  }
  if (!contexts().empty() && contexts().back() == context) contexts().pop_back();
  return CUDA_SUCCESS;
}

API cuCtxPushCurrent_v2(CUcontext handle) {
  if (const CUresult error = ready()) return error;
  const Locked hold;
  if (!is_context(context_of(handle))) return CUDA_ERROR_INVALID_CONTEXT;
  must_live(*context_of(handle));
  if (context_of(handle)->destroyed) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  contexts().push_back(context_of(handle));
  return CUDA_SUCCESS;
}

API cuCtxPopCurrent_v2(CUcontext* handle) {
  if (const CUresult error = ready()) return error;
  if (contexts().empty()) return CUDA_ERROR_INVALID_CONTEXT;
  if (handle != nullptr) *handle = handle_of(contexts().back());
  contexts().pop_back();
  return CUDA_SUCCESS;
}

API cuCtxSetCurrent(CUcontext handle) {
  if (const CUresult error = ready()) return error;
  const Locked hold;
  if (handle != nullptr && !is_context(context_of(handle))) return CUDA_ERROR_INVALID_CONTEXT;
  if (handle != nullptr && context_of(handle)->destroyed) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  if (!contexts().empty()) contexts().pop_back();
  if (handle != nullptr) contexts().push_back(context_of(handle));
  return CUDA_SUCCESS;
}

API cuCtxGetCurrent(CUcontext* handle) {
  if (const CUresult error = ready()) return error;
  *handle = contexts().empty() ? nullptr : handle_of(contexts().back());
  return CUDA_SUCCESS;
}

API cuCtxGetDevice(CUdevice* ordinal) {
  Context* context;
  if (const CUresult error = current(context)) return error;
  *ordinal = context->device->ordinal;
  return CUDA_SUCCESS;
}

API cuCtxGetFlags(unsigned* flags) {
  Context* context;
  if (const CUresult error = current(context)) return error;
  *flags = context->flags;
  return CUDA_SUCCESS;
}

API cuCtxSetFlags(unsigned flags) {
  Context* context;
  if (const CUresult error = current(context)) return error;
  const Locked hold;
  context->flags = flags;
  return CUDA_SUCCESS;
}

API cuCtxGetApiVersion(CUcontext, unsigned* version) {
  *version = 3020;
  return ready();
}

API cuCtxGetId(CUcontext handle, unsigned long long* id) {
  Context* context = context_of(handle);
  if (const CUresult error = handle != nullptr ? ready() : current(context)) return error;
  const Locked hold;
  if (!is_context(context)) return CUDA_ERROR_INVALID_CONTEXT;
  must_live(*context);
  *id = context->id;
  return state_of(*context);
}

API cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  Context* context;
  if (const CUresult error = current(context)) return error;
  if (least != nullptr) *least = 0;
  if (greatest != nullptr) *greatest = -5;
  return CUDA_SUCCESS;
}

API cuCtxSynchronize() {
  Context* context;
  if (const CUresult error = current(context)) return error;
  count(Count::kSync);
  return synchronize(*context, *context) ? CUDA_SUCCESS : state_of(*context);
}

API cuCtxEnablePeerAccess(CUcontext handle, unsigned) {
  Context* context;
  if (const CUresult error = current(context)) return error;
  const Locked hold;
  if (!is_context(context_of(handle))) return CUDA_ERROR_INVALID_CONTEXT;
  return context_of(handle)->device == context->device ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
}

API cuCtxDisablePeerAccess(CUcontext) {
  Context* context;
  return current(context);
}
