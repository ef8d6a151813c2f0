// SPDX-License-Identifier: Apache-2.0
//
// HIP on the stand-in: what differs from CUDA. Devices in place of contexts, ROCr asked in place of the runtime, and
// errors that the program would see.

#include <dlfcn.h>
#include <sys/mman.h>

#include <cstring>
#include <thread>
#include <vector>

#include "check.h"
#include "pipeline/gpu/gpu.h"
#include "pipeline/gpu/kernels/image.h"
#include "pipeline/gpu/pinned.h"
#include "shim/runtime/accelerators/hip_api.h"

using namespace resil;
using gpu::Memory;

namespace resil::gpu {
KernelImage kernel_image(Api api) { return api == Api::kHip ? KernelImage{"image", 6} : KernelImage{nullptr, 0}; }
}  // namespace resil::gpu

namespace {

constexpr size_t kBytes = 1 << 20;

void* library() {
  static void* loaded = dlopen(FAKEGPU_HIP, RTLD_NOW | RTLD_LOCAL);
  REQUIRE(loaded != nullptr);
  return loaded;
}

template <class Function>
Function function(const char* name) {
  auto found = reinterpret_cast<Function>(dlsym(library(), name));
  if (found == nullptr) FAIL("the stand-in lacks " << name);
  return found;
}
#define HIP(member, symbol) function<decltype(gpu::hip::Functions::member)>(#symbol)

char* device_memory(int device) {
  void* memory = nullptr;
  REQUIRE(HIP(device_set, hipSetDevice)(device) == 0);
  REQUIRE(HIP(allocate, hipMalloc)(&memory, kBytes) == 0);
  return static_cast<char*>(memory);
}

char* seen_by_host(const char* device) { return function<char* (*)(const char*)>("fakegpu_host_view")(device); }

int current_device() {
  int device = -1;
  REQUIRE(HIP(device_get, hipGetDevice)(&device) == 0);
  return device;
}

gpu::State wait_for(gpu::Device& device, gpu::EventHandle event) {
  gpu::State state;
  while ((state = gpu::event_query(device, event)) == gpu::State::kPending) {}
  return state;
}

}  // namespace

TEST_CASE("HIP: a runtime that is there is not initialised by being asked") {
  library();
  void* host = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(gpu::classify(host, kBytes).memory == Memory::kHost);
  CHECK(gpu::driver_version(gpu::Api::kHip) == 0);
  CHECK(!gpu::seen());
}

TEST_CASE("HIP: kinds of memory, two devices, and the thread's device as it was") {
  char *first = device_memory(0), *second = device_memory(1);
  CHECK(current_device() == 1);
  const gpu::Pointer one = gpu::classify(first + 100, 50), two = gpu::classify(second, kBytes);
  REQUIRE((one.device != nullptr && two.device != nullptr));
  CHECK((one.memory == Memory::kDevice && one.base == reinterpret_cast<uintptr_t>(first) && one.bytes == kBytes));
  CHECK(one.device != two.device);
  CHECK((gpu::api_of(*one.device) == gpu::Api::kHip && gpu::ordinal_of(*one.device) == 0));
  CHECK(gpu::ordinal_of(*two.device) == 1);
  CHECK(gpu::driver_version(gpu::Api::kHip) > 0);

  void* pinned = nullptr;
  REQUIRE(function<int (*)(void**, size_t, unsigned)>("hipHostMalloc")(&pinned, kBytes, 0) == 0);
  CHECK(gpu::classify(pinned, kBytes).memory == Memory::kPinned);
  std::vector<char> host(kBytes);
  REQUIRE(HIP(host_register, hipHostRegister)(host.data(), kBytes, 0) == 0);
  CHECK(gpu::classify(host.data(), kBytes).memory != Memory::kDevice);
  REQUIRE(HIP(host_unregister, hipHostUnregister)(host.data()) == 0);

  for (gpu::Device* device : {one.device, two.device}) {
    const gpu::EventHandle event = gpu::event_acquire(*device);
    CHECK(gpu::event_record(*device, gpu::StreamRole::kUp, event));
    CHECK(gpu::stream_wait(*device, gpu::StreamRole::kDown, event));
    CHECK(wait_for(*device, event) == gpu::State::kDone);
    gpu::event_release(*device, event);
    CHECK(current_device() == 1);
  }
  std::thread([&] {
    const gpu::EventHandle event = gpu::event_acquire(*two.device);
    CHECK(event != 0);
    gpu::event_release(*two.device, event);
    CHECK(current_device() == 0);
  }).join();
}

