// SPDX-License-Identifier: Apache-2.0
//
// See pool.h. Blocks of 2^n bytes with a header of one cache line; a list of free ones for each n.

#include "checksum/fault/pool.h"

#include <sys/mman.h>

#include "shim/base/spinlock.h"

namespace resil::fault {

namespace {

struct alignas(64) Block {
  unsigned order;
  Block* next;
};

constexpr unsigned kLeast = 12, kMost = 47;
SpinLock lock;
Block* free_blocks[kMost + 1];

}  // namespace

char* lend(uint64_t bytes) {
  unsigned order = kLeast;
  while (order <= kMost && (uint64_t{1} << order) < bytes + sizeof(Block)) ++order;
  if (order > kMost || bytes > uint64_t{1} << kMost) return nullptr;
  {
    SpinGuard guard(lock);
    if (Block* block = free_blocks[order]; block != nullptr) {
      free_blocks[order] = block->next;
      return reinterpret_cast<char*>(block + 1);
    }
  }
  void* memory = mmap(nullptr, uint64_t{1} << order, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  auto* block = static_cast<Block*>(memory);
  block->order = order;
  return reinterpret_cast<char*>(block + 1);
}

void give_back(char* memory) {
  if (memory == nullptr) return;
  Block* block = reinterpret_cast<Block*>(memory) - 1;
  SpinGuard guard(lock);
  block->next = free_blocks[block->order];
  free_blocks[block->order] = block;
}

}  // namespace resil::fault
