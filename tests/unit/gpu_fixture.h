// SPDX-License-Identifier: Apache-2.0
//
// The stand-in GPU as a program would use it: loaded when a test says so, its functions by name. Values that unit tests
// of pipeline/gpu and of packets share.
//
// With RESIL_TEST_CUDA=libcuda.so.1 the machine's own driver takes its place (scripts/bench gpu): counts of its calls
// are not to be had then, and cases with the tag [fake] need the stand-in.
#pragma once

#include <dlfcn.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <random>
#include <vector>

#include "check.h"
#include "pipeline/gpu/gpu.h"
#include "tests/fakegpu/cuda_functions.h"

/// cuda(&cuMemAlloc_v2, "cuMemAlloc_v2")(...): the tests are not linked with the stand-in.
inline void* fakegpu_library(bool load = false) {
  static void* library;
  if (library == nullptr && load) {
    const char* other = getenv("RESIL_TEST_CUDA");
    library = dlopen(other != nullptr ? other : FAKEGPU_CUDA, RTLD_NOW | RTLD_LOCAL);
  }
  REQUIRE(library != nullptr);
  return library;
}

template <class Function>
Function* fakegpu_function(const char* name) {
  auto* function = reinterpret_cast<Function*>(dlsym(fakegpu_library(), name));
  if (function == nullptr) FAIL("the stand-in lacks " << name);
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

inline bool on_stand_in() { return dlsym(fakegpu_library(), "fakegpu_host_view") != nullptr; }

inline int device_count() {
  int devices = 0;
  REQUIRE(FAKE(cuDeviceGetCount)(&devices) == CUDA_SUCCESS);
  return devices;
}

/// What the device's memory holds, past resil: by a way into the stand-in that counts as no copy; by the driver's
/// copies where it is the machine's own.
inline std::vector<char> device_read(const char* device, size_t bytes) {
  std::vector<char> data(bytes);
  if (on_stand_in()) memcpy(data.data(), FAKE(fakegpu_host_view)(device), bytes);
  else REQUIRE(FAKE(cuMemcpyDtoH_v2)(data.data(), reinterpret_cast<CUdeviceptr>(device), bytes) == CUDA_SUCCESS);
  return data;
}

inline void device_write(char* device, const std::vector<char>& data) {
  if (on_stand_in()) memcpy(FAKE(fakegpu_host_view)(device), data.data(), data.size());
  else
    REQUIRE((FAKE(cuMemcpyHtoD_v2)(reinterpret_cast<CUdeviceptr>(device), data.data(), data.size()) == CUDA_SUCCESS &&
             FAKE(cuCtxSynchronize)() == CUDA_SUCCESS));  // the copy returns before the data is there
}

inline uint64_t calls_of(const char* what) { return on_stand_in() ? FAKE(fakegpu_count)(what) : 0; }
/// About counts of calls: nothing to say on a real driver.
#define CHECK_CALLS(condition)           \
  do {                                   \
    if (on_stand_in()) CHECK(condition); \
  } while (false)

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
  for (char& byte : data) byte = static_cast<char>(random());
  return data;
}

inline resil::gpu::State wait_for(resil::gpu::Device& device, resil::gpu::EventHandle event) {
  resil::gpu::State state;
  while ((state = resil::gpu::event_query(device, event)) == resil::gpu::State::kPending) {}
  return state;
}
