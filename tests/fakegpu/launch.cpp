// SPDX-License-Identifier: Apache-2.0
//
// Kernels, and words in memory, in order with a stream.

#include <array>
#include <cstring>
#include <map>
#include <string>

#include "tests/fakegpu/engine.h"

namespace fakegpu {

struct Function {
  std::string name;
  fakegpu_kernel* run;
};

namespace {

constexpr unsigned kMost = 16;

/// Copies of the arguments, as the drivers make them at the launch.
struct Arguments {
  std::array<char[256], kMost> values;
  std::array<void*, kMost> places;
};

/// Both drivers number these alike.
constexpr auto kParameterEnd = uintptr_t{0}, kParameterBufferCuda = uintptr_t{1};

const char* packed_arguments(void** extra) {
  for (; extra != nullptr && reinterpret_cast<uintptr_t>(*extra) != kParameterEnd; extra += 2)
    if (reinterpret_cast<uintptr_t>(*extra) == kParameterBufferCuda) return static_cast<const char*>(extra[1]);
  return nullptr;
}

uint64_t load(uintptr_t from, size_t bytes) {
  const char* place = fakegpu::view(from);
  return bytes == 4 ? __atomic_load_n(reinterpret_cast<const uint32_t*>(place), __ATOMIC_ACQUIRE)
                    : __atomic_load_n(reinterpret_cast<const uint64_t*>(place), __ATOMIC_ACQUIRE);
}

bool word(uintptr_t at, size_t bytes) { return at % bytes == 0 && find(at) != nullptr; }

}  // namespace

Function* function_of(const char* name) {
  static auto* const known = new std::map<std::string, Function>;
  const Locked hold;
  fakegpu_kernel* kernel = fakegpu_find_kernel(name);
  return kernel != nullptr ? &known->try_emplace(name, Function{name, kernel}).first->second : nullptr;
}

void launch(Stream& stream, const Function& function, unsigned blocks, unsigned threads, void** arguments,
            void** extra) {
  auto copied = std::make_shared<Arguments>();
  const auto* sizes = fakegpu_kernel_arguments(function.name.c_str());
  const char* packed = packed_arguments(extra);
  size_t offset = 0;
  for (unsigned i = 0; i < kMost && sizes[i] != 0; ++i) {
    offset = (offset + sizes[i] - 1) / sizes[i] * sizes[i];
    memcpy(copied->values[i], arguments != nullptr ? arguments[i] : packed + offset, sizes[i]);
    offset += sizes[i];
    copied->places[i] = copied->values[i];
  }
  count(Count::kLaunch);
  const uint64_t bytes = fakegpu_kernel_bytes(function.name.c_str(), blocks, threads, copied->places.data());
  Context* const context = stream.context;
  const bool poison = due_fault(Fault::kPoison, bytes);
  enqueue(stream, &context->device->kernel, bytes, settings().digest, [=, run = function.run](Time) {
    if (!poison) return run(blocks, threads, copied->places.data());
    made_fault(Fault::kPoison, bytes);
    context->poisoned = true;
  });
}

bool write_word(Stream& stream, uintptr_t to, uint64_t value, size_t bytes) {
  const Locked hold;
  if (!word(to, bytes)) return false;
  enqueue_now(stream, [=](Time) {
    if (bytes == 4)
      __atomic_store_n(reinterpret_cast<uint32_t*>(view(to)), static_cast<uint32_t>(value), __ATOMIC_RELEASE);
    else __atomic_store_n(reinterpret_cast<uint64_t*>(view(to)), value, __ATOMIC_RELEASE);
  });
  return true;
}

bool wait_word(Stream& stream, uintptr_t from, uint64_t value, uint64_t mask, unsigned compare, size_t bytes) {
  const Locked hold;
  if (!word(from, bytes)) return false;
  enqueue_wait(stream, [=] {
    const unsigned shift = bytes == 4 ? 32 : 0;  // the word's sign and carries are those of 64 bits
    const uint64_t is = (load(from, bytes) & mask) << shift, wanted = (value & mask) << shift;
    switch (compare) {
      case 0: return static_cast<int64_t>(is - wanted) >= 0;
      case 1: return is == wanted;
      case 2: return (is & wanted) != 0;
      default: return (~(is | wanted) >> shift) != 0;
    }
  });
  return true;
}

}  // namespace fakegpu
