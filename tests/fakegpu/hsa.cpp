// SPDX-License-Identifier: Apache-2.0
//
// libhsa-runtime64.so.1 of the stand-in: what tools ask ROCr about pointers and agents. See hsa.h.

#include <hsa/hsa.h>
#include <hsa/hsa_ext_amd.h>

#include <atomic>
#include <cstring>

#include "tests/fakegpu/hsa.h"

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {

std::atomic<FakeHsaAsk*> asked;
constexpr uint64_t kHostAgent = 1, kFirstDeviceAgent = 16;

}  // namespace

EXPORT void fakehsa_connect(FakeHsaAsk* ask) { asked = ask; }

EXPORT hsa_status_t hsa_amd_pointer_info(const void* address, hsa_amd_pointer_info_t* info, void* (*)(size_t),
                                         uint32_t*, hsa_agent_t**) {
  FakeHsaAsk* ask = asked;
  if (ask == nullptr) return HSA_STATUS_ERROR_NOT_INITIALIZED;
  if (info == nullptr || info->size < offsetof(hsa_amd_pointer_info_t, global_flags))
    return HSA_STATUS_ERROR_INVALID_ARGUMENT;
  const FakeHsaAnswer answer = ask(reinterpret_cast<uintptr_t>(address));
  hsa_amd_pointer_info_t full = {};
  full.size = info->size;
  full.type = HSA_EXT_POINTER_TYPE_UNKNOWN;
  if (answer.known) {
    full.type = answer.registered ? HSA_EXT_POINTER_TYPE_LOCKED : HSA_EXT_POINTER_TYPE_HSA;
    full.agentBaseAddress = reinterpret_cast<void*>(answer.base);
    full.hostBaseAddress = answer.device ? nullptr : full.agentBaseAddress;
    full.sizeInBytes = answer.bytes;
    full.agentOwner.handle = answer.device ? kFirstDeviceAgent + static_cast<uint64_t>(answer.ordinal) : kHostAgent;
  }
  memcpy(info, &full, info->size < sizeof(full) ? info->size : sizeof(full));
  return HSA_STATUS_SUCCESS;
}

EXPORT hsa_status_t hsa_agent_get_info(hsa_agent_t agent, hsa_agent_info_t attribute, void* value) {
  if (asked == nullptr) return HSA_STATUS_ERROR_NOT_INITIALIZED;
  if (attribute != HSA_AGENT_INFO_DEVICE) return HSA_STATUS_ERROR_INVALID_ARGUMENT;
  const hsa_device_type_t type = agent.handle == kHostAgent ? HSA_DEVICE_TYPE_CPU : HSA_DEVICE_TYPE_GPU;
  memcpy(value, &type, sizeof(type));
  return HSA_STATUS_SUCCESS;
}
