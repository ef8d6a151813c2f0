// SPDX-License-Identifier: Apache-2.0
//
// Large-count arguments for a library that only has the int functions (see the generated fallbacks): copies of count
// and displacement arrays, checked. Not on any path that a library with `_c` functions takes.
#pragma once

#include <cstdint>
#include <cstdlib>

namespace resil {

class LargeCountFallback {
 public:
  explicit LargeCountFallback(int64_t length) : length_(length) {}
  LargeCountFallback(const LargeCountFallback&) = delete;
  ~LargeCountFallback() {
    for (unsigned i = 0; i < used_ && !kept_; ++i) free(arrays_[i]);
  }

  /// A copy of `values` in the narrower type; null for null or empty. Sets !ok() when a value does not fit.
  template <class T, class From>
  T* array(const From* values) {
    if (values == nullptr || length_ <= 0) return nullptr;
    auto* copy = static_cast<T*>(malloc(static_cast<size_t>(length_) * sizeof(T)));
    if (copy == nullptr) {
      ok_ = false;
      return nullptr;
    }
    arrays_[used_++] = copy;
    for (int64_t i = 0; i < length_; ++i) {
      copy[i] = static_cast<T>(values[i]);
      ok_ = ok_ && static_cast<From>(copy[i]) == values[i];
    }
    return copy;
  }

  bool ok() const { return ok_; }

  /// Nonblocking and persistent calls: MPI may read the arrays until the request is freed, which only the library
  /// knows for sure. They are left allocated: a few words per call, in a case that no library needs by itself.
  void keep() { kept_ = true; }

 private:
  int64_t length_;
  void* arrays_[8] = {};
  unsigned used_ = 0;
  bool ok_ = true, kept_ = false;
};

}  // namespace resil
