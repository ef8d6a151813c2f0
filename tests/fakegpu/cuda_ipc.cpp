// SPDX-License-Identifier: Apache-2.0
//
// The CUDA driver's handles of memory for other processes.

#include <cstring>

#include "tests/fakegpu/cuda_driver.h"

using namespace fakegpu;
using namespace fakegpu::cuda;

namespace {

/// Of opening: a handle of the process's own is an "invalid device context", as with the real driver.
CUresult result_of(Ipc result) {
  switch (result) {
    case Ipc::kDone: return CUDA_SUCCESS;
    case Ipc::kBadAddress: return CUDA_ERROR_INVALID_VALUE;
    case Ipc::kRefused: return CUDA_ERROR_MAP_FAILED;
    case Ipc::kOwn: return CUDA_ERROR_INVALID_CONTEXT;
    case Ipc::kGone: return CUDA_ERROR_INVALID_HANDLE;
    case Ipc::kNoPeer: return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
  }
  return CUDA_ERROR_UNKNOWN;
}

}  // namespace

/// Of an address within an allocation it is the allocation's.
API cuIpcGetMemHandle(CUipcMemHandle* handle, CUdeviceptr memory) {
  Context* context;
  if (const CUresult error = current(context)) return error;
  if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Locked hold;
  Ticket ticket;
  const Ipc result = ipc_export(memory, ticket);
  if (result == Ipc::kRefused) return CUDA_ERROR_NOT_SUPPORTED;
  memset(handle, 0, sizeof(*handle));
  if (result == Ipc::kDone) memcpy(handle, &ticket, sizeof(ticket));
  return result_of(result);
}

/// Opened again in the same context it is the same address, and must be closed as often.
API cuIpcOpenMemHandle_v2(CUdeviceptr* to, CUipcMemHandle handle, unsigned flags) {
  Context* context;
  if (const CUresult error = current(context)) return error;
  if (to == nullptr || flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) return CUDA_ERROR_INVALID_VALUE;
  if (capture_forbids()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  const Locked hold;
  Ticket ticket;
  memcpy(&ticket, &handle, sizeof(ticket));
  uintptr_t base = 0;
  const Ipc result = ipc_open(*context, ticket, true, base);
  if (result == Ipc::kDone) *to = base;
  return result_of(result);
}

/// Waits for the work of the context, as freeing does.
API cuIpcCloseMemHandle(CUdeviceptr memory) {
  Context* context;
  if (const CUresult error = current(context)) return error;
  if (!wait(*context, [context] { return idle(*context); })) return state_of(*context);
  const Locked hold;
  return result_of(ipc_close(memory));
}
