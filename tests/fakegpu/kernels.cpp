// SPDX-License-Identifier: Apache-2.0
//
// The kernels that the stand-in can run, by the names under which programs get them from a module.

#include <cstring>

#include "tests/fakegpu/fakegpu.h"

namespace {

template <class T>
T argument(void** arguments, unsigned index) {
  T value;
  memcpy(&value, arguments[index], sizeof(value));
  return value;
}

/// fakegpu_fill(uint32_t* to, uint64_t count, uint32_t first): to[i] = first + i.
void fill(unsigned, unsigned, void** arguments) {
  auto* to = static_cast<uint32_t*>(fakegpu_host_view(argument<uint32_t*>(arguments, 0)));
  const auto count = argument<uint64_t>(arguments, 1);
  const auto first = argument<uint32_t>(arguments, 2);
  for (uint64_t i = 0; to != nullptr && i < count; ++i)
    to[i] = first + static_cast<uint32_t>(i);
}

uint64_t fill_bytes(unsigned, unsigned, void** arguments) { return argument<uint64_t>(arguments, 1) * 4; }

struct Entry {
  const char* name;
  fakegpu_kernel* run;
  uint64_t (*bytes)(unsigned blocks, unsigned threads, void** arguments);
  uint8_t arguments[17];
};
constexpr Entry kKernels[] = {{"fakegpu_fill", fill, fill_bytes, {8, 8, 4}}};

const Entry* find(const char* name) {
  for (const Entry& entry : kKernels)
    if (strcmp(entry.name, name) == 0)
      return &entry;
  return nullptr;
}

}  // namespace

fakegpu_kernel* fakegpu_find_kernel(const char* name) {
  const Entry* entry = find(name);
  return entry != nullptr ? entry->run : nullptr;
}

const uint8_t* fakegpu_kernel_arguments(const char* name) { return find(name)->arguments; }

uint64_t fakegpu_kernel_bytes(const char* name, unsigned blocks, unsigned threads, void** arguments) {
  return find(name)->bytes(blocks, threads, arguments);
}
