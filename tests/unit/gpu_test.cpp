// SPDX-License-Identifier: Apache-2.0
//
// Whose memory, contexts, streams, events and copies, on the stand-in GPU with two devices (FAKEGPU in meson.build).
// The test cases run in order, as a process gets to know a driver only once.

#include <sys/mman.h>

#include <thread>

#include "pipeline/gpu/kernels/image.h"
#include "pipeline/gpu/pinned.h"
#include "tests/unit/gpu_fixture.h"

using namespace resil;
using gpu::Memory;

namespace resil::gpu {
/// The stand-in takes any image, unless FAKEGPU says that it refuses code or text.
KernelImage image = {"image", 6};
KernelImage kernel_image(Api api) { return api == Api::kCuda ? image : KernelImage{nullptr, 0}; }
}  // namespace resil::gpu

namespace {

constexpr size_t kBytes = 1 << 20;

char* map_host() {
  void* memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  REQUIRE(memory != MAP_FAILED);
  return static_cast<char*>(memory);
}

Memory memory_of(const void* address, size_t bytes = 1) { return gpu::classify(address, bytes).memory; }

}  // namespace

TEST_CASE("without a driver all memory is the host's") {
  char* host = map_host();
  for (int i = 0; i < 100; ++i) REQUIRE(memory_of(host, kBytes) == Memory::kHost);
  CHECK(memory_of(nullptr, 0) == Memory::kHost);
  CHECK(!gpu::seen());
  CHECK(gpu::driver_version(gpu::Api::kCuda) == 0);
}

TEST_CASE("a driver that the program has not initialised is asked and not initialised") {
  fakegpu_library(true);
  char* host = map_host();
  CHECK(memory_of(host, kBytes) == Memory::kHost);
  CHECK(!gpu::seen());
  int devices = 0;
  CHECK(FAKE(cuDeviceGetCount)(&devices) == CUDA_ERROR_NOT_INITIALIZED);
  CHECK((gpu::driver_version(gpu::Api::kCuda) == 12040 || !on_stand_in()));
  CHECK(gpu::driver_version(gpu::Api::kCuda) > 0);
}

TEST_CASE("kinds of memory") {
  CUcontext context = fakegpu_begin();
  char* host = map_host();
  CHECK(memory_of(host, kBytes) == Memory::kHost);
  CHECK(!gpu::seen());

  char* device = device_memory(kBytes);
  for (const size_t offset : {size_t{0}, size_t{1}, kBytes / 2 + 3, kBytes - 1}) {
    const gpu::Pointer pointer = gpu::classify(device + offset, 1);
    CHECK(pointer.memory == Memory::kDevice);
    CHECK(pointer.base == reinterpret_cast<uintptr_t>(device));
    CHECK(pointer.bytes == kBytes);
    REQUIRE(pointer.device != nullptr);
    CHECK(pointer.device == &device_of(device));
    CHECK(gpu::api_of(*pointer.device) == gpu::Api::kCuda);
    CHECK(gpu::ordinal_of(*pointer.device) == 0);
  }
  CHECK(gpu::seen());
  CHECK(std::string(gpu::api_name(gpu::Api::kCuda)) == "cuda");
  CHECK(current_context() == context);

  void* pinned = nullptr;
  REQUIRE(FAKE(cuMemHostAlloc)(&pinned, kBytes, 0) == CUDA_SUCCESS);
  CHECK(memory_of(pinned, kBytes) == Memory::kPinned);
  REQUIRE(FAKE(cuMemHostRegister_v2)(host, kBytes, 0) == CUDA_SUCCESS);
  CHECK(memory_of(host, kBytes) == Memory::kPinned);
  REQUIRE(FAKE(cuMemHostUnregister)(host) == CUDA_SUCCESS);
  CHECK(memory_of(host, kBytes) == Memory::kHost);

  CUdeviceptr managed = 0;
  REQUIRE(FAKE(cuMemAllocManaged)(&managed, kBytes, 1) == CUDA_SUCCESS);
  CHECK(memory_of(reinterpret_cast<void*>(managed), kBytes) == Memory::kManaged);
  CHECK(&device_of(reinterpret_cast<void*>(managed)) == &device_of(device));

  // A pool's memory belongs to no context: the device's primary one does.
  CUstream stream = nullptr;
  CUdeviceptr pool = 0;
  REQUIRE(FAKE(cuStreamCreate)(&stream, 0) == CUDA_SUCCESS);
  REQUIRE(FAKE(cuMemAllocAsync)(&pool, kBytes, stream) == CUDA_SUCCESS);
  CHECK(memory_of(reinterpret_cast<void*>(pool), kBytes) == Memory::kDevice);
  CHECK(&device_of(reinterpret_cast<void*>(pool)) == &device_of(device));

  // Freed, and an address that the host has got again.
  free_device_memory(device);
  CHECK(memory_of(device) != Memory::kDevice);
}

