// SPDX-License-Identifier: Apache-2.0
//
// Objects of one size from memory that is mapped in steps and never returned to the system; bounded. No lock of its
// own.
#pragma once

#include <cstdint>

#include "shim/runtime/memory.h"

namespace resil::memory {

/// `link`: the member that chains free objects; in use it is the object's own. Zeroed memory is an empty pool.
template <class T, T* T::*link, uint32_t at_once, uint32_t at_most>
class Pool {
 public:
  /// What the last user left in it, zeroed the first time; null: the bound is reached or the system refuses.
  T* allocate() {
    if (free_ == nullptr && !grow()) [[unlikely]]
      return nullptr;
    return allocate_ready();
  }
  /// Never maps memory; null then.
  T* allocate_ready() {
    T* object = free_;
    if (object != nullptr) [[likely]]
      set_free(object->*link);
    return object;
  }
  void release(T* object) {
    object->*link = free_;
    set_free(object);
  }
  /// Whether allocate() needs no system call. The only member that may be called without the pool's lock.
  bool has_ready() const { return __atomic_load_n(&free_, __ATOMIC_RELAXED) != nullptr; }

 private:
  [[gnu::noinline]] bool grow() {
    if (made_ >= at_most) return false;
    T* objects = map_array<T>(at_once);
    if (objects == nullptr) return false;
    made_ += at_once;
    for (uint32_t i = 0; i < at_once; ++i) release(objects + i);
    return true;
  }
  void set_free(T* object) { __atomic_store_n(&free_, object, __ATOMIC_RELAXED); }

  T* free_;
  uint32_t made_;
};

}  // namespace resil::memory
