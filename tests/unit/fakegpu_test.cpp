// SPDX-License-Identifier: Apache-2.0
//
// The stand-in GPU keeps what tests/fakegpu/fakegpu.h promises; without that, tests that pass on it say nothing.

#include <cstring>

#include "check.h"
#include "tests/unit/fakegpu_cuda.h"

TEST_CASE("the host cannot touch device memory") {
  std::string said;
  const auto read_it = [] {
    begin();
    const CUdeviceptr memory = device_memory(kBytes);
    const volatile char value = *reinterpret_cast<const volatile char*>(memory + 77);
    (void)value;
  };
  CHECK(child("", read_it, &said) == 1000 + SIGSEGV);
  INFO(said);
  CHECK(said.find("fakegpu: host touched device memory at 0x") == 0);
  CHECK(said.find("+77 of 100000 bytes") != std::string::npos);
  CHECK(said.find('\n') == said.size() - 1);
  said.clear();
  const auto write_freed = [] {
    begin();
    const CUdeviceptr memory = device_memory(kBytes);
    NEED(cuMemFree_v2(memory) == CUDA_SUCCESS);
    *reinterpret_cast<volatile char*>(memory) = 1;
  };
  CHECK(child("", write_freed, &said) == 1000 + SIGSEGV);
  CHECK(said.find("freed or never given out") != std::string::npos);
  // Other faults are as they were.
  said.clear();
  CHECK(child(
            "",
            [] {
              begin();
              raise(SIGSEGV);
            },
            &said) == 1000 + SIGSEGV);
  CHECK(said.empty());
}

TEST_CASE("a copy is there at its due time, and not before") {
  CHECK(child("down=0.01,up=0.01,overdue=0", [] {
          begin();
          const CUdeviceptr memory = device_memory(kBytes);
          char *from = pinned(kBytes), *to = pinned(kBytes);
          memset(from, 1, kBytes);
          const CUstream lane = stream();
          const double start = fakegpu_now();
          NEED(cuMemcpyHtoDAsync_v2(memory, from, kBytes, lane) == CUDA_SUCCESS);  // 10 ms
          NEED(cuMemcpyDtoHAsync_v2(to, memory, kBytes, lane) == CUDA_SUCCESS);  // 10 ms more
          const CUevent end = event();
          NEED(cuEventRecord(end, lane) == CUDA_SUCCESS);
          from[5] = 2;  // the source may still change
          while (cuEventQuery(end) == CUDA_ERROR_NOT_READY)
            if (fakegpu_now() - start < 0.020) NEED(to[0] == 0);
          NEED(fakegpu_now() - start >= 0.020);
          NEED(to[0] == 1 && to[5] == 2 && to[kBytes - 1] == 1);
          NEED(fakegpu_count("down") == 1 && fakegpu_count("up") == 1 && fakegpu_count("pageable") == 0);
          NEED(cuStreamQuery(lane) == CUDA_SUCCESS);
        }) == 0);
}

TEST_CASE("one engine each way") {
  CHECK(child("down=0.02,up=0.02", [] {
          begin();
          const CUdeviceptr memory = device_memory(2 * kBytes);
          char* host = pinned(2 * kBytes);
          const CUstream lanes[] = {stream(), stream(), stream()};
          CUevent before[3] = {}, after[3] = {};
          const Gate gate;
          for (int i = 0; i < 3; ++i) {
            cuEventCreate(&before[i], 0), cuEventCreate(&after[i], 0);
            gate.hold(lanes[i]);
            cuEventRecord(before[i], lanes[i]);
            if (i < 2) cuMemcpyDtoHAsync_v2(host, memory, kBytes, lanes[i]);  // 5 ms each
            else cuMemcpyHtoDAsync_v2(memory + kBytes, host + kBytes, kBytes, lanes[i]);
            cuEventRecord(after[i], lanes[i]);
          }
          gate.open();
          NEED(cuCtxSynchronize() == CUDA_SUCCESS);
          float first = 0, second = 0, other_way = 0;
          NEED(cuEventElapsedTime(&first, before[0], after[0]) == CUDA_SUCCESS);
          NEED(cuEventElapsedTime(&second, before[0], after[1]) == CUDA_SUCCESS);
          NEED(cuEventElapsedTime(&other_way, before[0], after[2]) == CUDA_SUCCESS);
          NEED(first >= 5.0f && first < 5.1f && second >= 10.0f && second < 10.1f && other_way >= 5.0f &&
               other_way < 5.1f);
        }) == 0);
}

