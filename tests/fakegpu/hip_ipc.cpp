// SPDX-License-Identifier: Apache-2.0
//
// The HIP runtime's handles of memory for other processes. Each opening is another mapping, unlike CUDA's.

#include <cstring>

#include "tests/fakegpu/hip_runtime.h"

using namespace fakegpu;
using namespace fakegpu::hip;

namespace {

hipError_t result_of(Ipc result) {
  switch (result) {
    case Ipc::kDone: return hipSuccess;
    case Ipc::kOwn: return hipErrorInvalidContext;
    case Ipc::kNoPeer: return hipErrorMapBufferObjectFailed;
    default: return hipErrorInvalidDevicePointer;
  }
}

}  // namespace

API hipIpcGetMemHandle(hipIpcMemHandle_t* handle, void* memory) {
  Context* context;
  if (handle == nullptr || memory == nullptr) return said(hipErrorInvalidValue);
  if (const hipError_t error = current(context)) return said(error);
  const Locked hold;
  Ticket ticket;
  const Ipc result = ipc_export(reinterpret_cast<uintptr_t>(memory), ticket);
  memset(handle, 0, sizeof(*handle));
  if (result == Ipc::kDone) memcpy(handle, &ticket, sizeof(ticket));
  return said(result_of(result));
}

API hipIpcOpenMemHandle(void** to, hipIpcMemHandle_t handle, unsigned flags) {
  Context* context;
  if (to == nullptr || flags != hipIpcMemLazyEnablePeerAccess) return said(hipErrorInvalidValue);
  if (const hipError_t error = current(context)) return said(error);
  const Locked hold;
  Ticket ticket;
  memcpy(&ticket, &handle, sizeof(ticket));
  uintptr_t base = 0;
  const Ipc result = ipc_open(*context, ticket, false, base);
  if (result == Ipc::kDone) *to = reinterpret_cast<void*>(base);
  return said(result_of(result));
}

/// Waits for the default stream first, as the real one does.
API hipIpcCloseMemHandle(void* memory) {
  Context* context;
  if (memory == nullptr) return said(hipErrorInvalidValue);
  if (const hipError_t error = current(context)) return said(error);
  if (!wait(*context, [context] { return idle(*context); })) return said(state_of(*context));
  const Locked hold;
  return said(ipc_close(reinterpret_cast<uintptr_t>(memory)) == Ipc::kDone ? hipSuccess : hipErrorInvalidValue);
}