TEST_CASE("a range that leaves its allocation", "[fake]") {
  fakegpu_begin();
  char* device = device_memory(kBytes);
  const gpu::Pointer pointer = gpu::classify(device + kBytes - 8, 16);
  CHECK(pointer.memory == Memory::kDevice);
  CHECK(pointer.base + pointer.bytes < reinterpret_cast<uintptr_t>(device) + kBytes + 8);

  // Memory that belongs to no context may be mapped in pieces; the next piece may be another device's, or nothing.
  CUstream stream = nullptr;
  CUdeviceptr one = 0, two = 0;
  REQUIRE(FAKE(cuStreamCreate)(&stream, 0) == CUDA_SUCCESS);
  do {
    one = two;
    REQUIRE(FAKE(cuMemAllocAsync)(&two, kBytes, stream) == CUDA_SUCCESS);
  } while (two != one + kBytes);
  const gpu::Pointer pieces = gpu::classify(reinterpret_cast<void*>(one + 100), kBytes);
  CHECK((pieces.memory == Memory::kDevice && pieces.base == one && pieces.bytes == 2 * kBytes));
  CHECK(gpu::classify(reinterpret_cast<void*>(one + 100), kBytes - 100).bytes == kBytes);

  // Host memory whose end is registered is the host's; the host's before a device's is nobody's to touch.
  char* host = map_host();
  REQUIRE(FAKE(cuMemHostRegister_v2)(host + 4096, kBytes - 4096, 0) == CUDA_SUCCESS);
  CHECK(memory_of(host, kBytes) == Memory::kHost);
  const auto low = std::min(reinterpret_cast<uintptr_t>(host), reinterpret_cast<uintptr_t>(device));
  const auto high = std::max(reinterpret_cast<uintptr_t>(host), reinterpret_cast<uintptr_t>(device));
  const Memory mixed = memory_of(reinterpret_cast<char*>(low), high - low + 1);
  CHECK(mixed == (low == reinterpret_cast<uintptr_t>(host) ? Memory::kForeign : Memory::kDevice));
}

TEST_CASE("devices and contexts") {
  CUcontext primary = fakegpu_begin(), other = nullptr, second = nullptr;
  char* of_primary = device_memory(kBytes);
  REQUIRE(FAKE(cuCtxCreate_v2)(&other, 0, 0) == CUDA_SUCCESS);
  char* of_other = device_memory(kBytes);
  const int last = device_count() - 1;  // the machine's own may be the only one
  REQUIRE((last == 1 || !on_stand_in()));
  REQUIRE(FAKE(cuDevicePrimaryCtxRetain)(&second, last) == CUDA_SUCCESS);
  REQUIRE(FAKE(cuCtxSetCurrent)(second) == CUDA_SUCCESS);
  char* of_second = device_memory(kBytes);

  gpu::Device &a = device_of(of_primary), &b = device_of(of_other), &c = device_of(of_second);
  CHECK((&a != &b && &b != &c && (&a != &c) == (last != 0)));
  CHECK((gpu::ordinal_of(a) == 0 && gpu::ordinal_of(b) == 0 && gpu::ordinal_of(c) == last));

  // Every function leaves the thread's current context as it was; a thread without one is as good.
  auto exercise = [&] {
    for (gpu::Device* device : {&a, &b, &c}) {
      const gpu::EventHandle event = gpu::event_acquire(*device);
      CHECK(event != 0);
      CHECK(gpu::event_query(*device, event) == gpu::State::kDone);
      CHECK(gpu::event_record(*device, gpu::StreamRole::kDown, event));
      CHECK(gpu::stream_wait(*device, gpu::StreamRole::kUp, event));
      CHECK(wait_for(*device, event) == gpu::State::kDone);
      gpu::event_release(*device, event);
      void* memory = gpu::device_allocate(*device, 4096);
      CHECK(memory != nullptr);
      gpu::device_free(*device, memory);
    }
  };
  exercise();
  CHECK(current_context() == second);
  REQUIRE(FAKE(cuCtxSetCurrent)(primary) == CUDA_SUCCESS);
  exercise();
  CHECK(current_context() == primary);
  std::thread([&] {
    exercise();
    CHECK(current_context() == nullptr);
    CHECK(&device_of(of_second) == &c);
  }).join();

  // Events are kept and reused.
  const gpu::EventHandle event = gpu::event_acquire(a);
  gpu::event_release(a, event);
  CHECK(gpu::event_acquire(a) == event);
  gpu::event_release(a, event);
}