TEST_CASE("the default stream waits for blocking streams, and they for it") {
  CHECK(child("", [] {
          begin();
          const CUdeviceptr memory = device_memory(kBytes);
          char* host = pinned(kBytes);
          const CUstream blocking = stream(0), apart = stream();
          const CUevent end = event();
          Gate gate;
          gate.hold(blocking);
          cuMemcpyDtoHAsync_v2(host, memory, kBytes, blocking);
          cuEventRecord(end, nullptr);
          NEED(cuEventQuery(end) == CUDA_ERROR_NOT_READY);
          NEED(cuStreamQuery(nullptr) == CUDA_ERROR_NOT_READY);
          NEED(cuStreamQuery(apart) == CUDA_SUCCESS);
          gate.open();
          NEED(cuStreamSynchronize(nullptr) == CUDA_SUCCESS);
          NEED(cuStreamQuery(blocking) == CUDA_SUCCESS);
          gate.close();
          gate.hold(nullptr);
          cuMemcpyDtoHAsync_v2(host, memory, kBytes, nullptr);
          cuEventRecord(end, blocking);
          NEED(cuEventQuery(end) == CUDA_ERROR_NOT_READY);
          cuEventRecord(end, apart);  // the last record counts
          NEED(cuEventQuery(end) == CUDA_SUCCESS);
          gate.open();
        }) == 0);
}

TEST_CASE("events order streams; words are written and waited for; callbacks and kernels run in order") {
  CHECK(
      child("", [] {
        begin();
        const CUdeviceptr memory = device_memory(kBytes);
        char* host = pinned(kBytes);
        memset(host, 7, kBytes);
        const Gate gate;
        auto* word = reinterpret_cast<volatile uint64_t*>(pinned(8));
        const CUstream one = stream(), other = stream();
        const CUevent there = event();
        gate.hold(one);
        cuMemcpyHtoDAsync_v2(memory, host, kBytes, one);
        cuEventRecord(there, one);
        cuStreamWaitEvent(other, there, 0);
        cuStreamWriteValue64_v2(other, reinterpret_cast<CUdeviceptr>(word), 42, 0);
        NEED(cuStreamQuery(other) == CUDA_ERROR_NOT_READY && *word == 0);
        gate.open();
        while (*word != 42)  // nobody asks the driver: its own thread does it
          ;
        NEED(cuEventQuery(there) == CUDA_SUCCESS);

        CUmodule module = nullptr;
        CUfunction fill = nullptr;
        NEED(cuModuleLoadData(&module, "image") == CUDA_SUCCESS);
        NEED(cuModuleGetFunction(&fill, module, "no such kernel") == CUDA_ERROR_NOT_FOUND);
        NEED(cuModuleGetFunction(&fill, module, "fakegpu_fill") == CUDA_SUCCESS);
        cuStreamWaitValue32_v2(one, reinterpret_cast<CUdeviceptr>(word), 43, CU_STREAM_WAIT_VALUE_GEQ);
        {
          CUdeviceptr to = memory;
          uint64_t number = kBytes / 4;
          uint32_t first = 9;
          void* arguments[] = {&to, &number, &first};
          NEED(cuLaunchKernel(fill, 1, 1, 1, 32, 1, 1, 0, one, arguments, nullptr) == CUDA_SUCCESS);
          to = 0, number = 0, first = 0;  // they were copied
        }
        static int called, five = 5;
        cuLaunchHostFunc(
            one,
            [](void* data) { called = cuCtxSynchronize() == CUDA_ERROR_NOT_PERMITTED ? *static_cast<int*>(data) : -1; },
            &five);
        cuMemcpyDtoHAsync_v2(host, memory, kBytes, one);
        NEED(cuStreamQuery(one) == CUDA_ERROR_NOT_READY);
        NEED(called == 0);
        *word = 43;
        NEED(cuStreamSynchronize(one) == CUDA_SUCCESS);
        NEED(called == 5);
        for (uint32_t i = 0; i < kBytes / 4; ++i) NEED(reinterpret_cast<uint32_t*>(host)[i] == 9 + i);
      }) == 0);
}

