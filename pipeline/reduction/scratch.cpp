// SPDX-License-Identifier: Apache-2.0
//
// See scratch.h.

#include "pipeline/reduction/scratch.h"

#include <sys/mman.h>

#include <bit>

#include "pipeline/reduction/notes.h"
#include "shim/abi/backend.h"
#include "shim/base/spinlock.h"
#include "shim/report/log.h"

namespace resil::reduction {

namespace {

constexpr size_t kAlign = 64, kPage = 4096;
constexpr unsigned kClasses = 48;  // powers of two

struct Free {
  Free* next;
};
Free* free_blocks[kClasses];
SpinLock lock;

unsigned class_of(size_t bytes) { return static_cast<unsigned>(std::bit_width((bytes < kPage ? kPage : bytes) - 1)); }

}  // namespace

struct Arena::Mapped {
  Mapped* next;
  size_t bytes;
};

char* map_memory(size_t bytes) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    // The other ranks are waiting for this one's part: silence would hang them.
    log_format(messages::reduction::no_memory, bytes);
    backend->messages->abort(93);
  }
  return static_cast<char*>(memory);
}

Arena::~Arena() {
  scratch_.top = top_;
  while (mapped_ != nullptr) {
    Mapped* block = mapped_;
    mapped_ = block->next;
    munmap(block, block->bytes);
  }
}

char* Arena::take(size_t bytes) {
  const size_t rounded = (bytes + kAlign - 1) & ~(kAlign - 1);
  if (rounded <= scratch_.bytes - scratch_.top) [[likely]] {
    char* taken = scratch_.base + scratch_.top;
    scratch_.top += rounded;
    return taken;
  }
  char* memory = map_memory(rounded + kAlign);
  auto* block = reinterpret_cast<Mapped*>(memory);
  *block = {mapped_, rounded + kAlign};
  mapped_ = block;
  return memory + kAlign;
}

char* lend(size_t bytes) {
  const unsigned size = class_of(bytes);
  {
    SpinGuard guard(lock);
    if (Free* block = free_blocks[size]; block != nullptr) {
      free_blocks[size] = block->next;
      return reinterpret_cast<char*>(block);
    }
  }
  return map_memory(size_t{1} << size);
}

void give_back(char* memory, size_t bytes) {
  auto* block = reinterpret_cast<Free*>(memory);
  SpinGuard guard(lock);
  block->next = free_blocks[class_of(bytes)];
  free_blocks[class_of(bytes)] = block;
}

}  // namespace resil::reduction