TEST_CASE("HIP: copies of all kinds, and kernels") {
  char *memory = device_memory(0), *far = device_memory(1);
  gpu::Device &device = *gpu::classify(memory, 1).device, &other = *gpu::classify(far, 1).device;
  REQUIRE(gpu::pinned_prepare(device, size_t{64} << 20));
  auto* host = static_cast<char*>(gpu::pinned_acquire(device, 2 * kBytes));
  REQUIRE(host != nullptr);
  for (size_t i = 0; i < kBytes; ++i) host[i] = static_cast<char>(i * 31 + i / 7);
  const gpu::EventHandle event = gpu::event_acquire(device), at_other = gpu::event_acquire(other);
  REQUIRE(gpu::copy_up(device, memory, host, kBytes));
  REQUIRE(gpu::event_record(device, gpu::StreamRole::kUp, event));
  REQUIRE(gpu::stream_wait(other, gpu::StreamRole::kPeer, event));
  REQUIRE(gpu::copy_peer(other, far, device, memory, kBytes));
  REQUIRE(gpu::event_record(other, gpu::StreamRole::kPeer, at_other));
  REQUIRE(gpu::stream_wait(other, gpu::StreamRole::kDown, at_other));
  REQUIRE(gpu::copy_down(other, host + kBytes, far, kBytes));
  REQUIRE(gpu::event_record(other, gpu::StreamRole::kDown, at_other));
  CHECK(wait_for(other, at_other) == gpu::State::kDone);
  CHECK(memcmp(host, host + kBytes, kBytes) == 0);

  REQUIRE(gpu::copy_down_2d(device, host + kBytes, 16, memory + 3, 100, 16, 1000));
  REQUIRE(gpu::event_record(device, gpu::StreamRole::kDown, event));
  CHECK(wait_for(device, event) == gpu::State::kDone);
  REQUIRE(gpu::copy_up_2d(device, memory + 8, 64, host + kBytes, 16, 16, 1000));
  REQUIRE(gpu::event_record(device, gpu::StreamRole::kUp, event));
  CHECK(wait_for(device, event) == gpu::State::kDone);
  for (size_t i = 0; i < 1000; ++i) {
    CHECK(memcmp(host + kBytes + i * 16, host + 3 + i * 100, 16) == 0);
    CHECK(memcmp(seen_by_host(memory) + 8 + i * 64, host + kBytes + i * 16, 16) == 0);
  }

  void* kernel = gpu::kernel(device, "fakegpu_fill");
  REQUIRE(kernel != nullptr);
  uint64_t count = 1000;
  uint32_t from = 7;
  void* arguments[] = {&memory, &count, &from};
  REQUIRE(gpu::launch(device, gpu::StreamRole::kKernel, kernel, 1, 32, 0, arguments));
  REQUIRE(gpu::event_record(device, gpu::StreamRole::kKernel, event));
  CHECK(wait_for(device, event) == gpu::State::kDone);
  uint32_t last = 0;
  memcpy(&last, seen_by_host(memory) + 999 * 4, 4);
  CHECK(last == 1006);
  CHECK(gpu::kernel(device, "no_such_kernel") == nullptr);
  CHECK(gpu::device_address(device, host) != nullptr);
  gpu::event_release(device, event);
  gpu::event_release(other, at_other);
  gpu::pinned_release(host);
}

TEST_CASE("HIP: errors of resil's own calls are not the program's") {
  char* memory = device_memory(0);
  gpu::Device& device = *gpu::classify(memory, 1).device;
  auto* host = static_cast<char*>(gpu::pinned_acquire(device, kBytes));
  auto last = HIP(error_take, hipGetLastError);
  last();
  REQUIRE(HIP(release, hipFree)(memory) == 0);
  CHECK(!gpu::copy_down(device, host, memory, kBytes));  // freed under way
  CHECK(std::string(gpu::last_error()) == "hipErrorInvalidValue");
  CHECK(last() == 0);
  CHECK(gpu::kernel(device, "no_such_kernel_either") == nullptr);
  CHECK(gpu::device_allocate(device, size_t{1} << 40) == nullptr);
  CHECK(last() == 0);

  // Polling an event that is not complete.
  char* other = device_memory(0);
  const gpu::EventHandle event = gpu::event_acquire(device);
  bool pending = false;
  for (int i = 0; i < 1000 && !pending; ++i) {
    REQUIRE(gpu::copy_down(device, host, other, kBytes));
    REQUIRE(gpu::event_record(device, gpu::StreamRole::kDown, event));
    pending = gpu::event_query(device, event) == gpu::State::kPending;
    CHECK(last() == 0);
    CHECK(wait_for(device, event) == gpu::State::kDone);
  }
  CHECK(pending);
  gpu::event_release(device, event);
  gpu::pinned_release(host);
}

TEST_CASE("HIP: a device that is reset under way") {
  char* memory = device_memory(1);
  gpu::Device& device = *gpu::classify(memory, 1).device;
  auto* host = static_cast<char*>(gpu::pinned_acquire(device, kBytes));
  REQUIRE(host != nullptr);
  const gpu::EventHandle event = gpu::event_acquire(device);
  REQUIRE(gpu::copy_down(device, host, memory, kBytes));
  REQUIRE(gpu::event_record(device, gpu::StreamRole::kDown, event));
  REQUIRE(function<int (*)()>("hipDeviceReset")() == 0);
  CHECK(wait_for(device, event) == gpu::State::kFailed);
  CHECK(!gpu::copy_down(device, host, memory, kBytes));
  CHECK(gpu::event_acquire(device) == 0);
  gpu::event_release(device, event);
  gpu::pinned_release(host);
  CHECK(gpu::classify(memory, 1).memory != Memory::kDevice);

  char* again = device_memory(1);
  gpu::Device* after = gpu::classify(again, 1).device;
  REQUIRE(after != nullptr);
  CHECK(after != &device);
  const gpu::EventHandle next = gpu::event_acquire(*after);
  CHECK(next != 0);
  CHECK(gpu::event_record(*after, gpu::StreamRole::kUp, next));
  CHECK(wait_for(*after, next) == gpu::State::kDone);
}
