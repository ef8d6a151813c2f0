// SPDX-License-Identifier: Apache-2.0
//
// Memory that is allocated piece by piece and released at once. One thread.
#pragma once

#include <cstdint>

#include "shim/runtime/memory.h"

namespace resil::memory {

/// `chunk`: bytes that are mapped at a time; more for what is larger, 0: as many as are needed. `align`: of each piece.
template <size_t chunk, size_t align = 16>
class Arena {
 public:
  Arena() = default;
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  ~Arena() {
    while (newest_ != nullptr) {
      Chunk* older = newest_->older;
      unmap(newest_, newest_->bytes);
      newest_ = older;
    }
  }

  /// `count` zeroed objects; null: refused, and then `failed()` for good. `count` 0: not null.
  template <class T>
  T* allocate(size_t count) {
    const size_t bytes = (count * sizeof(T) + align - 1) & ~(align - 1);
    if (failed_ || ((newest_ == nullptr || used_ + bytes > room_) && !grow(bytes))) return nullptr;
    char* piece = reinterpret_cast<char*>(newest_) + used_;
    used_ += bytes;
    return reinterpret_cast<T*>(piece);
  }
  bool failed() const { return failed_; }

 private:
  struct alignas(align) Chunk {
    Chunk* older;
    size_t bytes;
  };
  bool grow(size_t bytes) {
    const size_t whole = (sizeof(Chunk) + (bytes > chunk ? bytes : chunk) + 4095) & ~size_t{4095};
    auto* mapped = static_cast<Chunk*>(map(whole));
    if (mapped == nullptr) {
      failed_ = true;
      return false;
    }
    mapped->older = newest_;
    mapped->bytes = whole;
    newest_ = mapped;
    used_ = sizeof(Chunk);
    room_ = whole;
    return true;
  }

  Chunk* newest_ = nullptr;
  size_t used_ = 0, room_ = 0;
  bool failed_ = false;
};

}  // namespace resil::memory
