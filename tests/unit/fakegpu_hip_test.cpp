// SPDX-License-Identifier: Apache-2.0
//
// The stand-in's HIP and the ROCr beneath it. The engine is that of fakegpu_test.cpp.

#define __HIP_PLATFORM_AMD__
#include <hip/hip_runtime_api.h>
#include <hsa/hsa.h>
#include <hsa/hsa_ext_amd.h>

#include <cstring>

#include "tests/fakegpu/fakegpu.h"
#include "tests/unit/fakegpu_child.h"

namespace {

constexpr size_t kBytes = 100000;

hsa_amd_pointer_info_t rocr(const void* address) {
  hsa_amd_pointer_info_t info = {};
  info.size = sizeof(info);
  NEED(hsa_amd_pointer_info(const_cast<void*>(address), &info, nullptr, nullptr, nullptr) == HSA_STATUS_SUCCESS);
  return info;
}

bool on_device(const hsa_amd_pointer_info_t& info) {
  hsa_device_type_t type;
  NEED(hsa_agent_get_info(info.agentOwner, HSA_AGENT_INFO_DEVICE, &type) == HSA_STATUS_SUCCESS);
  return type == HSA_DEVICE_TYPE_GPU;
}

}  // namespace

TEST_CASE("HIP: memory, and who says what about it") {
  CHECK(child("devices=2", [] {
          hsa_amd_pointer_info_t info = {};
          info.size = sizeof(info);
          NEED(hsa_amd_pointer_info(&info, &info, nullptr, nullptr, nullptr) == HSA_STATUS_ERROR_NOT_INITIALIZED);
          void *memory = nullptr, *host = nullptr, *shared = nullptr;
          NEED(hipSetDevice(1) == hipSuccess && hipMalloc(&memory, kBytes) == hipSuccess);
          NEED(hipHostMalloc(&host, kBytes, 0) == hipSuccess && hipMallocManaged(&shared, kBytes, 1) == hipSuccess);
          hipPointerAttribute_t attributes;
          char* const inside = static_cast<char*>(memory) + 7;
          NEED(hipPointerGetAttributes(&attributes, inside) == hipSuccess);
          NEED(attributes.memoryType == hipMemoryTypeDevice && attributes.device == 1 &&
               attributes.devicePointer == inside);
          NEED(hipPointerGetAttributes(&attributes, &memory) == hipErrorInvalidValue);
          NEED(hipPeekAtLastError() == hipErrorInvalidValue && hipGetLastError() == hipErrorInvalidValue);
          NEED(hipGetLastError() == hipSuccess);
          NEED(rocr(&memory).type == HSA_EXT_POINTER_TYPE_UNKNOWN);
          NEED(rocr(inside).type == HSA_EXT_POINTER_TYPE_HSA && rocr(inside).agentBaseAddress == memory);
          NEED(rocr(inside).sizeInBytes == kBytes && on_device(rocr(inside)) && !on_device(rocr(host)));
          static char registered[4096];
          NEED(hipHostRegister(registered, sizeof(registered), 0) == hipSuccess);
          NEED(rocr(registered + 1).type == HSA_EXT_POINTER_TYPE_LOCKED);
          NEED(rocr(registered + 1).hostBaseAddress == registered);
          NEED(hipFree(memory) == hipSuccess && hipFree(shared) == hipSuccess && hipHostFree(host) == hipSuccess);
          NEED(hipFree(memory) == hipErrorInvalidValue);
          NEED(rocr(inside).type == HSA_EXT_POINTER_TYPE_UNKNOWN);
        }) == 0);
  std::string said;
  CHECK(child(
            "",
            [] {
              void* memory = nullptr;
              NEED(hipMalloc(&memory, kBytes) == hipSuccess);
              memset(memory, 0, 1);
            },
            &said) == 1000 + SIGSEGV);
  CHECK(said.find("fakegpu: host touched device memory") == 0);
}

