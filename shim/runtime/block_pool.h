// SPDX-License-Identifier: Apache-2.0
//
// Blocks of any size, kept for the next user: no system call in steady state. One free list for each power of two. Any
// thread, also inside MPI callbacks; the lock is held for a few instructions, never while mapping.
#pragma once

#include <bit>
#include <cstdint>

#include "shim/base/spinlock.h"
#include "shim/runtime/memory.h"

namespace resil::memory {

/// What sets the pools of the library apart.
struct BlockRules {
  size_t header;  ///< bytes before a block in which its size is kept, for callers who do not know it: 0, 16 or 64
  unsigned least, most;  ///< powers of two: the smallest and the largest block, header included
  size_t chunk = 0;  ///< mapped at a time for smaller blocks; 0: each block has a mapping of its own
  size_t bound = SIZE_MAX;  ///< bytes mapped in all
  /// A block above `most` is mapped for its time only; else it is refused. False also where blocks may never go back to
  /// the system because a communication library may have registered them.
  bool larger_mapped = false;
};

/// Blocks are aligned to the header's size, without a header to the smallest block's (4096 at most), and not cleared.
template <BlockRules rules>
class BlockPool {
 public:
  /// `bytes` at least; null: refused.
  void* allocate(size_t bytes) {
    if (bytes > SIZE_MAX / 2) return nullptr;
    bytes += rules.header;
    if (bytes > size_t{1} << rules.most) [[unlikely]]
      return rules.larger_mapped ? allocate_mapped(bytes) : nullptr;
    const unsigned order = order_of(bytes);
    char* block = pop(order);
    if (block == nullptr) [[unlikely]]
      block = carve(order);
    return block != nullptr ? block + rules.header : nullptr;
  }
  /// Null is allowed.
  void release(void* block) requires(rules.header != 0) {
    if (block == nullptr) return;
    char* start = static_cast<char*>(block) - rules.header;
    const size_t bytes = size_of(start);
    if (rules.larger_mapped && bytes > size_t{1} << rules.most) [[unlikely]]
      unmap(start, bytes);
    else push(order_of(bytes), start);
  }
  /// `bytes` as they were asked for.
  void release(void* block, size_t bytes) requires(rules.header == 0) {
    push(order_of(bytes), static_cast<char*>(block));
  }
  /// What a block really holds.
  static size_t capacity(const void* block) requires(rules.header != 0) {
    return size_of(static_cast<const char*>(block) - rules.header) - rules.header;
  }

 private:
  struct Free {
    size_t bytes;  ///< with a header: of the whole block, also while it is in use
    Free* next;
  };
  static_assert(rules.header == 0 || rules.header >= sizeof(Free));
  static_assert(size_t{1} << rules.least >= rules.header + sizeof(Free) && rules.most < 64);

  static unsigned order_of(size_t bytes) {
    const unsigned order = bytes > 1 ? static_cast<unsigned>(std::bit_width(bytes - 1)) : 0;
    return order > rules.least ? order : rules.least;
  }
  static size_t size_of(const char* start) { return reinterpret_cast<const Free*>(start)->bytes; }

  char* pop(unsigned order) {
    SpinGuard guard(lock_);
    Free* first = free_[order - rules.least];
    if (first != nullptr) [[likely]]
      free_[order - rules.least] = first->next;
    return reinterpret_cast<char*>(first);
  }
  void push(unsigned order, char* start) {
    auto* block = reinterpret_cast<Free*>(start);
    SpinGuard guard(lock_);
    block->next = free_[order - rules.least];
    free_[order - rules.least] = block;
  }
  /// Counted before it is mapped, so that the lock need not be held meanwhile.
  char* map_counted(size_t bytes) {
    if (rules.bound != SIZE_MAX) {
      SpinGuard guard(lock_);
      if (mapped_ + bytes > rules.bound) return nullptr;
      mapped_ += bytes;
    }
    return static_cast<char*>(map(bytes));
  }
  /// The first block of a new chunk; the others are free.
  [[gnu::noinline]] char* carve(unsigned order) {
    const size_t bytes = size_t{1} << order, all = bytes > rules.chunk ? bytes : rules.chunk;
    char* chunk = map_counted(all);
    if (chunk == nullptr) return nullptr;
    for (size_t at = all; at != 0;) {
      at -= bytes;
      if (rules.header != 0) reinterpret_cast<Free*>(chunk + at)->bytes = bytes;
      if (at != 0) push(order, chunk + at);
    }
    return chunk;
  }
  [[gnu::noinline]] char* allocate_mapped(size_t bytes) {
    bytes = (bytes + 4095) & ~size_t{4095};
    char* start = map_counted(bytes);
    if (start == nullptr) return nullptr;
    reinterpret_cast<Free*>(start)->bytes = bytes;
    return start + rules.header;
  }

  SpinLock lock_;
  size_t mapped_ = 0;
  Free* free_[rules.most - rules.least + 1] = {};
};

/// For whatever needs no rules of its own. Aligned to 16.
inline constinit BlockPool<BlockRules{
    .header = 16, .least = 8, .most = 16, .chunk = size_t{256} << 10, .larger_mapped = true}>
    blocks;

}  // namespace resil::memory
