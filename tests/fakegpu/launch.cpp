// SPDX-License-Identifier: Apache-2.0
//
// Kernels, and functions of the program's, in order with a stream.

#include <array>
#include <cstring>

#include "tests/fakegpu/engine.h"

namespace fakegpu {

namespace {

constexpr unsigned kMost = 16;

/// Copies of the arguments, as the drivers make them at the launch.
struct Arguments {
  std::array<char[256], kMost> values;
  std::array<void*, kMost> places;
};

}  // namespace

void launch(Stream& stream, const char* name, fakegpu_kernel* kernel, unsigned blocks, unsigned threads,
            void** arguments, const void* packed) {
  auto copied = std::make_shared<Arguments>();
  const uint8_t* sizes = fakegpu_kernel_arguments(name);
  size_t offset = 0;
  for (unsigned i = 0; i < kMost && sizes[i] != 0; ++i) {
    offset = (offset + sizes[i] - 1) / sizes[i] * sizes[i];
    const void* from = arguments != nullptr ? arguments[i] : static_cast<const char*>(packed) + offset;
    offset += sizes[i];
    memcpy(copied->values[i], from, sizes[i]);
    copied->places[i] = copied->values[i];
  }
  count(Count::kLaunch);
  const uint64_t bytes = fakegpu_kernel_bytes(name, blocks, threads, copied->places.data());
  Context* const context = stream.context;
  const bool poison = due_fault(Fault::kPoison);
  enqueue(stream, &context->device->kernel, bytes, settings().digest, [=](Time) {
    if (poison) {
      made_fault(Fault::kPoison, bytes);
      context->poisoned = true;
      return;
    }
    kernel(blocks, threads, copied->places.data());
  });
}

void host_function(Stream& stream, std::function<void()> function) {
  enqueue_now(stream, [function = std::move(function)](Time) { function(); });
}

}  // namespace fakegpu
