// SPDX-License-Identifier: Apache-2.0
//
// The stand-in GPU keeps what tests/fakegpu/fakegpu.h promises; without that, tests that pass on it say nothing. Each
// case runs in a child of its own, because a driver reads FAKEGPU once.

#include <catch2/catch.hpp>

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "tests/fakegpu/cuda_functions.h"

namespace {

#define NEED(condition)                                                     \
  do {                                                                      \
    if (!(condition)) {                                                     \
      fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
      _exit(1);                                                             \
    }                                                                       \
  } while (0)

/// Exit status of `body` in a child with this FAKEGPU, or 1000 + the signal that ended it; what it wrote on stderr.
int child(const char* settings, const std::function<void()>& body, std::string* said = nullptr) {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const pid_t pid = fork();
  REQUIRE(pid >= 0);
  if (pid == 0) {
    if (said != nullptr)
      dup2(ends[1], 2);
    close(ends[0]);
    close(ends[1]);
    setenv("FAKEGPU", settings, 1);
    for (const int number : {SIGSEGV, SIGABRT})
      signal(number, SIG_DFL);  // not Catch's
    alarm(20);
    body();
    _exit(0);
  }
  close(ends[1]);
  char text[4096];
  for (ssize_t got; said != nullptr && (got = read(ends[0], text, sizeof(text))) > 0;)
    said->append(text, static_cast<size_t>(got));
  close(ends[0]);
  int status = 0;
  REQUIRE(waitpid(pid, &status, 0) == pid);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

CUcontext begin() {
  CUcontext context = nullptr;
  NEED(cuInit(0) == CUDA_SUCCESS);
  NEED(cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS);
  NEED(cuCtxSetCurrent(context) == CUDA_SUCCESS);
  return context;
}

CUdeviceptr device_memory(size_t bytes) {
  CUdeviceptr memory = 0;
  NEED(cuMemAlloc_v2(&memory, bytes) == CUDA_SUCCESS);
  return memory;
}

char* pinned(size_t bytes) {
  void* memory = nullptr;
  NEED(cuMemHostAlloc(&memory, bytes, 0) == CUDA_SUCCESS);
  return static_cast<char*>(memory);
}

CUstream stream(unsigned flags = CU_STREAM_NON_BLOCKING) {
  CUstream it = nullptr;
  NEED(cuStreamCreate(&it, flags) == CUDA_SUCCESS);
  return it;
}

CUevent event() {
  CUevent it = nullptr;
  NEED(cuEventCreate(&it, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS);
  return it;
}

constexpr size_t kBytes = 100000;

}  // namespace

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
  CHECK(child("", [] { begin(); raise(SIGSEGV); }, &said) == 1000 + SIGSEGV);
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
    NEED(cuMemcpyDtoHAsync_v2(to, memory, kBytes, lane) == CUDA_SUCCESS);    // 10 ms more
    const CUevent end = event();
    NEED(cuEventRecord(end, lane) == CUDA_SUCCESS);
    from[5] = 2;  // the source may still change
    while (cuEventQuery(end) == CUDA_ERROR_NOT_READY)
      if (fakegpu_now() - start < 0.020)
        NEED(to[0] == 0);
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
    const CUstream one = stream(), other = stream();
    const double start = fakegpu_now();
    cuMemcpyDtoHAsync_v2(host, memory, kBytes, one);  // 5 ms each
    cuMemcpyDtoHAsync_v2(host + kBytes, memory + kBytes, kBytes, other);
    NEED(cuStreamSynchronize(one) == CUDA_SUCCESS);
    NEED(cuStreamQuery(other) == CUDA_ERROR_NOT_READY);
    NEED(cuStreamSynchronize(other) == CUDA_SUCCESS);
    NEED(fakegpu_now() - start >= 0.010);
    CUevent up = nullptr, down = nullptr, before = nullptr;
    float milliseconds = 0;
    cuEventCreate(&before, 0), cuEventCreate(&up, 0), cuEventCreate(&down, 0);
    cuEventRecord(before, one);
    cuMemcpyDtoHAsync_v2(host, memory, kBytes, one);
    cuEventRecord(down, one);
    cuMemcpyHtoDAsync_v2(memory, host, kBytes, other);
    cuEventRecord(up, other);
    NEED(cuCtxSynchronize() == CUDA_SUCCESS);
    NEED(cuEventElapsedTime(&milliseconds, before, up) == CUDA_SUCCESS);
    NEED(milliseconds >= 5.0f);
    NEED(cuEventElapsedTime(&milliseconds, before, down) == CUDA_SUCCESS);
    NEED(milliseconds >= 5.0f && milliseconds < 5.1f);  // the clock of the engine: not held up by the other way
  }) == 0);
}

TEST_CASE("the default stream waits for blocking streams, and they for it") {
  CHECK(child("down=0.01", [] {
    begin();
    const CUdeviceptr memory = device_memory(kBytes);
    char* host = pinned(kBytes);
    const CUstream blocking = stream(0), apart = stream();
    const CUevent end = event();
    cuMemcpyDtoHAsync_v2(host, memory, kBytes, blocking);
    cuEventRecord(end, nullptr);
    NEED(cuEventQuery(end) == CUDA_ERROR_NOT_READY);
    NEED(cuStreamQuery(nullptr) == CUDA_ERROR_NOT_READY);
    NEED(cuStreamQuery(apart) == CUDA_SUCCESS);
    NEED(cuStreamSynchronize(nullptr) == CUDA_SUCCESS);
    NEED(cuStreamQuery(blocking) == CUDA_SUCCESS);
    cuMemcpyDtoHAsync_v2(host, memory, kBytes, nullptr);
    cuEventRecord(end, blocking);
    NEED(cuEventQuery(end) == CUDA_ERROR_NOT_READY);
    cuEventRecord(end, apart);  // the last record counts
    NEED(cuEventQuery(end) == CUDA_SUCCESS);
  }) == 0);
}

TEST_CASE("events order streams; words are written and waited for; callbacks and kernels run in order") {
  CHECK(child("up=0.02", [] {
    begin();
    const CUdeviceptr memory = device_memory(kBytes);
    char* host = pinned(kBytes);
    memset(host, 7, kBytes);
    auto* word = reinterpret_cast<volatile uint64_t*>(pinned(8));
    const CUstream one = stream(), other = stream();
    const CUevent there = event();
    cuMemcpyHtoDAsync_v2(memory, host, kBytes, one);
    cuEventRecord(there, one);
    cuStreamWaitEvent(other, there, 0);
    cuStreamWriteValue64_v2(other, reinterpret_cast<CUdeviceptr>(word), 42, 0);
    NEED(*word == 0);
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
    cuLaunchHostFunc(one, [](void* data) {
      called = cuCtxSynchronize() == CUDA_ERROR_NOT_PERMITTED ? *static_cast<int*>(data) : -1;
    }, &five);
    cuMemcpyDtoHAsync_v2(host, memory, kBytes, one);
    NEED(cuStreamQuery(one) == CUDA_ERROR_NOT_READY);
    NEED(called == 0);
    *word = 43;
    NEED(cuStreamSynchronize(one) == CUDA_SUCCESS);
    NEED(called == 5);
    for (uint32_t i = 0; i < kBytes / 4; ++i)
      NEED(reinterpret_cast<uint32_t*>(host)[i] == 9 + i);
  }) == 0);
}
