// SPDX-License-Identifier: Apache-2.0
//
// ParaStack's levels of sample size: which share of low samples may be called suspicious, and how far the observed
// probability may be from the true one (95 % confidence), so that a small sample does not promise too much.
#pragma once

#include <cstdint>

namespace resil::hang::stats {

struct Level {
  double p, tolerance;
};

constexpr uint32_t kLevels = 4;
constexpr Level kLevel[kLevels] = {{.47, .3}, {.27, .2}, {.12, .1}, {.06, .05}};

constexpr double kNever = 1e300;

/// Samples needed to trust the observed probability `f` of samples at or below the first bin that reaches the level's
/// p: the width of the confidence interval, or five expected samples above where f is near 1.
constexpr double samples_needed(const Level& level, double f) {
  if (f <= 1 - level.p) return 1.96 * 1.96 * f * (1 - f) / (level.tolerance * level.tolerance);
  return f < 1 ? 5 / (1 - f) : kNever;
}

/// The same for the bin before that one, whose probability is below p: five expected samples.
constexpr double samples_needed_below(double f) { return f > 0 ? 5 / f : kNever; }

/// The probability that the test reckons with: never below the true one with 97.5 % confidence, for p_hat up to 1/2.
constexpr double with_tolerance(const Level& level, double p_hat) {
  return p_hat <= .5 ? p_hat + level.tolerance : p_hat;
}

/// How many suspicions in a row are significant: the least k with q^k <= alpha; `most` + 1 when more than that.
constexpr uint32_t consecutive(double q, double alpha, uint32_t most) {
  double probability = 1;
  uint32_t k = 0;
  while (probability > alpha && k <= most) {
    probability *= q;
    ++k;
  }
  return k;
}

}  // namespace resil::hang::stats
