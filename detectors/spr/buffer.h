// SPDX-License-Identifier: Apache-2.0
//
// An array of mapped pages that keeps its room: the arrays of a set are as large in each selection, or nearly.
#pragma once

#include <cstddef>

#include "shim/runtime/memory.h"

namespace resil::spr {

/// T: zeroed bytes are a valid start. Not copied; released with the set.
template <class T>
class Buffer {
 public:
  Buffer() = default;
  ~Buffer() { release(); }
  Buffer(const Buffer&) = delete;

  /// Room for `count` items at least; what was there is lost if it grows. False: no memory, and nothing is there.
  bool reserve(size_t count) {
    if (count <= room_ && items_ != nullptr) return true;
    const size_t wanted = count < 512 ? 512 : count + count / 8;
    release();
    items_ = memory::map_array<T>(wanted);
    room_ = items_ != nullptr ? wanted : 0;
    return items_ != nullptr;
  }
  /// The same with every item 0.
  bool reserve_zeroed(size_t count) {
    if (!reserve(count)) return false;
    memset(static_cast<void*>(items_), 0, count * sizeof(T));
    return true;
  }
  void release() {
    memory::unmap_array(items_, room_);
    items_ = nullptr;
    room_ = 0;
  }

  /// MPI may still read or write there: it stays mapped for good.
  void abandon() {
    items_ = nullptr;
    room_ = 0;
  }
  void swap(Buffer& other) {
    T* const items = items_;
    const size_t room = room_;
    items_ = other.items_;
    room_ = other.room_;
    other.items_ = items;
    other.room_ = room;
  }

  T* data() { return items_; }
  const T* data() const { return items_; }
  T& operator[](size_t at) { return items_[at]; }
  const T& operator[](size_t at) const { return items_[at]; }
  size_t bytes() const { return room_ * sizeof(T); }

 private:
  T* items_ = nullptr;
  size_t room_ = 0;
};

}  // namespace resil::spr
