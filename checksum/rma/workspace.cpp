// SPDX-License-Identifier: Apache-2.0
//
// See workspace.h.

#include "checksum/rma/workspace.h"

#include <sys/mman.h>

#include "checksum/rma/window.h"

namespace resil::rma {

namespace {

constexpr int kBlocks = 16;
constexpr size_t kLeast = 1 << 16;

struct Block {
  std::atomic<bool> used;
  char* memory;
  size_t bytes;
};
constinit Block blocks[kBlocks] = {};

}  // namespace

Workspace::Workspace(size_t bytes) : place_(-1), data_(nullptr), bytes_(bytes > kLeast ? bytes : kLeast) {
  for (int i = 0; i < kBlocks && place_ < 0; ++i)
    if (!blocks[i].used.exchange(true, std::memory_order_acquire)) place_ = i;
  if (place_ >= 0 && blocks[place_].memory != nullptr && blocks[place_].bytes >= bytes) {
    data_ = blocks[place_].memory;
    return;
  }
  if (place_ >= 0 && blocks[place_].memory != nullptr) bytes_ += bytes_ / 2;  // it grows
  data_ = static_cast<char*>(map_memory(bytes_));
  if (place_ < 0) return;
  Block& block = blocks[place_];
  if (block.memory != nullptr) munmap(block.memory, block.bytes);
  block.memory = data_;
  block.bytes = data_ != nullptr ? bytes_ : 0;
}

Workspace::~Workspace() {
  if (place_ >= 0) blocks[place_].used.store(false, std::memory_order_release);
  else if (data_ != nullptr) munmap(data_, bytes_);
}

}  // namespace resil::rma
