// SPDX-License-Identifier: Apache-2.0
//
// The HIP runtime's devices and errors. Each device has one context, which is made when it is needed.

#include <cstdio>
#include <cstring>

#include "tests/fakegpu/hip_runtime.h"
#include "tests/fakegpu/hsa.h"

namespace fakegpu::hip {

namespace {

thread_local hipError_t last_error = hipSuccess;
thread_local int device_of_thread;

FakeHsaAnswer answer(uintptr_t address) {
  const Locked hold;
  const Allocation* it = find(address);
  if (it == nullptr) return {};
  return {true, it->kind == Kind::kRegistered, it->kind == Kind::kDevice, it->device->ordinal, it->base, it->bytes};
}

}  // namespace

hipError_t said(hipError_t error) { return last_error = error; }

hipError_t ready() {
  if (inside_callback()) return hipErrorNotSupported;
  if (started()) return device(0) != nullptr ? hipSuccess : hipErrorNoDevice;
  const bool good = start();
  fakehsa_connect(answer);
  return good ? hipSuccess : hipErrorNoDevice;
}

hipError_t state_of(const Context& context) {
  if (context.destroyed) return hipErrorContextIsDestroyed;
  return context.poisoned ? hipErrorIllegalAddress : hipSuccess;
}

hipError_t context_for(int ordinal, Context*& context) {
  if (const hipError_t error = ready()) return error;
  const Locked hold;
  Device* it = device(ordinal);
  if (it == nullptr) return hipErrorInvalidDevice;
  if (it->primary == nullptr) it->primary = context_create(*it, true, 0);
  context = it->primary;
  return state_of(*context);
}

hipError_t current(Context*& context) { return context_for(device_of_thread, context); }

hipError_t result_of(Copied copied, const Context& context) {
  if (copied == Copied::kBadAddress) return hipErrorInvalidValue;
  return copied == Copied::kGone ? state_of(context) : hipSuccess;
}

namespace {

hipError_t checked(int ordinal) {
  if (const hipError_t error = ready()) return error;
  return device(ordinal) != nullptr ? hipSuccess : hipErrorInvalidDevice;
}

}  // namespace

}  // namespace fakegpu::hip

using namespace fakegpu;
using namespace fakegpu::hip;

API hipInit(unsigned flags) { return said(flags != 0 ? hipErrorInvalidValue : ready()); }

API hipDriverGetVersion(int* version) {
  if (const hipError_t error = ready()) return said(error);
  *version = HIP_VERSION;
  return said(hipSuccess);
}

API hipRuntimeGetVersion(int* version) { return hipDriverGetVersion(version); }

API hipGetLastError() {
  const hipError_t error = last_error;
  last_error = hipSuccess;
  return error;
}

API hipPeekAtLastError() { return last_error; }

extern "C" __attribute__((visibility("default"))) const char* hipGetErrorName(hipError_t error) {
  // clang-format off
#define NAME(word) \
  if (error == word) return #word;
  NAME(hipSuccess)
  NAME(hipErrorInvalidValue)
  NAME(hipErrorOutOfMemory) NAME(hipErrorNoDevice) NAME(hipErrorNotReady) NAME(hipErrorInvalidDevice)
      NAME(hipErrorInvalidHandle) NAME(hipErrorNotFound) NAME(hipErrorIllegalAddress) NAME(hipErrorContextIsDestroyed)
          NAME(hipErrorHostMemoryAlreadyRegistered) NAME(hipErrorHostMemoryNotRegistered) NAME(hipErrorNotSupported)
              NAME(hipErrorStreamCaptureUnsupported) NAME(hipErrorStreamCaptureImplicit) return "hipErrorUnknown";
  // clang-format on
}

extern "C" __attribute__((visibility("default"))) const char* hipGetErrorString(hipError_t error) {
  return hipGetErrorName(error);
}

API hipGetDeviceCount(int* number) {
  const hipError_t error = ready();
  for (*number = 0; error == hipSuccess && device(*number) != nullptr;) ++*number;
  return said(error);
}

API hipGetDevice(int* ordinal) {
  *ordinal = device_of_thread;
  return said(ready());
}

API hipSetDevice(int ordinal) {
  const hipError_t error = checked(ordinal);
  if (error == hipSuccess) device_of_thread = ordinal;
  return said(error);
}

API hipDeviceGet(hipDevice_t* to, int ordinal) {
  *to = ordinal;
  return said(checked(ordinal));
}

API hipDeviceGetName(char* name, int bytes, hipDevice_t ordinal) {
  snprintf(name, static_cast<size_t>(bytes), "stand-in %d", ordinal);
  return said(checked(ordinal));
}

API hipDeviceGetUuid(hipUUID* uuid, hipDevice_t ordinal) {
  memset(uuid, 0, sizeof(*uuid));
  memcpy(uuid, "stand-in", 8);
  reinterpret_cast<char*>(uuid)[15] = static_cast<char>(static_cast<unsigned>(ordinal) + settings().first);
  return said(checked(ordinal));
}

API hipDeviceGetPCIBusId(char* name, int bytes, int ordinal) {
  snprintf(name, static_cast<size_t>(bytes), "0000:%02x:00.0", ordinal + 1);
  return said(checked(ordinal));
}

API hipDeviceGetAttribute(int* value, hipDeviceAttribute_t attribute, int ordinal) {
  switch (attribute) {
    case hipDeviceAttributeMaxThreadsPerBlock: *value = 1024; break;
    case hipDeviceAttributeWarpSize: *value = 64; break;
    case hipDeviceAttributeMultiprocessorCount: *value = 8; break;
    case hipDeviceAttributeCanMapHostMemory:
    case hipDeviceAttributeManagedMemory:
    case hipDeviceAttributeUnifiedAddressing:
    case hipDeviceAttributeCanUseStreamWaitValue: *value = 1; break;
    default: *value = 0;
  }
  return said(checked(ordinal));
}

API hipDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 1;
  *greatest = -1;
  return said(ready());
}

API hipDeviceCanAccessPeer(int* can, int one, int other) {
  *can = one != other && settings().ipc != 3;
  const hipError_t error = checked(one);
  return said(error != hipSuccess ? error : checked(other));
}

API hipDeviceEnablePeerAccess(int peer, unsigned) { return said(checked(peer)); }

API hipDeviceSynchronize() {
  Context* context;
  if (const hipError_t error = current(context)) return said(error);
  count(Count::kSync);
  return said(synchronize(*context, *context) ? hipSuccess : state_of(*context));
}

API hipDeviceReset() {
  Context* context;
  if (const hipError_t error = current(context)) return said(error);
  const Locked hold;
  context_destroy(*context);
  context->device->primary = nullptr;
  return said(hipSuccess);
}
