// SPDX-License-Identifier: Apache-2.0
//
// Which samples are suspicious, and how many in a row are significant.
#include "detectors/hang/stats/levels.h"
#include "detectors/hang/stats/model.h"

namespace resil::hang::stats {

namespace {

constexpr uint32_t kLowest = 1;  // bins; see try_level
constexpr uint32_t kMany = 27;  // suspicions in a row that the coarsest level needs at alpha = 0.001
constexpr double kEnough = 86;  // samples of the finest level
constexpr double kBelowUsual = .13;  // upper 97.5 % bound of a probability seen less than 6 % of 86 times

}  // namespace

void Model::choose_level() {
  chosen_at_ = samples_;
  needed_ = 0;
  if (random_)
    for (uint32_t level = kLevels; level-- != 0;)
      if (try_level(level)) break;
  if (needed_ == 0) rejected();
}

/// The first bin that reaches the level's p, or the one before it, whichever needs fewer samples. Never bin 0 alone:
/// in a computation hang at least one rank is out, and where all of them are usually in, a threshold of 0 would call
/// the healthy state suspicious and the hang healthy.
bool Model::try_level(uint32_t level) {
  double below = 0, weight = counts_[0];
  uint32_t i = 0;
  while (i + 1 < kBins && (i < kLowest || weight < kLevel[level].p * samples_)) {
    below = weight;
    weight += counts_[++i];
  }
  const bool has_lower = i > kLowest;
  const double f = weight / samples_, f_below = below / samples_;
  const double here = samples_needed(kLevel[level], f), lower = has_lower ? samples_needed_below(f_below) : kNever;
  if (samples_ > (lower < here ? lower : here)) {
    const bool use_lower = lower < here;
    const double p_hat = use_lower ? f_below : f;
    if (use(use_lower ? i - 1 : i, p_hat, with_tolerance(kLevel[level], p_hat)) && needed_ <= kMany) return true;
  }
  // Nearly all samples share the first bin that reaches p, and the one before has too few for the normal approximation:
  // then less than ever, or hardly ever, seen is suspicious, with the bound that the binomial distribution itself
  // gives.
  if (level + 1 == kLevels && has_lower && samples_ >= kEnough && use(i - 1, f_below, kBelowUsual)) return true;
  return needed_ != 0;
}

bool Model::use(uint32_t bin, double p_hat, double q) {
  const uint32_t k = consecutive(q, alpha_, kMostSuspicions);
  if (k > kMostSuspicions) return false;
  if (needed_ != k || threshold_ != bin) rejected();  // what was counted was counted by another rule
  threshold_ = bin;
  p_hat_ = p_hat;
  q_ = q;
  needed_ = k;
  return true;
}

}  // namespace resil::hang::stats
