// SPDX-License-Identifier: Apache-2.0
//
// Memory of one judgement: fresh mappings, so that a job of a few ranks touches a few pages and the helper keeps none
// of it between two judgements.
#pragma once

#include <cstddef>
#include <cstdint>

#include "shim/runtime/arena.h"

namespace resil::hang::graph {

using Arena = memory::Arena<size_t{4} << 20>;

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
