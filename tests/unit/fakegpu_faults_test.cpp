// SPDX-License-Identifier: Apache-2.0
//
// The faults that the stand-in GPU makes: each really happens, exactly as often as it counts, and nothing else changes.

#include <cstring>

#include "check.h"
#include "tests/unit/fakegpu_cuda.h"

TEST_CASE("no fault without being asked for") {
  CHECK(child("", [] {
          begin();
          const CUdeviceptr memory = device_memory(kBytes);
          char* host = pinned(kBytes);
          const CUstream lane = stream();
          for (int i = 0; i < 100; ++i) {
            memset(host, i, kBytes);
            cuMemcpyHtoDAsync_v2(memory, host, kBytes, lane);
            cuStreamSynchronize(lane);
            memset(host, -1, kBytes);
            cuMemcpyDtoHAsync_v2(host, memory, kBytes, lane);
            cuStreamSynchronize(lane);
            for (size_t k = 0; k < kBytes; ++k) NEED(host[k] == i);
          }
          NEED(fakegpu_faults() == 0);
        }) == 0);
}

TEST_CASE("early completions") {
  for (const char* settings : {"fault=early-event:1", "fault=early-stream:1", "fault=early-device:1"}) {
    INFO(settings);
    CHECK(child(settings, [settings] {
            begin();
            const CUdeviceptr memory = device_memory(kBytes);
            memset(fakegpu_host_view(reinterpret_cast<void*>(memory)), 9, kBytes);
            char* host = pinned(kBytes);
            const CUstream lane = stream();
            const CUevent mark = event();
            const char which = settings[12];
            Gate gate;
            for (uint64_t i = 0; i < 3; ++i) {
              memset(host, 0, kBytes);
              gate.close();
              gate.hold(lane);
              cuMemcpyDtoHAsync_v2(host, memory, kBytes, lane);
              cuEventRecord(mark, lane);
              NEED(fakegpu_faults() == i);
              NEED((which == 'e'   ? cuEventSynchronize(mark)
                    : which == 's' ? cuStreamSynchronize(lane)
                                   : cuCtxSynchronize()) == CUDA_SUCCESS);
              NEED(fakegpu_faults() == i + 1 && host[kBytes - 1] == 0);
              gate.open();
              while (cuStreamQuery(lane) == CUDA_ERROR_NOT_READY || cuStreamQuery(gate.lane) == CUDA_ERROR_NOT_READY)
                ;
              while (static_cast<volatile char*>(host)[kBytes - 1] != 9)  // it comes all the same
                ;
            }
          }) == 0);
  }
}

TEST_CASE("lost completions") {
  for (const char* settings : {"fault=lost-event:1", "fault=lost-stream:1", "fault=lost-device:1"}) {
    INFO(settings);
    CHECK(child(settings, [settings] {
            begin();
            const CUdeviceptr memory = device_memory(kBytes);
            char* host = pinned(kBytes);
            auto* word = reinterpret_cast<volatile uint64_t*>(pinned(8));
            const CUstream lane = stream();
            const CUevent mark = event();
            const char which = settings[11];
            cuMemcpyDtoHAsync_v2(host, memory, kBytes, lane);
            cuStreamWriteValue64_v2(lane, reinterpret_cast<CUdeviceptr>(word), 1, 0);
            cuEventRecord(mark, lane);
            while (*word == 0)
              ;
            if (which == 'e')
              for (int i = 0; i < 1000; ++i) NEED(cuEventQuery(mark) == CUDA_ERROR_NOT_READY);
            if (which == 's')
              for (int i = 0; i < 1000; ++i) NEED(cuStreamQuery(lane) == CUDA_ERROR_NOT_READY);
            NEED(cuStreamWaitEvent(lane, mark, 0) == CUDA_SUCCESS);  // the device is not in doubt
            std::thread release([] {
              while (fakegpu_faults() == 0)
                ;
              fakegpu_release();
            });
            NEED((which == 'e'   ? cuEventSynchronize(mark)
                  : which == 's' ? cuStreamSynchronize(lane)
                                 : cuCtxSynchronize()) == CUDA_SUCCESS);
            release.join();
            NEED(fakegpu_faults() == 1);
          }) == 0);
  }
}

TEST_CASE("spoilt copies") {
  CHECK(child("fault=corrupt-down:3:1000+corrupt-up:1:5000", [] {
          begin();
          const CUdeviceptr memory = device_memory(kBytes);
          char* host = pinned(kBytes);
          NEED(cuMemcpyHtoD_v2(memory, host, 4999) == CUDA_SUCCESS && fakegpu_faults() == 0);
          for (int i = 1; i <= 9; ++i) {
            memset(host, -1, kBytes);
            NEED(cuMemcpyDtoH_v2(host, memory, 999) == CUDA_SUCCESS);  // too short to count
            NEED(cuMemcpyDtoH_v2(host, memory, 4000) == CUDA_SUCCESS);
            unsigned bits = 0;
            for (size_t k = 0; k < 4000; ++k)
              bits += static_cast<unsigned>(__builtin_popcount(static_cast<unsigned char>(host[k])));
            NEED(bits == (i % 3 == 0 ? 1u : 0u));
          }
          NEED(fakegpu_faults() == 3);
          NEED(cuMemcpyHtoD_v2(memory, host, kBytes) == CUDA_SUCCESS && fakegpu_faults() == 4);
          NEED(memcmp(fakegpu_host_view(reinterpret_cast<void*>(memory)), host, kBytes) != 0);
        }) == 0);
  CHECK(child("fault=alias-down:2", [] {
          begin();
          const CUdeviceptr one = device_memory(100), other = device_memory(100);
          char* host = pinned(100);
          cuMemsetD8_v2(one, 1, 100);
          cuMemsetD8_v2(other, 2, 100);
          NEED(cuMemcpyDtoH_v2(host, one, 100) == CUDA_SUCCESS && host[50] == 1);
          NEED(cuMemcpyDtoH_v2(host, other, 100) == CUDA_SUCCESS && host[50] == 1 && fakegpu_faults() == 1);
          NEED(cuMemcpyDtoH_v2(host, other, 100) == CUDA_SUCCESS && host[50] == 2 && fakegpu_faults() == 1);
        }) == 0);
}

TEST_CASE("contexts that go under way") {
  CHECK(child("fault=gone:5", [] {
          begin();
          const CUdeviceptr memory = device_memory(kBytes);
          char* host = pinned(kBytes);
          const CUstream lane = stream();
          const CUevent mark = event();
          for (int i = 0; i < 4; ++i) NEED(cuMemcpyDtoHAsync_v2(host, memory, kBytes, lane) == CUDA_SUCCESS);
          cuEventRecord(mark, lane);
          NEED(cuEventQuery(mark) == CUDA_ERROR_CONTEXT_IS_DESTROYED);
          NEED(cuStreamSynchronize(lane) == CUDA_ERROR_CONTEXT_IS_DESTROYED);
          NEED(cuMemcpyDtoH_v2(host, memory, 1) == CUDA_ERROR_CONTEXT_IS_DESTROYED);
          NEED(fakegpu_faults() == 1);
          unsigned type = 0;
          NEED(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, memory) == CUDA_ERROR_INVALID_VALUE);
        }) == 0);
  std::string said;
  CHECK(child(
            "fault=typo", [] { cuInit(0); }, &said) == 1000 + SIGABRT);
  CHECK(said.find("'fault=typo'") != std::string::npos);
}
