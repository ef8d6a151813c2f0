// SPDX-License-Identifier: Apache-2.0
//
// See lists.h.

#include "detectors/spr/lists.h"

#include <climits>

namespace resil::spr {

namespace {

/// Is some entry outside of [base, base + total)? One test for the whole list: this reads as fast as memory.
bool any_outside(const int* entries, int64_t size, int base, int64_t total) {
  if (base != 0 && base != 1) {
    bool outside = false;
    for (int64_t i = 0; i < size; ++i)
      outside |= static_cast<uint64_t>(static_cast<int64_t>(entries[i]) - base) >= static_cast<uint64_t>(total);
    return outside;
  }
  // From 0 on as 32 bits without a sign: what lies below `base` is INT_MAX at least, and no total is larger.
  const uint64_t last = static_cast<uint64_t>(total) - 1;
  const auto from = static_cast<uint32_t>(base);
  uint64_t borrowed = 0;
#pragma GCC unroll 8
  for (int64_t i = 0; i < size; ++i) borrowed |= last - (static_cast<uint32_t>(entries[i]) - from);
  return borrowed >> 63 != 0;
}

}  // namespace

ListProblem check_lists(const Lists& lists) {
  using Kind = ListProblem::Kind;
  if (lists.local < 0 || lists.total < lists.local || lists.total > INT_MAX)
    return {Kind::kCounts, lists.local, lists.total};
  if (lists.local > 0 && (lists.offset == nullptr || lists.neighbour == nullptr)) return {Kind::kOffset, 0, 0};
  for (int64_t particle = 0; particle < lists.local; ++particle) {
    const int64_t size = lists.size(particle);
    if (size < 0 || lists.offset[particle] < 0) return {Kind::kOffset, particle, size};
    const int* const entries = lists.begin(particle);
    if (!any_outside(entries, size, lists.base, lists.total)) continue;
    for (int64_t i = 0; i < size; ++i) {
      const int64_t index = static_cast<int64_t>(entries[i]) - lists.base;
      if (index < 0 || index >= lists.total) return {Kind::kNeighbour, particle, entries[i]};
    }
  }
  return {Kind::kNone, 0, 0};
}

Symmetry look_at_symmetry(const Lists& lists, const int* selected, int64_t selected_count, int64_t start,
                          int64_t most) {
  Symmetry seen = {0, 0, -1, -1};
  const int64_t looked_at = selected_count < most ? selected_count : most;
  for (int64_t i = 0; i < looked_at; ++i) {
    const int64_t own = selected[(start + i) % selected_count];
    lists.neighbours(own, [&](int64_t other) {
      if (other >= lists.local || other == own) return;
      ++seen.pairs;
      bool back = false;
      lists.neighbours(other, [&](int64_t index) { back |= index == own; });
      if (back) return;
      if (seen.one_sided++ == 0) {
        seen.first = other;
        seen.second = own;
      }
    });
  }
  return seen;
}

}  // namespace resil::spr
