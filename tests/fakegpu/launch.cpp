// SPDX-License-Identifier: Apache-2.0
//
// Kernels, and functions of the program's, in order with a stream.

#include <algorithm>
#include <array>
#include <cstring>

#include "tests/fakegpu/engine.h"

namespace fakegpu {

namespace {

constexpr unsigned kMost = 16;

/// Copies of the arguments, as the drivers make them at the launch; no more of them than those take.
struct Arguments {
  alignas(16) std::array<char, 4096> values;
  std::array<void*, kMost> places;
};

}  // namespace

void launch(Stream& stream, const char* name, fakegpu_kernel* kernel, unsigned blocks, unsigned threads,
            void** arguments, const void* packed) {
  auto copied = std::make_shared<Arguments>();
  const uint16_t* sizes = fakegpu_kernel_arguments(name);
  size_t offset = 0;
  for (unsigned i = 0; i < kMost && sizes[i] != 0; ++i) {
    const size_t alignment = std::min<size_t>(sizes[i], 8);
    offset = (offset + alignment - 1) / alignment * alignment;
    const void* from = arguments != nullptr ? arguments[i] : static_cast<const char*>(packed) + offset;
    copied->places[i] = copied->values.data() + offset;
    memcpy(copied->places[i], from, sizes[i]);
    offset += sizes[i];
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
