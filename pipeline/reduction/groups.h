// SPDX-License-Identifier: Apache-2.0
//
// Folds of many ranks' contributions that lie in rings. Each aligned group of eight ranks is a subtree of the canonical
// association: its fold may be read in place of its contributions. The last rank of a group shows it. Whoever finds it
// there takes it. Whoever does not find it takes the contributions: nobody waits for another rank than those whose
// contributions he needs, and the bits are the same either way.
//
// No MPI, no system call: the caller says how to wait.
#pragma once

#include "pipeline/reduction/kernel.h"
#include "pipeline/reduction/rings.h"

namespace resil::reduction {

constexpr int kGroup = 8;
/// With fewer, each contribution is read by whoever needs it.
constexpr int kGroupedRanks = 16;

struct GroupFold {
  Kernel kernel;
  int32_t rank, size;
  int32_t ranks;  ///< the first so many are folded: 0, this rank's number, the one above it, or all
  bool shows;  ///< this rank shows the fold of its group
  bool promised;  ///< whoever shows the fold of a group waits for all of it
  size_t units;
  uint64_t what;
};

/// Whether a rank shows the fold of its group. In a reduction to all, and to higher ranks (prefixes), it waits for the
/// whole group in any case. In one to a root it shows the fold if the group is complete when it comes.
inline bool last_of_group(int rank, int size) { return rank % kGroup == kGroup - 1 || rank == size - 1; }
inline bool shows_to_all(int rank, int size) { return last_of_group(rank, size) && rank % kGroup != 0; }
inline bool shows_to_root(int rank, int size, int root) {
  return shows_to_all(rank, size) && rank / kGroup != root / kGroup;
}
inline bool shows_to_higher(int rank, int size) { return rank % kGroup == kGroup - 1 && rank < size - 1; }

/// Bytes of scratch, aligned to 64, for contributions of up to `most` bytes.
constexpr size_t group_scratch(int most_ranks, size_t most) {
  return kFoldScratch + static_cast<size_t>((most_ranks + kGroup - 1) / kGroup) * ((most + 63) / 64 * 64);
}

/// Of one step in which this rank has shown its contribution. True: another rank's has another length; there is no
/// result then. `Waits`:
///   bool contribution(int rank)  waits until that rank has shown its own; true: of another length
///   bool fold(int rank)          looks, for a while, whether that rank has shown the fold of its group
template <int kMostRanks, class Waits>
bool fold_by_groups(Rings& rings, const GroupFold& f, char* output, char* scratch, Waits&& waits) {
  const char* parts[(kMostRanks + kGroup - 1) / kGroup];
  const size_t stride = (f.what + 63) / 64 * 64;
  bool differs = false;
  const auto fold_group = [&](int first, int end, char* to) -> const char* {
    const char* cells[kGroup];
    for (int r = first; r < end; ++r) cells[r - first] = rings.data(r);
    if (end - first == 1) return cells[0];
    fold_prepared(f.kernel, cells, static_cast<size_t>(end - first), to, f.units, scratch);
    return to;
  };
  const auto room = [&](int first) { return scratch + kFoldScratch + static_cast<size_t>(first / kGroup) * stride; };

  // Its own group: contributions that few ranks read.
  const int own = f.rank / kGroup * kGroup, own_end = f.size - own < kGroup ? f.size : own + kGroup;
  const int needed = f.ranks < own_end ? f.ranks : own_end;
  for (int r = own; r < needed; ++r) {
    if (r == f.rank) continue;
    differs |= waits.contribution(r);
    rings.prefetch(r);
  }
  const bool alone = f.ranks <= kGroup && own == 0;
  if (f.shows) {
    bool complete = !differs;
    for (int r = needed > own ? needed : own; r < own_end && complete; ++r)
      complete = rings.shown(r) && rings.what(r) == f.what;
    if (complete) {
      fold_group(own, own_end, rings.own_fold());
      rings.show_fold(f.what);
    }
    if (complete && needed == own_end) parts[own / kGroup] = rings.own_fold();
    else if (!differs && needed > own) parts[own / kGroup] = fold_group(own, needed, room(own));
  } else if (!differs && needed > own) {
    char* to = alone ? output : room(own);
    parts[own / kGroup] = fold_group(own, needed, to);
    if (alone && parts[0] == output) return false;
  }

  for (int first = 0; first < f.ranks; first += kGroup) {
    if (first == own) continue;
    const int end = f.ranks - first < kGroup ? f.ranks : first + kGroup, shower = end - 1;
    for (int next = first;;) {
      if (end - first > 1 && waits.fold(shower)) {
        differs |= rings.fold_what(shower) != f.what;
        rings.prefetch_fold(shower);
        parts[first / kGroup] = rings.fold(shower);
        break;
      }
      for (; next < end && rings.shown(next); ++next) differs |= rings.what(next) != f.what;
      if (next == end) {
        if (!differs) parts[first / kGroup] = fold_group(first, end, room(first));
        break;
      }
      differs |= waits.contribution(next++);
    }
  }
  if (!differs && f.ranks != 0)
    fold_prepared(f.kernel, parts, static_cast<size_t>((f.ranks + kGroup - 1) / kGroup), output, f.units, scratch);
  return differs;
}

}  // namespace resil::reduction