TEST_CASE("copies are page-locked ones, in order on their lane, and right") {
  CUcontext context = fakegpu_begin();
  char* device = device_memory(kBytes);
  gpu::Device& of = device_of(device);
  REQUIRE(gpu::pinned_prepare(of, size_t{64} << 20));
  auto* host = static_cast<char*>(gpu::pinned_acquire(of, kBytes));
  auto* back = static_cast<char*>(gpu::pinned_acquire(of, kBytes));
  REQUIRE((host != nullptr && back != nullptr));
  CHECK(is_registered(host));
  CHECK(memory_of(host, kBytes) == Memory::kHost);
  const std::vector<char> data = random_bytes(kBytes, 1);
  memcpy(host, data.data(), kBytes);
  memset(back, 0, kBytes);
  device_write(device, std::vector<char>(kBytes));

  const uint64_t pageable = calls_of("pageable");
  const gpu::EventHandle up = gpu::event_acquire(of), down = gpu::event_acquire(of);
  REQUIRE(gpu::copy_up(of, device, host, kBytes));
  REQUIRE(gpu::event_record(of, gpu::StreamRole::kUp, up));
  REQUIRE(gpu::stream_wait(of, gpu::StreamRole::kDown, up));
  REQUIRE(gpu::copy_down(of, back, device, kBytes));
  REQUIRE(gpu::event_record(of, gpu::StreamRole::kDown, down));
  CHECK(wait_for(of, down) == gpu::State::kDone);
  CHECK(gpu::event_query(of, up) == gpu::State::kDone);
  CHECK(memcmp(back, data.data(), kBytes) == 0);
  CHECK(device_read(device, kBytes) == data);
  CHECK_CALLS(calls_of("pageable") == pageable);

  // 100 pieces of 24 bytes, 1000 apart on the device, 32 apart here.
  memset(back, 0, kBytes);
  REQUIRE(gpu::copy_down_2d(of, back, 32, device + 5, 1000, 24, 100));
  REQUIRE(gpu::event_record(of, gpu::StreamRole::kDown, down));
  CHECK(wait_for(of, down) == gpu::State::kDone);
  for (size_t i = 0; i < 100; ++i) {
    CHECK(memcmp(back + i * 32, data.data() + 5 + i * 1000, 24) == 0);
    CHECK(back[i * 32 + 24] == 0);
  }
  std::vector<char> expected = data;
  REQUIRE(gpu::copy_up_2d(of, device + 7, 512, host, 100, 50, 60));
  REQUIRE(gpu::event_record(of, gpu::StreamRole::kUp, up));
  CHECK(wait_for(of, up) == gpu::State::kDone);
  for (size_t i = 0; i < 60; ++i) memcpy(expected.data() + 7 + i * 512, host + i * 100, 50);
  CHECK(device_read(device, kBytes) == expected);

  // Nothing to copy is nothing to do; memory that is gone is refused, and the device stays usable.
  CHECK(gpu::copy_down(of, back, device, 0));
  char* freed = device_memory(4096);
  free_device_memory(freed);
  CHECK(!gpu::copy_down(of, back, freed, 4096));
  CHECK(std::string(gpu::last_error()) == "CUDA_ERROR_INVALID_VALUE");
  CHECK(gpu::copy_down(of, back, device, 100));
  CHECK(gpu::device_allocate(of, size_t{1} << 40) == nullptr);
  CHECK(std::string(gpu::last_error()) == "CUDA_ERROR_OUT_OF_MEMORY");
  CHECK(gpu::event_record(of, gpu::StreamRole::kDown, down));
  CHECK(wait_for(of, down) == gpu::State::kDone);
  CHECK(gpu::device_address(of, back) != nullptr);
  CHECK(gpu::device_address(of, map_host()) == nullptr);

  gpu::pinned_release(host);
  gpu::pinned_release(back);
  gpu::event_release(of, up);
  gpu::event_release(of, down);
  CHECK(current_context() == context);
}

