// SPDX-License-Identifier: Apache-2.0
//
// See read.h for why this is right.

#include "detectors/hang/mismatch/read.h"

namespace resil::hang {

namespace {

uint64_t load(const uint64_t& word) { return __atomic_load_n(&word, __ATOMIC_ACQUIRE); }

struct Copy {
  uint64_t recent[kRecent];
  uint32_t types[kRecent];
  CheckPoint points[kLevels - kLowestLevel][2];
  uint64_t early[kEarly];
};

/// Ascending, without repetition. False: two hashes after the same call.
bool insert(PathPoint* points, uint32_t* count, uint64_t n, uint64_t rolling) {
  uint32_t place = *count;
  while (place > 0 && points[place - 1].n > n) --place;
  if (place > 0 && points[place - 1].n == n) return points[place - 1].rolling == rolling;
  for (uint32_t i = *count; i > place; --i) points[i] = points[i - 1];
  points[place] = {n, rolling, 0, 0};
  ++*count;
  return true;
}

/// What the check points give. False: one is not what its place says.
bool valid_points(const Copy& copy, uint64_t first_seen, uint64_t busy, PathPoint* out, uint32_t* count) {
  *count = 0;
  for (uint32_t level = 0; level < kEarly && (uint64_t{1} << level) <= first_seen; ++level)
    if (!insert(out, count, uint64_t{1} << level, copy.early[level])) return false;
  for (uint32_t level = kLevels; level-- > kLowestLevel;) {
    const uint64_t step = uint64_t{1} << level, newest = first_seen & ~(step - 1);
    for (uint64_t back = 1; back <= 2; ++back) {
      const uint64_t n = newest - (2 - back) * step;  // wraps below 0: greater than newest
      if (n == 0 || n > newest || n + 2 * step <= busy) continue;
      const CheckPoint& point = ring::point_of(copy, level, n);
      if (point.sequence != n || !insert(out, count, n, point.rolling)) return false;
    }
  }
  return true;
}

}  // namespace

ReadResult read_history(const CollectiveHistory& history, HistoryRead* out) {
  out->count = 0;
  out->shape = load(history.shape);
  out->comm = load(history.comm);
  if (out->comm == 0) return ReadResult::kEmpty;
  const uint64_t first_seen = out->sequence = load(history.sequence);
  if (first_seen == 0) return ReadResult::kEmpty;
  Copy copy;
  for (uint32_t i = 0; i < kRecent; ++i) copy.recent[i] = load(history.recent[i]);
  for (uint32_t i = 0; i < kRecent; ++i) copy.types[i] = __atomic_load_n(&history.types[i], __ATOMIC_ACQUIRE);
  for (uint32_t level = 0; level < kLevels - kLowestLevel; ++level)
    for (uint32_t side = 0; side < 2; ++side) {
      copy.points[level][side].sequence = load(history.points[level][side].sequence);
      copy.points[level][side].rolling = load(history.points[level][side].rolling);
    }
  for (uint32_t level = 0; level < kEarly; ++level) copy.early[level] = load(history.early[level]);
  const uint64_t last_seen = load(history.sequence), busy = last_seen + 1;
  if (load(history.shape) != out->shape) return ReadResult::kMoving;
  if (last_seen < first_seen) return ReadResult::kBroken;

  PathPoint points[2 * kLevels + kEarly];
  uint32_t count = 0;
  if (!valid_points(copy, first_seen, busy, points, &count)) return ReadResult::kBroken;
  if (count == 0) return ReadResult::kMoving;
  // Signatures of the calls oldest..first_seen are valid.
  const uint64_t oldest = busy >= kRecent ? busy - kRecent + 1 : 1;
  const PathPoint anchor = points[count - 1];
  if (oldest > first_seen || oldest > anchor.n + 1) {
    for (uint32_t i = 0; i < count; ++i) out->points[out->count++] = points[i];
    return ReadResult::kRead;
  }
  PathPoint run[kRecent + 1];  // ascending from before the oldest known call
  uint32_t length = 0;
  uint64_t rolling = anchor.rolling;
  for (uint64_t n = anchor.n; n >= oldest; --n) rolling = unroll(rolling, copy.recent[n % kRecent]);
  run[length++] = {oldest - 1, rolling, 0, 0};
  for (uint64_t n = oldest; n <= first_seen; ++n) {
    rolling = roll(rolling, copy.recent[n % kRecent]);
    run[length++] = {n, rolling, copy.recent[n % kRecent], copy.types[n % kRecent]};
  }
  // Below the run the check points stand alone; within, they must say the same.
  for (uint32_t i = 0; i < count; ++i) {
    if (points[i].n < oldest - 1) out->points[out->count++] = points[i];
    else if (run[points[i].n - (oldest - 1)].rolling != points[i].rolling) return ReadResult::kBroken;
  }
  if (oldest == 1 && run[0].rolling != 0) return ReadResult::kBroken;  // the hash of no call at all
  for (uint32_t i = oldest == 1 ? 1 : 0; i < length; ++i) out->points[out->count++] = run[i];
  return ReadResult::kRead;
}

}  // namespace resil::hang
