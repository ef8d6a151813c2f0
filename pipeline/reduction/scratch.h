// SPDX-License-Identifier: Apache-2.0
//
// Memory of reductions. A rank that goes without while the others wait for its part would hang the job, so what the
// usual sizes need is reserved before a thread's first call and what is refused later ends the job with a message.
#pragma once

#include <cstddef>
#include <cstdint>

#include "shim/runtime/arena.h"

namespace resil::reduction {

/// A thread's scratch: a stack of blocks in memory that is reserved once. Blocks that find no room are mapped for the
/// time of the call.
struct Scratch {
  char* base;
  size_t bytes, top;
};

constexpr size_t kScratchBytes = size_t{24} << 20;

/// Zeroed address space. Never null: ends the job when even that is refused.
char* map_or_end(size_t bytes);

/// What one call allocates from its thread's scratch, released at the end of the scope.
class Arena {
 public:
  explicit Arena(Scratch& scratch) : scratch_(scratch), top_(scratch.top) {}
  ~Arena() { scratch_.top = top_; }
  Arena(const Arena&) = delete;

  /// Aligned to 64. Never null: ends the job when the system has no memory.
  char* allocate(size_t bytes);
  template <class T>
  T* array(int64_t count) {
    return reinterpret_cast<T*>(allocate(static_cast<size_t>(count) * sizeof(T)));
  }
  /// Releases what was allocated from the reserved part since `mark()`; mapped blocks stay.
  size_t mark() const { return scratch_.top; }
  void rewind(size_t mark) { scratch_.top = mark; }

 private:
  Scratch& scratch_;
  size_t top_;
  memory::Arena<0, 64> beyond_;  ///< what found no room in the scratch
};

/// Memory that outlives the call, for nonblocking reductions: kept for the next one, never returned to the system (a
/// communication library may have registered it). Any thread; a short lock. Never null. Null is allowed in release().
char* allocate(size_t bytes);
void release(void* block);

}  // namespace resil::reduction