TEST_CASE("how much room a device has", "[fake]") {
  fakegpu_begin();
  gpu::Device& device = device_of(device_memory(kBytes));
  size_t before = 0, after = 0, all = 0;
  REQUIRE(gpu::device_room(device, &before, &all));
  void* more = gpu::device_allocate(device, kBytes);
  REQUIRE(gpu::device_room(device, &after, &all));
  CHECK((after == before - kBytes && all == size_t{64} << 20));
  gpu::device_free(device, more);
}

TEST_CASE("peer copies, within a device and between two") {
  fakegpu_begin();
  CUcontext second = nullptr;
  char *from = device_memory(kBytes), *near = device_memory(kBytes);
  REQUIRE(FAKE(cuDevicePrimaryCtxRetain)(&second, device_count() - 1) == CUDA_SUCCESS);
  REQUIRE(FAKE(cuCtxPushCurrent_v2)(second) == CUDA_SUCCESS);
  char* far = device_memory(kBytes);
  REQUIRE(FAKE(cuCtxPopCurrent_v2)(nullptr) == CUDA_SUCCESS);
  const std::vector<char> data = random_bytes(kBytes, 2);
  device_write(from, data);
  for (char* to : {near, far}) {
    gpu::Device& device = device_of(to);
    const gpu::EventHandle event = gpu::event_acquire(device);
    for (const gpu::StreamRole role : {gpu::StreamRole::kPeer, gpu::StreamRole::kUp}) {
      device_write(to, std::vector<char>(kBytes));
      REQUIRE(gpu::copy_peer(device, to, device_of(from), from, kBytes, role));
      REQUIRE(gpu::event_record(device, role, event));
      CHECK(wait_for(device, event) == gpu::State::kDone);
      CHECK(device_read(to, kBytes) == data);
    }
    gpu::event_release(device, event);
  }
}

namespace {

/// The stand-in's own kernel: 32-bit numbers from `first` on.
bool launch_fill(gpu::Device& device, char* memory, uint64_t count, uint32_t first) {
  void* kernel = gpu::kernel(device, "fakegpu_fill");
  void* arguments[] = {&memory, &count, &first};
  return kernel != nullptr && gpu::launch(device, gpu::StreamRole::kKernel, kernel, 1, 32, 0, arguments);
}

}  // namespace

TEST_CASE("kernels by name, once", "[fake]") {
  fakegpu_begin();
  char* memory = device_memory(4096);
  gpu::Device& device = device_of(memory);
  for (uint32_t round = 0; round < 3; ++round) {
    const gpu::EventHandle event = gpu::event_acquire(device);
    REQUIRE(launch_fill(device, memory, 1024, round * 100));
    REQUIRE(gpu::event_record(device, gpu::StreamRole::kKernel, event));
    CHECK(wait_for(device, event) == gpu::State::kDone);
    std::vector<uint32_t> values(1024);
    memcpy(values.data(), device_read(memory, 4096).data(), 4096);
    CHECK((values[0] == round * 100 && values[1023] == round * 100 + 1023));
    gpu::event_release(device, event);
  }
  CHECK(gpu::kernel(device, "resil_no_such_kernel") == nullptr);
  CHECK(gpu::kernel(device, "resil_no_such_kernel") == nullptr);
  CHECK(gpu::event_acquire(device) != 0);  // not lost by that
}

