// SPDX-License-Identifier: Apache-2.0
//
// The runs test of Wald and Wolfowitz, two-sided at 5 %: are the signs of a short sequence in random order? The
// critical values are computed from the exact distribution when this is compiled, so that there is no table to mistype.
#pragma once

#include <cstdint>

namespace resil::hang::stats {

constexpr uint32_t kMostSigns = 14;  // of one kind: batches of 16 with at least 2 of the other

constexpr uint64_t choose(uint32_t n, uint32_t k) {
  if (k > n) return 0;
  uint64_t result = 1;
  for (uint32_t i = 1; i <= k; ++i) result = result * (n - k + i) / i;
  return result;
}

/// How many of the choose(n0 + n1, n0) arrangements of n0 and n1 signs, both at least 1, have exactly `runs` runs.
constexpr uint64_t arrangements(uint32_t n0, uint32_t n1, uint32_t runs) {
  if (runs < 2) return 0;
  const uint32_t half = runs / 2;
  if (runs % 2 == 0) return 2 * choose(n0 - 1, half - 1) * choose(n1 - 1, half - 1);
  return choose(n0 - 1, half) * choose(n1 - 1, half - 1) + choose(n0 - 1, half - 1) * choose(n1 - 1, half);
}

/// So few or so many runs are not random; 0: no number of runs would be too few (too many).
struct Critical {
  uint8_t lower, upper;
};

constexpr Critical critical(uint32_t n0, uint32_t n1) {
  const uint64_t all = choose(n0 + n1, n0);
  Critical found{};
  uint64_t tail = 0;
  for (uint32_t runs = 2; (tail += arrangements(n0, n1, runs)) * 40 <= all; ++runs)
    found.lower = static_cast<uint8_t>(runs);
  tail = 0;
  const uint32_t fewer = n0 < n1 ? n0 : n1;
  for (uint32_t runs = 2 * fewer + (n0 != n1); (tail += arrangements(n0, n1, runs)) * 40 <= all; --runs)
    found.upper = static_cast<uint8_t>(runs);
  return found;
}

struct CriticalTable {
  Critical of[kMostSigns + 1][kMostSigns + 1];
};

constexpr CriticalTable make_critical_table() {
  CriticalTable table{};
  for (uint32_t n0 = 2; n0 <= kMostSigns; ++n0)
    for (uint32_t n1 = 2; n1 <= kMostSigns; ++n1) table.of[n0][n1] = critical(n0, n1);
  return table;
}

inline constexpr CriticalTable kCritical = make_critical_table();

/// Whether `runs` runs of n0 and n1 signs, 2 to kMostSigns each, may be chance.
constexpr bool may_be_random(uint32_t n0, uint32_t n1, uint32_t runs) {
  const Critical limits = kCritical.of[n0][n1];
  return runs > limits.lower && (limits.upper == 0 || runs < limits.upper);
}

}  // namespace resil::hang::stats
