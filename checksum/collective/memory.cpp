// SPDX-License-Identifier: Apache-2.0
//
// See memory.h.

#include "checksum/collective/memory.h"

#include <sys/mman.h>

#include <cstdint>

#include "shim/base/spinlock.h"

namespace resil::collective {

namespace {

constexpr unsigned kSmallest = 9, kLargest = 24;  // 512 bytes, 16 MiB
constexpr size_t kChunk = 64 << 10, kBound = 64 << 20;

struct Free {
  Free* next;
};

Free* free_lists[kLargest + 1];
size_t mapped;
SpinLock lock;

unsigned class_of(size_t bytes) {
  unsigned order = kSmallest;
  while (order <= kLargest && (size_t{1} << order) < bytes) ++order;
  return order;
}

/// Counts before it maps, so that the lock need not be held meanwhile.
char* map_chunk(size_t bytes) {
  {
    SpinGuard guard(lock);
    if (mapped + bytes > kBound) return nullptr;
    mapped += bytes;
  }
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return memory != MAP_FAILED ? static_cast<char*>(memory) : nullptr;
}

}  // namespace

void* memory_take(size_t bytes) {
  const unsigned order = class_of(bytes);
  if (order > kLargest) return nullptr;
  {
    SpinGuard guard(lock);
    if (Free* first = free_lists[order]; first != nullptr) {
      free_lists[order] = first->next;
      return first;
    }
  }
  const size_t size = size_t{1} << order, chunk = size > kChunk ? size : kChunk;
  char* memory = map_chunk(chunk);
  if (memory == nullptr) return nullptr;
  for (size_t at = size; at < chunk; at += size) memory_give(memory + at, size);
  return memory;
}

void memory_give(void* memory, size_t bytes) {
  const unsigned order = class_of(bytes);
  auto* block = static_cast<Free*>(memory);
  SpinGuard guard(lock);
  block->next = free_lists[order];
  free_lists[order] = block;
}

}  // namespace resil::collective