TEST_CASE("while the program captures a stream into a graph") {
  fakegpu_begin();
  // Of a context that nothing has been made in yet: streams, events and pinned memory are had during the capture.
  CUcontext context = nullptr;
  REQUIRE(FAKE(cuCtxCreate_v2)(&context, 0, 0) == CUDA_SUCCESS);
  char* memory = device_memory(kBytes);
  auto begin = fakegpu_function<CUresult(CUstream, int)>("cuStreamBeginCapture_v2");
  auto end = fakegpu_function<CUresult(CUstream, CUgraph*)>("cuStreamEndCapture");
  for (const int mode : {0, 1, 2}) {  // global, of the thread, relaxed
    CUstream stream = nullptr;
    CUgraph graph = nullptr;
    REQUIRE(FAKE(cuStreamCreate)(&stream, 1) == CUDA_SUCCESS);
    REQUIRE(begin(stream, mode) == CUDA_SUCCESS);
    gpu::Device& device = device_of(memory);
    REQUIRE(gpu::pinned_prepare(device, size_t{256} << 20));
    void* host = gpu::pinned_acquire(device, gpu::pinned_use().bytes / 2 + 1);  // mode by mode, more must be had
    CHECK(host != nullptr);
    const gpu::EventHandle event = gpu::event_acquire(device);
    CHECK(gpu::copy_down(device, host, memory, 1000));
    CHECK(gpu::event_record(device, gpu::StreamRole::kDown, event));
    CHECK(wait_for(device, event) == gpu::State::kDone);
    void* scratch = gpu::device_allocate(device, 4096);
    CHECK(scratch != nullptr);
    gpu::device_free(device, scratch);
    CHECK(end(stream, &graph) == CUDA_SUCCESS);
    gpu::event_release(device, event);
  }
  REQUIRE(FAKE(cuCtxDestroy_v2)(context) == CUDA_SUCCESS);
}

TEST_CASE("a context that is destroyed under way") {
  fakegpu_begin();
  CUcontext context = nullptr;
  for (int round = 0; round < 3; ++round) {
    REQUIRE(FAKE(cuCtxCreate_v2)(&context, 0, 0) == CUDA_SUCCESS);
    char* memory = device_memory(kBytes);
    gpu::Device& device = device_of(memory);
    REQUIRE(gpu::pinned_prepare(device, size_t{64} << 20));
    auto* host = static_cast<char*>(gpu::pinned_acquire(device, kBytes));
    REQUIRE(host != nullptr);
    const gpu::EventHandle event = gpu::event_acquire(device);
    REQUIRE(gpu::copy_down(device, host, memory, kBytes));
    REQUIRE(gpu::event_record(device, gpu::StreamRole::kDown, event));
    REQUIRE(FAKE(cuCtxDestroy_v2)(context) == CUDA_SUCCESS);
    CHECK(wait_for(device, event) == gpu::State::kFailed);
    CHECK(std::string(gpu::last_error()) != "");
    CHECK(!gpu::copy_down(device, host, memory, kBytes));
    CHECK(!gpu::event_record(device, gpu::StreamRole::kDown, event));
    CHECK(gpu::event_acquire(device) == 0);
    CHECK(gpu::pinned_acquire(device, 100) == nullptr);
    CHECK(gpu::device_allocate(device, 100) == nullptr);
    CHECK(gpu::kernel(device, "resil_digest") == nullptr);
    gpu::event_release(device, event);
    memset(host, 1, kBytes);  // pinned memory outlives the context in which it was registered
    gpu::pinned_release(host);
    CHECK(memory_of(memory) != Memory::kDevice);
  }
  // As cudaDeviceReset does.
  CUcontext primary = nullptr;
  const int last = device_count() - 1;
  REQUIRE(FAKE(cuDevicePrimaryCtxRetain)(&primary, last) == CUDA_SUCCESS);
  REQUIRE(FAKE(cuCtxSetCurrent)(primary) == CUDA_SUCCESS);
  gpu::Device& before = device_of(device_memory(kBytes));
  REQUIRE(gpu::event_acquire(before) != 0);
  REQUIRE(FAKE(cuDevicePrimaryCtxReset_v2)(last) == CUDA_SUCCESS);
  REQUIRE(FAKE(cuDevicePrimaryCtxRetain)(&primary, last) == CUDA_SUCCESS);
  REQUIRE(FAKE(cuCtxSetCurrent)(primary) == CUDA_SUCCESS);
  gpu::Device& after = device_of(device_memory(kBytes));
  CHECK(&after != &before);
  const gpu::EventHandle event = gpu::event_acquire(after);
  CHECK(event != 0);
  CHECK(gpu::event_record(after, gpu::StreamRole::kUp, event));
  CHECK(wait_for(after, event) == gpu::State::kDone);
}

