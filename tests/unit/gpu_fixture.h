// SPDX-License-Identifier: Apache-2.0
//
// The stand-in GPU as a program would use it: loaded when a test says so, its functions by name. Values that unit tests
// of pipeline/gpu and of packets share.
#pragma once

#include <catch2/catch.hpp>

#include <dlfcn.h>

#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "pipeline/gpu/gpu.h"
#include "tests/fakegpu/cuda_functions.h"

/// cuda(&cuMemAlloc_v2, "cuMemAlloc_v2")(...): the tests are not linked with the stand-in.
inline void* fakegpu_library(bool load = false) {
  static void* library;
  if (library == nullptr && load)
    library = dlopen(FAKEGPU_CUDA, RTLD_NOW | RTLD_LOCAL);
  REQUIRE(library != nullptr);
  return library;
}

template <class Function>
Function* fakegpu_function(const char* name) {
  auto* function = reinterpret_cast<Function*>(dlsym(fakegpu_library(), name));
  if (function == nullptr)
    FAIL("the stand-in lacks " << name);
  return function;
}
#define FAKE(name) fakegpu_function<decltype(name)>(#name)

/// The driver is initialised, device 0's primary context is current.
inline CUcontext fakegpu_begin() {
  fakegpu_library(true);
  CUcontext context = nullptr;
  REQUIRE(FAKE(cuInit)(0) == CUDA_SUCCESS);
  REQUIRE(FAKE(cuDevicePrimaryCtxRetain)(&context, 0) == CUDA_SUCCESS);
  REQUIRE(FAKE(cuCtxSetCurrent)(context) == CUDA_SUCCESS);
  return context;
}

inline char* device_memory(size_t bytes) {
  CUdeviceptr memory = 0;
  REQUIRE(FAKE(cuMemAlloc_v2)(&memory, bytes) == CUDA_SUCCESS);
  return reinterpret_cast<char*>(memory);
}

inline void free_device_memory(char* memory) {
  REQUIRE(FAKE(cuMemFree_v2)(reinterpret_cast<CUdeviceptr>(memory)) == CUDA_SUCCESS);
}

/// What the device's memory holds: the host's own way to it, which only tests have.
inline char* seen_by_host(const char* device) { return static_cast<char*>(FAKE(fakegpu_host_view)(device)); }

inline uint64_t calls_of(const char* what) { return FAKE(fakegpu_count)(what); }

inline CUcontext current_context() {
  CUcontext context = nullptr;
  REQUIRE(FAKE(cuCtxGetCurrent)(&context) == CUDA_SUCCESS);
  return context;
}

/// What the driver itself says of it.
inline bool is_registered(void* memory) {
  unsigned type = 0;
  return FAKE(cuPointerGetAttribute)(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, reinterpret_cast<CUdeviceptr>(memory)) ==
             CUDA_SUCCESS &&
         type == CU_MEMORYTYPE_HOST;
}

inline resil::gpu::Device& device_of(const void* memory) {
  resil::gpu::Device* device = resil::gpu::classify(memory, 1).device;
  REQUIRE(device != nullptr);
  return *device;
}

inline std::vector<char> random_bytes(size_t bytes, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<char> data(bytes);
  for (char& byte : data)
    byte = static_cast<char>(random());
  return data;
}

inline resil::gpu::State wait_for(resil::gpu::Device& device, resil::gpu::EventHandle event) {
  resil::gpu::State state;
  while ((state = resil::gpu::event_query(device, event)) == resil::gpu::State::kPending) {
  }
  return state;
}
