// SPDX-License-Identifier: Apache-2.0
//
// A counter for reports that several threads may raise.
#pragma once

#include <cstdint>

#include "shim/tables/tables.h"

namespace resil {

/// An addition with a lock prefix only where threads call MPI at a time.
class Tally {
 public:
  void operator+=(uint64_t more) {
    if (request_table_has_threads()) __atomic_fetch_add(&value_, more, __ATOMIC_RELAXED);
    else __atomic_store_n(&value_, value_ + more, __ATOMIC_RELAXED);
  }
  void operator-=(uint64_t less) { *this += ~less + 1; }
  uint64_t value() const { return __atomic_load_n(&value_, __ATOMIC_RELAXED); }
  operator uint64_t() const { return value(); }

 private:
  uint64_t value_ = 0;
};

}  // namespace resil