TEST_CASE("threads share devices, lanes and events") {
  CUcontext context = fakegpu_begin();
  constexpr size_t kPiece = 4096;
  constexpr unsigned kThreads = 4, kRounds = 50;
  char* memory = device_memory(kThreads * kPiece);
  REQUIRE(gpu::pinned_prepare(device_of(memory), size_t{64} << 20));
  std::vector<std::thread> threads;
  std::atomic<unsigned> right{0};
  for (unsigned t = 0; t < kThreads; ++t)
    threads.emplace_back([=, &right] {
      char* mine = memory + t * kPiece;
      for (unsigned round = 0; round < kRounds; ++round) {
        gpu::Device& device = *gpu::classify(mine, kPiece).device;
        auto* host = static_cast<char*>(gpu::pinned_acquire(device, 2 * kPiece));
        memset(host, static_cast<int>(t * 10 + round), kPiece);
        const gpu::EventHandle event = gpu::event_acquire(device);
        bool good = gpu::copy_up(device, mine, host, kPiece) &&
                    gpu::event_record(device, gpu::StreamRole::kUp, event) &&
                    gpu::stream_wait(device, gpu::StreamRole::kDown, event) &&
                    gpu::copy_down(device, host + kPiece, mine, kPiece) &&
                    gpu::event_record(device, gpu::StreamRole::kDown, event) &&
                    wait_for(device, event) == gpu::State::kDone && memcmp(host, host + kPiece, kPiece) == 0;
        right += good;
        gpu::event_release(device, event);
        gpu::pinned_release(host);
      }
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(right == kThreads * kRounds);
  CHECK(current_context() == context);
}

TEST_CASE("no device", "[.none]") {
  fakegpu_library(true);
  CHECK(FAKE(cuInit)(0) == CUDA_ERROR_NO_DEVICE);
  char* host = map_host();
  CHECK(memory_of(host, kBytes) == Memory::kHost);
  CHECK(!gpu::seen());
}

namespace {

/// Whether device `ordinal`, which has not loaded any yet, takes kernels.
bool takes_kernels(int ordinal, gpu::KernelImage image) {
  gpu::image = image;
  CUcontext context = nullptr;
  REQUIRE(FAKE(cuDevicePrimaryCtxRetain)(&context, ordinal) == CUDA_SUCCESS);
  REQUIRE(FAKE(cuCtxSetCurrent)(context) == CUDA_SUCCESS);
  gpu::Device& device = device_of(device_memory(4096));
  REQUIRE(gpu::ordinal_of(device) == ordinal);
  const bool good = gpu::kernel(device, "fakegpu_fill") != nullptr;
  CHECK((gpu::kernel(device, "fakegpu_fill") != nullptr) == good);
  return good;
}

constexpr gpu::KernelImage kCodeAlone =
                               {"\x7f"
                                "ELF",
                                4},
                           kBoth = {
                               "\x7f"
                               "ELF",
                               4, ".version 7.0"};

}  // namespace

TEST_CASE("a device for which there is no code takes the text", "[.code]") {
  fakegpu_begin();
  CHECK_FALSE(takes_kernels(0, kCodeAlone));
  CHECK(std::string(gpu::last_error()) == "CUDA_ERROR_NO_BINARY_FOR_GPU");
  CHECK(takes_kernels(1, kBoth));
}

TEST_CASE("a driver that refuses code and text", "[.text]") {
  fakegpu_begin();
  CHECK_FALSE(takes_kernels(0, kBoth));
  CHECK(std::string(gpu::last_error()) == "CUDA_ERROR_UNSUPPORTED_PTX_VERSION");
  CHECK(takes_kernels(1, {nullptr, 0}) == false);
}

TEST_CASE("a context that a fault has poisoned", "[.poison]") {
  fakegpu_begin();
  char* memory = device_memory(kBytes);
  gpu::Device& device = device_of(memory);
  REQUIRE(gpu::pinned_prepare(device, size_t{64} << 20));
  auto* host = static_cast<char*>(gpu::pinned_acquire(device, kBytes));
  const gpu::EventHandle event = gpu::event_acquire(device);
  bool failed = false;
  for (int i = 0; i < 20 && !failed; ++i)
    failed = !launch_fill(device, memory, 100, 0) || !gpu::event_record(device, gpu::StreamRole::kKernel, event) ||
             wait_for(device, event) == gpu::State::kFailed || !gpu::copy_down(device, host, memory, 100);
  CHECK(failed);
  CHECK(std::string(gpu::last_error()) != "");
  CHECK(gpu::event_acquire(device) == 0);
  gpu::event_release(device, event);
  gpu::pinned_release(host);
}
