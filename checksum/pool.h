// SPDX-License-Identifier: Apache-2.0
//
// Equal objects from memory that is mapped in steps and never given back to the system; bounded. No lock of its own.
#pragma once

#include <sys/mman.h>

#include <cstdint>

namespace resil {

/// `link`: the member that chains free objects; the object's own otherwise. take() gives what was left in it, or null.
template <class T, T* T::*link, uint32_t at_once, uint32_t at_most>
class Pool {
 public:
  T* take() {
    if (free_ == nullptr && !grow()) [[unlikely]]
      return nullptr;
    T* taken = free_;
    free_ = taken->*link;
    return taken;
  }
  /// Never maps memory; null then.
  T* take_ready() {
    T* taken = free_;
    if (taken != nullptr) [[likely]]
      free_ = taken->*link;
    return taken;
  }
  void give(T* object) {
    object->*link = free_;
    free_ = object;
  }

 private:
  [[gnu::noinline]] bool grow() {
    if (made_ >= at_most) return false;
    void* memory = mmap(nullptr, at_once * sizeof(T), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return false;
    made_ += at_once;
    for (uint32_t i = 0; i < at_once; ++i) give(static_cast<T*>(memory) + i);
    return true;
  }

  T* free_;
  uint32_t made_;
};

}  // namespace resil
