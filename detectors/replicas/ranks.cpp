// SPDX-License-Identifier: Apache-2.0
//
// See ranks.h.

#include "detectors/replicas/ranks.h"

#include <cstring>

namespace resil::replicas {

namespace {

constexpr int64_t kHighest = 0x7fffffff;

/// "3" or "3-5".
bool parse_one(Slice text, RankList::Range* range) {
  int64_t first = 0, last = 0;
  const auto* dash = static_cast<const char*>(text.size != 0 ? memchr(text.data, '-', text.size) : nullptr);
  if (dash == nullptr) {
    if (!parse_integer(text, &first) || text.data[0] == '+') return false;
    last = first;
  } else {
    const Slice left = {text.data, static_cast<size_t>(dash - text.data)};
    const Slice right = {dash + 1, text.size - left.size - 1};
    if (!parse_integer(trimmed(left), &first) || !parse_integer(trimmed(right), &last)) return false;
  }
  if (first < 0 || last < first || last > kHighest) return false;
  *range = {static_cast<int32_t>(first), static_cast<int32_t>(last)};
  return true;
}

}  // namespace

bool RankList::parse(Slice text, ValueProblem* problem) {
  const auto fail = [problem](const char* what, Slice part) {
    problem->what = what;
    problem->part = part;
    return false;
  };
  count = 0;
  Slice rest = text, part;
  while (next_part(&rest, ',', &part)) {
    part = trimmed(part);
    Range range;
    if (!parse_one(part, &range)) return fail("not a rank, nor a range of ranks", part);
    for (int i = 0; i < count; ++i)
      if (range.first <= ranges[i].last && ranges[i].first <= range.last) return fail("named twice", part);
    if (count == kMost) return fail("one range too many", part);
    ranges[count++] = range;
  }
  return count != 0 || fail("no rank", text);
}

int64_t RankList::ranks() const {
  int64_t all = 0;
  for (int i = 0; i < count; ++i) all += int64_t{ranges[i].last} - ranges[i].first + 1;
  return all;
}

int32_t RankList::highest() const {
  int32_t highest = -1;
  for (int i = 0; i < count; ++i)
    if (ranges[i].last > highest) highest = ranges[i].last;
  return highest;
}

int32_t RankList::rank_at(int number) const {
  for (int i = 0; i < count; ++i) {
    const int here = ranges[i].last - ranges[i].first + 1;
    if (number < here) return ranges[i].first + number;
    number -= here;
  }
  return -1;
}

int RankList::number_of(int32_t rank) const {
  int before = 0;
  for (int i = 0; i < count; ++i) {
    if (rank >= ranges[i].first && rank <= ranges[i].last) return before + (rank - ranges[i].first);
    before += ranges[i].last - ranges[i].first + 1;
  }
  return -1;
}

}  // namespace resil::replicas
