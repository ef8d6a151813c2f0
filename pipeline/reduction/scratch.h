// SPDX-License-Identifier: Apache-2.0
//
// Memory of reductions. A rank that goes without while the others wait for its part would hang the job, so what the
// usual sizes need is reserved before a thread's first call and what is refused later ends the job with a message.
#pragma once

#include <cstddef>
#include <cstdint>

namespace resil::reduction {

/// A thread's scratch: a stack of blocks in memory that is reserved once. Blocks that find no room are mapped for the
/// time of the call.
struct Scratch {
  char* base;
  size_t bytes, top;
};

constexpr size_t kScratchBytes = size_t{24} << 20;

/// Zeroed address space, taken for good. Never null: ends the job when even that is refused.
char* map_memory(size_t bytes);

/// What one call takes from its thread's scratch, given back at the end of the scope.
class Arena {
 public:
  explicit Arena(Scratch& scratch) : scratch_(scratch), top_(scratch.top) {}
  ~Arena();
  Arena(const Arena&) = delete;

  /// Aligned to 64. Never null: ends the job when the system has no memory.
  char* take(size_t bytes);
  template <class T>
  T* array(int64_t count) {
    return reinterpret_cast<T*>(take(static_cast<size_t>(count) * sizeof(T)));
  }
  /// Gives back what was taken from the reserved part since `mark()`; mapped blocks stay.
  size_t mark() const { return scratch_.top; }
  void rewind(size_t mark) { scratch_.top = mark; }

 private:
  struct Mapped;
  Scratch& scratch_;
  size_t top_;
  Mapped* mapped_ = nullptr;
};

/// Memory that outlives the call, for nonblocking reductions: kept for the next one, never returned to the system (a
/// communication library may have registered it). Any thread; a short lock. Never null. `bytes` to give it back.
char* lend(size_t bytes);
void give_back(char* memory, size_t bytes);

}  // namespace resil::reduction