TEST_CASE("HIP: streams, events, words, kernels") {
  CHECK(child("", [] {
          void *memory = nullptr, *host = nullptr, *word = nullptr, *gate = nullptr;
          hipStream_t lane = nullptr;
          hipEvent_t mark = nullptr;
          hipModule_t module = nullptr;
          hipFunction_t fill = nullptr;
          NEED(hipMalloc(&memory, kBytes) == hipSuccess && hipHostMalloc(&host, kBytes, 0) == hipSuccess);
          NEED(hipHostMalloc(&word, 8, 0) == hipSuccess && hipHostMalloc(&gate, 8, 0) == hipSuccess);
          NEED(hipStreamCreateWithFlags(&lane, hipStreamNonBlocking) == hipSuccess);
          NEED(hipEventCreateWithFlags(&mark, hipEventDisableTiming) == hipSuccess);
          NEED(hipModuleLoadData(&module, "image") == hipSuccess);
          NEED(hipModuleGetFunction(&fill, module, "nothing") == hipErrorNotFound);
          NEED(hipModuleGetFunction(&fill, module, "fakegpu_fill") == hipSuccess);
          NEED(hipStreamWaitValue64(lane, gate, 1, hipStreamWaitValueGte, ~uint64_t{0}) == hipSuccess);
          uint64_t number = kBytes / 4;
          uint32_t first = 5;
          void* arguments[] = {&memory, &number, &first};
          NEED(hipModuleLaunchKernel(fill, 1, 1, 1, 64, 1, 1, 0, lane, arguments, nullptr) == hipSuccess);
          NEED(hipMemcpyAsync(host, memory, kBytes, hipMemcpyDeviceToHost, lane) == hipSuccess);
          NEED(hipStreamWriteValue64(lane, word, 77, 0) == hipSuccess);
          NEED(hipEventRecord(mark, lane) == hipSuccess);
          NEED(hipEventQuery(mark) == hipErrorNotReady && *static_cast<uint64_t*>(word) == 0);
          *static_cast<volatile uint64_t*>(gate) = 1;
          NEED(hipEventSynchronize(mark) == hipSuccess && *static_cast<uint64_t*>(word) == 77);
          for (uint32_t i = 0; i < kBytes / 4; ++i) NEED(static_cast<uint32_t*>(host)[i] == 5 + i);
          NEED(hipStreamWaitValue32(lane, word, 0x102, hipStreamWaitValueEq, 0xFF) == hipSuccess);
          NEED(hipStreamQuery(lane) == hipErrorNotReady);
          *static_cast<volatile uint32_t*>(word) = 0xFF02;
          NEED(hipDeviceSynchronize() == hipSuccess && hipStreamQuery(lane) == hipSuccess);
        }) == 0);
}

TEST_CASE("HIP: memory of another process") {
  CHECK(child("", [] {
          int ends[2];
          NEED(pipe(ends) == 0);
          if (fork() == 0) {
            void *memory = nullptr, *again = nullptr;
            hipIpcMemHandle_t handle;
            NEED(read(ends[0], &handle, sizeof(handle)) == sizeof(handle));
            NEED(hipIpcOpenMemHandle(&memory, handle, 7) == hipErrorInvalidValue);
            NEED(hipIpcOpenMemHandle(&memory, handle, hipIpcMemLazyEnablePeerAccess) == hipSuccess);
            NEED(hipIpcOpenMemHandle(&again, handle, hipIpcMemLazyEnablePeerAccess) == hipSuccess && again != memory);
            NEED(on_device(rocr(memory)) && hipMemset(again, 6, kBytes) == hipSuccess);
            NEED(hipDeviceSynchronize() == hipSuccess &&
                 static_cast<char*>(fakegpu_host_view(memory))[kBytes - 1] == 6);
            NEED(hipIpcCloseMemHandle(again) == hipSuccess && hipIpcCloseMemHandle(again) == hipErrorInvalidValue);
            NEED(hipFree(memory) == hipErrorInvalidValue && hipIpcCloseMemHandle(memory) == hipSuccess);
            _exit(0);
          }
          void *memory = nullptr, *host = nullptr;
          hipIpcMemHandle_t handle;
          NEED(hipMalloc(&memory, kBytes) == hipSuccess && hipHostMalloc(&host, kBytes, 0) == hipSuccess);
          NEED(hipIpcGetMemHandle(&handle, host) == hipErrorInvalidDevicePointer);
          NEED(hipIpcGetMemHandle(&handle, memory) == hipSuccess);
          NEED(hipIpcOpenMemHandle(&host, handle, hipIpcMemLazyEnablePeerAccess) == hipErrorInvalidContext);
          NEED(write(ends[1], &handle, sizeof(handle)) == sizeof(handle));
          int status = 0;
          NEED(waitpid(-1, &status, 0) > 0 && status == 0);
          NEED(static_cast<char*>(fakegpu_host_view(memory))[kBytes - 1] == 6 && hipFree(memory) == hipSuccess);
        }) == 0);
}
