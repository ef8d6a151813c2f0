// SPDX-License-Identifier: Apache-2.0
//
// Which operations of an epoch touched the same memory: MPI leaves open what such memory holds afterwards.

#include <algorithm>

#include "checksum/rma/wire.h"

namespace resil::rma {

namespace {

/// The two furthest positions of different items.
struct Furthest {
  int64_t position[2];
  uint32_t item[2];
  unsigned count = 0;

  void add(int64_t at, uint32_t of) {
    if (count != 0 && item[0] == of) {
      position[0] = std::max(position[0], at);
    } else if (count == 2 && item[1] == of) {
      position[1] = std::max(position[1], at);
    } else if (count < 2) {
      position[count] = at;
      item[count++] = of;
    } else if (at > position[1]) {
      position[1] = at;
      item[1] = of;
    }
    if (count == 2 && position[1] > position[0]) {
      std::swap(position[0], position[1]);
      std::swap(item[0], item[1]);
    }
  }
  bool beyond(int64_t at, uint32_t of) const {
    for (unsigned i = 0; i < count; ++i)
      if (item[i] != of) return position[i] > at;
    return false;
  }
};

}  // namespace

void mark_overlaps(Interval* intervals, size_t count, bool* overlapped) {
  // Once forwards, where each sees those that start no later, and once backwards, where it sees the others.
  std::sort(intervals, intervals + count, [](const Interval& a, const Interval& b) { return a.start < b.start; });
  Furthest any, writers;
  for (size_t i = 0; i < count; ++i) {
    const Interval& one = intervals[i];
    if ((one.writes ? any : writers).beyond(one.start, one.item)) overlapped[one.item] = true;
    any.add(one.end, one.item);
    if (one.writes) writers.add(one.end, one.item);
  }
  any = {}, writers = {};
  for (size_t i = count; i-- > 0;) {
    const Interval& one = intervals[i];
    if ((one.writes ? any : writers).beyond(-one.end, one.item)) overlapped[one.item] = true;
    any.add(-one.start, one.item);
    if (one.writes) writers.add(-one.start, one.item);
  }
}

}  // namespace resil::rma
