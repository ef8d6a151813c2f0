// SPDX-License-Identifier: Apache-2.0
//
// See scratch.h.

#include "pipeline/reduction/scratch.h"

#include <bit>
#include "pipeline/reduction/notes.h"
#include "shim/abi/backend.h"
#include "shim/report/log.h"
#include "shim/runtime/block_pool.h"

namespace resil::reduction {

namespace {

constexpr size_t kAlign = 64;
constinit memory::BlockPool<memory::BlockRules{.header = 64, .least = 12, .most = 47}> pool;

char* or_end(void* memory, size_t bytes) {
  if (memory == nullptr) [[unlikely]] {
    // The other ranks are waiting for this one's part: silence would hang them.
    log_format(messages::reduction::no_memory, bytes);
    backend->messages->abort(93);
  }
  return static_cast<char*>(memory);
}

}  // namespace

char* map_or_end(size_t bytes) { return or_end(memory::map(bytes), bytes); }

char* Arena::allocate(size_t bytes) {
  const size_t rounded = (bytes + kAlign - 1) & ~(kAlign - 1);
  if (rounded <= scratch_.bytes - scratch_.top) [[likely]] {
    char* piece = scratch_.base + scratch_.top;
    scratch_.top += rounded;
    return piece;
  }
  return or_end(beyond_.allocate<char>(rounded), rounded);
}

char* allocate(size_t bytes) { return or_end(pool.allocate(bytes), bytes); }

void release(void* block) { pool.release(block); }

}  // namespace resil::reduction
