// SPDX-License-Identifier: Apache-2.0
//
// The first steps of a program that uses CUDA, on the stand-in GPU.
#pragma once

#include "tests/fakegpu/cuda_functions.h"
#include "tests/unit/fakegpu_child.h"

inline CUcontext begin() {
  CUcontext context = nullptr;
  NEED(cuInit(0) == CUDA_SUCCESS);
  NEED(cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS);
  NEED(cuCtxSetCurrent(context) == CUDA_SUCCESS);
  return context;
}

inline CUdeviceptr device_memory(size_t bytes) {
  CUdeviceptr memory = 0;
  NEED(cuMemAlloc_v2(&memory, bytes) == CUDA_SUCCESS);
  return memory;
}

inline char* pinned(size_t bytes) {
  void* memory = nullptr;
  NEED(cuMemHostAlloc(&memory, bytes, 0) == CUDA_SUCCESS);
  return static_cast<char*>(memory);
}

inline CUstream stream(unsigned flags = CU_STREAM_NON_BLOCKING) {
  CUstream it = nullptr;
  NEED(cuStreamCreate(&it, flags) == CUDA_SUCCESS);
  return it;
}

inline CUevent event() {
  CUevent it = nullptr;
  NEED(cuEventCreate(&it, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS);
  return it;
}

constexpr size_t kBytes = 100000;

/// Holds streams until it is opened: what is enqueued behind it cannot be done before, however slow this machine is.
struct Gate {
  volatile uint32_t* const word = reinterpret_cast<volatile uint32_t*>(pinned(4));
  const CUstream lane = stream();
  const CUevent opened = event();
  Gate() { close(); }
  void close() {
    *word = 0;
    cuStreamWaitValue32_v2(lane, reinterpret_cast<CUdeviceptr>(word), 1, CU_STREAM_WAIT_VALUE_EQ);
    cuEventRecord(opened, lane);
  }
  void hold(CUstream held) const { NEED(cuStreamWaitEvent(held, opened, 0) == CUDA_SUCCESS); }
  void open() const { *word = 1; }
};
