// SPDX-License-Identifier: Apache-2.0
//
// Sorting without memory of its own. Any thread, also in signal handlers.
#pragma once

#include <cstddef>

namespace resil {

/// Heap sort in place: no recursion, no memory, no bad case.
template <class T, class Less>
void heap_sort(T* items, size_t count, Less less) {
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

}  // namespace resil
