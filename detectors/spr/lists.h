// SPDX-License-Identifier: Apache-2.0
//
// The program's neighbour lists as resil_spr_select() gives them, and whether they can be used. Reads memory of the
// program's; no MPI, no state.
#pragma once

#include <cstddef>
#include <cstdint>

namespace resil::spr {

/// Lists of the `local` particles of this rank. Entries are indices from `base` on; behind the local particles come
/// copies of other ranks', up to `total`.
struct Lists {
  int64_t local, total;
  const int64_t* offset;  ///< of each list in `neighbour`, from 0 on; local + 1 of them where `count` is null
  const int* count;
  const int* neighbour;
  int base;

  int64_t size(int64_t particle) const {
    return count != nullptr ? count[particle] : offset[particle + 1] - offset[particle];
  }
  const int* begin(int64_t particle) const { return neighbour + offset[particle]; }
  /// Calls `each(index)` with every neighbour, from 0 on, in the program's order.
  template <class Each>
  void neighbours(int64_t particle, Each each) const {
    const int* const entries = begin(particle);
    for (int64_t i = 0, end = size(particle); i < end; ++i) each(static_cast<int64_t>(entries[i]) - base);
  }
};

/// Why lists cannot be used: `particle` is the first one whose list is wrong, `value` what stands there.
struct ListProblem {
  enum class Kind : uint8_t { kNone, kCounts, kOffset, kNeighbour } kind;
  int64_t particle, value;
};
ListProblem check_lists(const Lists& lists);

/// Of pairs of local particles, the first in the list of the second one: is the second in that of the first?
struct Symmetry {
  int64_t pairs, one_sided;
  int64_t first, second;  ///< of the first pair that is one-sided
};
/// Looks at the lists of at most `most` of the `selected` particles, from number `start` on, around the end.
Symmetry look_at_symmetry(const Lists& lists, const int* selected, int64_t selected_count, int64_t start, int64_t most);

}  // namespace resil::spr