TEST_CASE("copies up wait neither for pageable nor for registered memory; what is beyond an allocation is refused") {
  CHECK(child("", [] {
          begin();
          const Gate gate;
          const CUdeviceptr memory = device_memory(kBytes);
          std::vector<char> host(2 * kBytes, 3);
          const CUstream lane = stream();
          NEED(cuMemcpyHtoDAsync_v2(memory, host.data(), kBytes, lane) == CUDA_SUCCESS);
          NEED(cuStreamSynchronize(lane) == CUDA_SUCCESS && fakegpu_count("pageable") == 1);
          NEED(cuMemHostRegister_v2(host.data(), host.size(), 0) == CUDA_SUCCESS);
          NEED(cuMemHostRegister_v2(host.data() + 1, 5, 0) == CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
          gate.hold(lane);
          NEED(cuMemcpyHtoDAsync_v2(memory, host.data() + 17, kBytes, lane) == CUDA_SUCCESS);
          NEED(cuStreamQuery(lane) == CUDA_ERROR_NOT_READY && fakegpu_count("pageable") == 1);
          gate.open();
          NEED(cuMemHostUnregister(host.data()) == CUDA_SUCCESS);  // waits
          NEED(cuStreamQuery(lane) == CUDA_SUCCESS);
          NEED(cuMemHostUnregister(host.data()) == CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
          NEED(cuMemcpyHtoDAsync_v2(memory + 1, host.data(), kBytes, lane) == CUDA_ERROR_INVALID_VALUE);
          NEED(cuMemcpyDtoH_v2(nullptr, memory, 1) == CUDA_ERROR_INVALID_VALUE);
          CUDA_MEMCPY2D rows = {};
          rows.srcMemoryType = CU_MEMORYTYPE_HOST, rows.dstMemoryType = CU_MEMORYTYPE_DEVICE;
          rows.srcHost = host.data(), rows.dstDevice = memory, rows.srcPitch = 10, rows.dstPitch = 100;
          rows.WidthInBytes = 7, rows.Height = 50;
          NEED(cuMemsetD8_v2(memory, 0, kBytes) == CUDA_SUCCESS);
          NEED(cuMemcpy2DAsync_v2(&rows, nullptr) == CUDA_SUCCESS);
          NEED(cuCtxSynchronize() == CUDA_SUCCESS);
          const auto* seen = static_cast<const char*>(fakegpu_host_view(reinterpret_cast<void*>(memory)));
          for (size_t i = 0; i < 5000; ++i) NEED(seen[i] == (i % 100 < 7 ? 3 : 0));
          NEED(cuMemFree_v2(memory) == CUDA_SUCCESS);
          NEED(cuMemFree_v2(memory) == CUDA_ERROR_INVALID_VALUE);
          NEED(cuMemcpyDtoH_v2(host.data(), memory, 1) == CUDA_ERROR_INVALID_VALUE);
        }) == 0);
  CHECK(child("memory=1,pinned=1", [] {
          begin();
          CUdeviceptr memory = 0;
          void* host = nullptr;
          NEED(cuMemAlloc_v2(&memory, 2 << 20) == CUDA_ERROR_OUT_OF_MEMORY);
          NEED(cuMemHostAlloc(&host, 2 << 20, 0) == CUDA_ERROR_OUT_OF_MEMORY);
          for (int i = 0; i < 100; ++i) {
            memory = device_memory(1 << 20);
            NEED(cuMemFree_v2(memory) == CUDA_SUCCESS);
            NEED(cuMemHostAlloc(&host, 1 << 20, 0) == CUDA_SUCCESS && cuMemFreeHost(host) == CUDA_SUCCESS);
          }
        }) == 0);
}

TEST_CASE("whose memory is it") {
  CHECK(child("devices=2", [] {
          unsigned type = 7;
          CUcontext own = nullptr, second = nullptr, of = nullptr;
          CUpointer_attribute which[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE,      CU_POINTER_ATTRIBUTE_CONTEXT,
                                         CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, CU_POINTER_ATTRIBUTE_RANGE_SIZE,
                                         CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,   CU_POINTER_ATTRIBUTE_IS_MANAGED};
          CUdeviceptr base = 0;
          size_t bytes = 0;
          int ordinal = 0, managed = 0;
          void* values[] = {&type, &of, &base, &bytes, &ordinal, &managed};
          NEED(cuPointerGetAttributes(6, which, values, 4096) == CUDA_ERROR_NOT_INITIALIZED);
          own = begin();
          NEED(cuPointerGetAttributes(6, which, values, reinterpret_cast<CUdeviceptr>(&own)) == CUDA_SUCCESS);
          NEED(type == 0 && of == nullptr);
          NEED(cuPointerGetAttribute(&type, which[0], reinterpret_cast<CUdeviceptr>(&own)) == CUDA_ERROR_INVALID_VALUE);
          const CUdeviceptr memory = device_memory(kBytes);
          NEED(cuCtxCreate_v2(&second, 0, 1) == CUDA_SUCCESS);  // current now
          const CUdeviceptr there = device_memory(5);
          NEED(cuPointerGetAttributes(6, which, values, memory + 99) == CUDA_SUCCESS);
          NEED(type == CU_MEMORYTYPE_DEVICE && of == own && ordinal == 0 && managed == 0);
          NEED(base == memory && bytes == kBytes);
          NEED(cuPointerGetAttributes(6, which, values, there) == CUDA_SUCCESS);
          NEED(of == second && bytes == 5 && ordinal == 1);
          CUdeviceptr pool = 0, shared = 0;
          NEED(cuMemAllocAsync(&pool, 64, nullptr) == CUDA_SUCCESS &&
               cuMemAllocManaged(&shared, 64, 1) == CUDA_SUCCESS);
          NEED(cuPointerGetAttributes(6, which, values, pool + 8) == CUDA_SUCCESS);
          NEED(type == CU_MEMORYTYPE_DEVICE && of == nullptr && ordinal == 1 && base == pool);
          NEED(cuPointerGetAttributes(6, which, values, shared) == CUDA_SUCCESS && managed == 1);
          *reinterpret_cast<char*>(shared) = 1;
          const char* host = pinned(64);
          NEED(cuPointerGetAttributes(6, which, values, reinterpret_cast<CUdeviceptr>(host)) == CUDA_SUCCESS);
          NEED(type == CU_MEMORYTYPE_HOST && of == second);
          // A context takes its memory, streams and events with it; pools stay.
          const CUstream lane = stream();
          NEED(cuCtxDestroy_v2(second) == CUDA_SUCCESS);
          NEED(cuCtxGetCurrent(&of) == CUDA_SUCCESS && of == own);
          NEED(cuPointerGetAttributes(6, which, values, there) == CUDA_SUCCESS && type == 0);
          NEED(cuPointerGetAttributes(6, which, values, pool) == CUDA_SUCCESS && type == CU_MEMORYTYPE_DEVICE);
          NEED(cuStreamQuery(lane) == CUDA_ERROR_CONTEXT_IS_DESTROYED);
          NEED(cuCtxSetCurrent(second) == CUDA_ERROR_CONTEXT_IS_DESTROYED);
          NEED(cuCtxSetCurrent(nullptr) == CUDA_SUCCESS);
          NEED(cuMemAlloc_v2(&base, 1) == CUDA_ERROR_INVALID_CONTEXT);
        }) == 0);
  // The real driver's handles are addresses: those of a context that is gone may end the process.
  for (int what = 0; what < 2; ++what) {
    std::string said;
    CHECK(child(
              "",
              [what] {
                CUcontext gone = nullptr;
                begin();
                NEED(cuCtxCreate_v2(&gone, 0, 0) == CUDA_SUCCESS);
                const CUevent mark = event();
                NEED(cuCtxDestroy_v2(gone) == CUDA_SUCCESS);
                what == 0 ? cuEventQuery(mark) : cuCtxPushCurrent_v2(gone);
              },
              &said) == 1000 + SIGABRT);
    CHECK(said.find("fakegpu: a handle of a context that has been destroyed") == 0);
  }
  CHECK(child("devices=0", [] { NEED(cuInit(0) == CUDA_ERROR_NO_DEVICE); }) == 0);
}

TEST_CASE("calls without a stream return before their work is done") {
  CHECK(child("overdue=0,up=0.01,digest=0.01", [] {
          begin();
          const CUdeviceptr memory = device_memory(kBytes);
          const auto* seen = static_cast<const char*>(fakegpu_host_view(reinterpret_cast<void*>(memory)));
          std::vector<char> host(kBytes, 3);
          const CUstream own = stream();
          char* there = pinned(kBytes);
          // The data has been taken, and is not there yet; only the default stream knows.
          NEED(cuMemcpyHtoD_v2(memory, host.data(), kBytes) == CUDA_SUCCESS);
          std::fill(host.begin(), host.end(), 4);
          NEED(seen[0] == 0 && seen[kBytes - 1] == 0);
          NEED(cuMemcpyDtoHAsync_v2(there, memory, 1, own) == CUDA_SUCCESS);
          NEED(cuStreamSynchronize(own) == CUDA_SUCCESS && there[0] == 0);
          // From here on they are over when they return, and so is what was under way.
          unsigned yes = 1, is = 0;
          NEED(cuPointerSetAttribute(&yes, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, memory + 8) == CUDA_SUCCESS);
          NEED(seen[0] == 3 && seen[kBytes - 1] == 3);
          NEED(cuPointerGetAttribute(&is, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, memory) == CUDA_SUCCESS && is == 1);
          NEED(cuMemcpyHtoD_v2(memory, host.data(), kBytes) == CUDA_SUCCESS && seen[kBytes - 1] == 4);
          NEED(cuMemsetD8_v2(memory, 5, kBytes) == CUDA_SUCCESS && seen[kBytes - 1] == 5);
          // Memory of pools takes the promise and does not keep it; the context does.
          CUdeviceptr pool = 0;
          unsigned flags = 0;
          NEED(cuMemAllocAsync(&pool, kBytes, nullptr) == CUDA_SUCCESS);
          NEED(cuPointerSetAttribute(&yes, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, pool) == CUDA_SUCCESS);
          seen = static_cast<const char*>(fakegpu_host_view(reinterpret_cast<void*>(pool)));
          NEED(cuMemsetD8_v2(pool, 6, kBytes) == CUDA_SUCCESS && seen[0] == 0);
          NEED(cuCtxGetFlags(&flags) == CUDA_SUCCESS && cuCtxSetFlags(flags | 0x80) == CUDA_SUCCESS);
          NEED(cuMemsetD8_v2(pool, 7, kBytes) == CUDA_SUCCESS && seen[kBytes - 1] == 7);
        }) == 0);
}

TEST_CASE("memory that is mapped in pieces") {
  CHECK(child("devices=2,memory=1", [] {
          begin();
          constexpr size_t kPiece = 65536;
          CUdeviceptr range = 0, base = 0;
          CUmemGenericAllocationHandle pieces[3] = {};
          CUmemAllocationProp prop = {};
          CUcontext of = nullptr;
          size_t bytes = 0;
          for (int round = 0; round < 20; ++round) {  // nothing is left over
            NEED(cuMemAddressReserve(&range, 4 * kPiece, 0, 0, 0) == CUDA_SUCCESS);
            device_memory(100);
            for (int i = 0; i < 3; ++i) {
              prop.location.id = i == 2;
              NEED(cuMemCreate(&pieces[i], kPiece, &prop, 0) == CUDA_SUCCESS);
              NEED(cuMemMap(range + static_cast<size_t>(i) * kPiece, kPiece, 0, pieces[i], 0) == CUDA_SUCCESS);
              NEED(cuMemRelease(pieces[i]) == CUDA_SUCCESS);
            }
            NEED(cuPointerGetAttribute(&of, CU_POINTER_ATTRIBUTE_CONTEXT, range + 5) == CUDA_SUCCESS && of == nullptr);
            NEED(cuPointerGetAttribute(&base, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, range + kPiece) == CUDA_SUCCESS);
            NEED(cuPointerGetAttribute(&bytes, CU_POINTER_ATTRIBUTE_RANGE_SIZE, range + kPiece) == CUDA_SUCCESS);
            NEED(base == range && bytes == 4 * kPiece);
            std::vector<char> host(4 * kPiece);
            for (size_t i = 0; i < host.size(); ++i) host[i] = static_cast<char>(i * 7 >> 3);
            NEED(cuMemcpyHtoD_v2(range + 9, host.data(), 3 * kPiece - 9) == CUDA_SUCCESS);
            NEED(cuMemcpyHtoD_v2(range + 9, host.data(), 3 * kPiece) == CUDA_ERROR_INVALID_VALUE);
            NEED(cuCtxSynchronize() == CUDA_SUCCESS);
            NEED(memcmp(fakegpu_host_view(reinterpret_cast<void*>(range + 9)), host.data(), 3 * kPiece - 9) == 0);
            NEED(cuMemAddressFree(range, 4 * kPiece) == CUDA_ERROR_INVALID_VALUE);
            for (size_t i = 0; i < 3; ++i) NEED(cuMemUnmap(range + i * kPiece, kPiece) == CUDA_SUCCESS);
            NEED(cuMemcpyHtoD_v2(range, host.data(), 1) == CUDA_ERROR_INVALID_VALUE);
            NEED(cuMemAddressFree(range, 4 * kPiece) == CUDA_SUCCESS);
          }
        }) == 0);
  std::string said;
  CHECK(child(
            "",
            [] {
              begin();
              CUdeviceptr range = 0;
              NEED(cuMemAddressReserve(&range, 65536, 0, 0, 0) == CUDA_SUCCESS);
              *reinterpret_cast<volatile char*>(range) = 1;
            },
            &said) == 1000 + SIGSEGV);
  CHECK(said.find("fakegpu: host touched device memory") == 0);
}

TEST_CASE("captures break by what they do not allow") {
  CHECK(child("", [] {
          begin();
          const CUdeviceptr memory = device_memory(kBytes);
          char* host = pinned(kBytes);
          const CUstream lane = stream(), other = stream();
          const CUevent mark = event();
          CUgraph graph = nullptr;
          CUstreamCaptureMode relaxed = CU_STREAM_CAPTURE_MODE_RELAXED;
          CUdeviceptr more = 0;
          NEED(cuStreamBeginCapture_v2(lane, CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_SUCCESS);
          NEED(cuMemcpyDtoHAsync_v2(host, memory, kBytes, lane) == CUDA_SUCCESS);  // goes to the graph
          NEED(fakegpu_count("down") == 1 && cuStreamQuery(lane) == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
          NEED(cuThreadExchangeStreamCaptureMode(&relaxed) == CUDA_SUCCESS);
          cuMemcpyDtoHAsync_v2(host, memory, kBytes, other);
          cuEventRecord(mark, other);
          while (cuEventQuery(mark) == CUDA_ERROR_NOT_READY)
            ;
          NEED(cuMemAlloc_v2(&more, 1) == CUDA_SUCCESS);
          NEED(cuThreadExchangeStreamCaptureMode(&relaxed) == CUDA_SUCCESS &&
               relaxed == CU_STREAM_CAPTURE_MODE_RELAXED);
          NEED(cuStreamEndCapture(lane, &graph) == CUDA_SUCCESS);
          NEED(cuStreamBeginCapture_v2(lane, CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_SUCCESS);
          NEED(cuEventQuery(mark) == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
          NEED(cuStreamEndCapture(lane, &graph) == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
          NEED(cuEventQuery(mark) == CUDA_SUCCESS);
        }) == 0);
}
