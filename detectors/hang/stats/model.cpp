// SPDX-License-Identifier: Apache-2.0
//
// Samples, their histogram and the runs test. Which samples are suspicious is decided in model_level.cpp.
#include "detectors/hang/stats/model.h"

#include <cstring>

#include "detectors/hang/stats/runs_test.h"

namespace resil::hang::stats {

namespace {

constexpr uint32_t kExact = 512;  // ranks out that have a bin each, in jobs too large for one bin a rank
constexpr uint32_t kFailuresLater = 3;  // batches in a row; one batch in twenty fails by chance
constexpr uint32_t kPassesToHalve = 8;

double power(double base, uint32_t exponent) {
  double result = 1;
  for (; exponent != 0; --exponent) result *= base;
  return result;
}

}  // namespace

void Model::start(uint32_t total_ranks, double interval, double alpha, uint64_t seed) {
  memset(static_cast<void*>(this), 0, sizeof(*this));
  total_ = total_ranks == 0 ? 1 : total_ranks;
  first_interval_ = interval_ = interval;
  alpha_ = alpha;
  probability_ = 1;
  steps_.start(seed);
}

/// A monotone map: what is rare in a hang's direction, few ranks out, keeps its full resolution in jobs of any size.
uint32_t Model::bin(uint32_t out, uint32_t total) const {
  uint64_t scaled = out;
  if (total != total_ && out != 0) {  // some ranks have ended: the same share of those that began
    scaled = (static_cast<uint64_t>(out) * total_ + total / 2) / total;
    scaled = scaled == 0 ? 1 : scaled;
  }
  scaled = scaled > total_ ? total_ : scaled;
  if (total_ < kBins || scaled < kExact) return static_cast<uint32_t>(scaled);
  return kExact + static_cast<uint32_t>((scaled - kExact) * (kBins - 1 - kExact) / (total_ - kExact));
}

uint32_t Model::threshold() const {
  if (total_ < kBins || threshold_ < kExact) return threshold_;
  // The largest number of ranks whose bin is not above the threshold.
  return kExact + static_cast<uint32_t>((static_cast<uint64_t>(threshold_ + 1 - kExact) * (total_ - kExact) - 1) /
                                        (kBins - 1 - kExact));
}

Observation Model::observe(uint32_t out, uint32_t total) {
  if (total == 0 || total_ == 0) return {Judgement::kLearning, 0, 1};
  const uint32_t here = bin(out, total);
  const bool usable_before = usable();
  if (usable_before && here <= threshold_) {
    ++suspicions_;
    probability_ *= q_;
    if (suspicions_ >= needed_)  // not learned: if this is a hang, it would soon look usual
      return {Judgement::kCandidate, suspicions_, probability_};
  } else {
    rejected();
  }
  learn(here);
  if (!usable_before)
    return {usable() || samples_ < 2 * kBatch || !random_ ? Judgement::kLearning : Judgement::kCannotJudge, 0, 1};
  return {suspicions_ != 0 ? Judgement::kSuspicious : Judgement::kHealthy, suspicions_, probability_};
}

void Model::rejected() {
  suspicions_ = 0;
  probability_ = 1;
}

void Model::learn(uint32_t bin) {
  counts_[bin] += 1;
  samples_ += 1;
  batch_[in_batch_++] = static_cast<uint16_t>(bin);
  if (in_batch_ == kBatch) {
    in_batch_ = 0;
    end_batch();
  }
  if (samples_ >= kMemory)  // a program changes; a share learned an hour ago should not weigh for ever
    halve();
  if (samples_ >= 1.1 * chosen_at_ || samples_ < chosen_at_) choose_level();
}

/// Signs are taken against the mean of the batch itself (see docs/HANGS.md): given the values, all orders are equally
/// likely if the samples are independent, so that the exact distribution of the number of runs holds.
void Model::end_batch() {
  const bool before = random_;
  uint32_t sum = 0;
  for (uint16_t value : batch_) sum += value;
  uint32_t above = 0, runs = 0;
  bool last = false;
  for (uint32_t i = 0; i < kBatch; ++i) {
    const bool sign = batch_[i] * kBatch > sum;
    above += sign;
    runs += i == 0 || sign != last;
    last = sign;
  }
  if (above >= 2 && kBatch - above >= 2) {
    may_be_random(above, kBatch - above, runs) ? passed_batch() : failed_batch();
  } else if (!degenerate_is_random(static_cast<double>(sum) / kBatch, above)) {
    failed_batch();
  } else if (!random_) {  // nothing to be tested: S_out hardly ever changes in this program
    random_ = true;
    failures_ = 0;
  }
  if (random_ != before) chosen_at_ = 0;  // choose now
}

/// A batch (nearly) all on one side has no order to test. If the histogram says that such batches are usual, that is
/// how the program is; if not, the steps were too short to see it change.
bool Model::degenerate_is_random(double mean, uint32_t above) const {
  double like_these = 0;
  for (uint32_t i = 0; i < kBins; ++i) {
    const bool is_above = i > mean, is_equal = i == mean;
    const bool majority = above == 0 ? is_equal : above == 1 ? !is_above : is_above;
    like_these += majority ? counts_[i] : 0;
  }
  const double share = like_these / samples_;
  double chance = power(share, kBatch);
  if (above != 0) chance += kBatch * (1 - share) * power(share, kBatch - 1);
  return chance >= .025;
}

void Model::failed_batch() {
  passes_ = 0;
  if (random_ && ++failures_ < kFailuresLater) return;
  random_ = false;
  failures_ = 0;
  if (interval_ * 2 > first_interval_ * kMostDoubling) return;
  interval_ *= 2;
  halve();
}

void Model::passed_batch() {
  random_ = true;
  failures_ = 0;
  if (interval_ > first_interval_ && ++passes_ == kPassesToHalve) {
    passes_ = 0;
    interval_ /= 2;
  }
}

void Model::halve() {
  for (double& count : counts_) count /= 2;
  samples_ /= 2;
}

}  // namespace resil::hang::stats
