// SPDX-License-Identifier: Apache-2.0
//
// Memory of one judgement: taken piece by piece, zeroed, given back at once. Fresh mappings, so that a job of a few
// ranks touches a few pages and the helper keeps none of it between two judgements.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>

namespace resil::hang::graph {

class Arena {
 public:
  Arena() = default;
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  ~Arena() {
    while (newest_ != nullptr) {
      Chunk* older = newest_->older;
      munmap(newest_, newest_->bytes);
      newest_ = older;
    }
  }

  /// `count` zeroed objects; null when there is no memory, and then `failed()` for good. `count` 0: not null.
  template <class T>
  T* take(size_t count) {
    const size_t bytes = (count * sizeof(T) + 15) & ~size_t{15};
    if (failed_ || ((newest_ == nullptr || used_ + bytes > room_) && !grow(bytes))) return nullptr;
    char* taken = reinterpret_cast<char*>(newest_) + used_;
    used_ += bytes;
    return reinterpret_cast<T*>(taken);
  }
  bool failed() const { return failed_; }

 private:
  struct Chunk {
    Chunk* older;
    size_t bytes;
  };
  bool grow(size_t bytes) {
    constexpr size_t kUsual = size_t{4} << 20;
    const size_t whole = (sizeof(Chunk) + (bytes > kUsual ? bytes : kUsual) + 4095) & ~size_t{4095};
    void* memory = mmap(nullptr, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
      failed_ = true;
      return false;
    }
    Chunk* chunk = static_cast<Chunk*>(memory);
    chunk->older = newest_;
    chunk->bytes = whole;
    newest_ = chunk;
    used_ = sizeof(Chunk);
    room_ = whole;
    return true;
  }

  Chunk* newest_ = nullptr;
  size_t used_ = 0, room_ = 0;
  bool failed_ = false;
};

/// Heap sort in place: no recursion, no memory, no bad case.
template <class T, class Less>
void sort(T* items, size_t count, Less less) {
  auto sift = [&](size_t at, size_t end) {
    const T moved = items[at];
    for (size_t child; (child = 2 * at + 1) < end; at = child) {
      if (child + 1 < end && less(items[child], items[child + 1])) ++child;
      if (!less(moved, items[child])) break;
      items[at] = items[child];
    }
    items[at] = moved;
  };
  for (size_t i = count / 2; i-- > 0;) sift(i, count);
  for (size_t end = count; end-- > 1;) {
    const T last = items[end];
    items[end] = items[0];
    items[0] = last;
    sift(0, end);
  }
}

/// For open addressing, at most half full.
inline size_t power_of_two_above(size_t count) {
  size_t power = 16;
  while (power < 2 * count) power *= 2;
  return power;
}

}  // namespace resil::hang::graph
