// SPDX-License-Identifier: Apache-2.0
//
// Blocks up to 64 KiB come from free lists, one for each power of two, that are filled by mapping 256 KiB; larger ones
// are mapped one by one. The lock is held for a few instructions, never while mapping.

#include "shim/model/datatype/blocks.h"

#include <sys/mman.h>

#include <cstdint>

#include "shim/base/spinlock.h"

namespace resil {

namespace {

struct alignas(16) Header {
  size_t bytes;  ///< of the whole block; a power of two up to kLargest
  Header* next;
};

constexpr unsigned kFirstClass = 8, kLastClass = 16;
constexpr size_t kLargest = size_t{1} << kLastClass, kChunk = size_t{256} << 10;

SpinLock lock;
Header* free_lists[kLastClass + 1];

void* map(size_t bytes) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return memory != MAP_FAILED ? memory : nullptr;
}

unsigned class_of(size_t bytes) {
  unsigned log = kFirstClass;
  while ((size_t{1} << log) < bytes) ++log;
  return log;
}

Header* pop(unsigned size_class) {
  SpinGuard guard(lock);
  Header* first = free_lists[size_class];
  if (first != nullptr) free_lists[size_class] = first->next;
  return first;
}

void push(unsigned size_class, Header* first, Header* last) {
  SpinGuard guard(lock);
  last->next = free_lists[size_class];
  free_lists[size_class] = first;
}

/// The first block of a new chunk; the others go to the free list.
Header* carve(unsigned size_class) {
  auto* chunk = static_cast<char*>(map(kChunk));
  if (chunk == nullptr) return nullptr;
  const size_t bytes = size_t{1} << size_class;
  Header* last = nullptr;
  for (size_t at = kChunk - bytes;; at -= bytes) {
    auto* block = reinterpret_cast<Header*>(chunk + at);
    block->bytes = bytes;
    block->next = last;
    last = block;
    if (at == 0) break;
  }
  auto* final_block = reinterpret_cast<Header*>(chunk + kChunk - bytes);
  push(size_class, last->next, final_block);
  return last;
}

}  // namespace

void* block_acquire(size_t bytes) {
  if (bytes > SIZE_MAX / 2) return nullptr;
  bytes += sizeof(Header);
  Header* block;
  if (bytes <= kLargest) {
    const unsigned size_class = class_of(bytes);
    block = pop(size_class);
    if (block == nullptr) block = carve(size_class);
    if (block == nullptr) return nullptr;
  } else {
    bytes = (bytes + 4095) & ~size_t{4095};
    block = static_cast<Header*>(map(bytes));
    if (block == nullptr) return nullptr;
    block->bytes = bytes;
  }
  return block + 1;
}

void block_release(void* memory) {
  if (memory == nullptr) return;
  Header* block = static_cast<Header*>(memory) - 1;
  if (block->bytes > kLargest) munmap(block, block->bytes);
  else push(class_of(block->bytes), block, block);
}

size_t block_bytes(const void* memory) { return (static_cast<const Header*>(memory) - 1)->bytes - sizeof(Header); }

}  // namespace resil
