// SPDX-License-Identifier: Apache-2.0
//
// ParaStack's model of S_out, the share of ranks outside MPI (Li, Chen, Gupta, SC'17): sampled at random steps, tested
// for randomness, learned as an empirical distribution; many consecutive low samples are significant when a geometric
// distribution says so. Fed with all ranks instead of ten. No MPI, clock, thread, allocation or system call in here.
// Where this deviates from the publication, docs/HANGS.md says why.
//
// One thread uses a Model; it is all zeros before start(). About 8 KiB.
#pragma once

#include <cstdint>

#include "detectors/hang/stats/random.h"

namespace resil::hang::stats {

enum class Judgement : uint8_t {
  kLearning,  // too few samples, or they are not in random order even at the longest interval
  kCannotJudge,  // enough samples, but the S_out of a hang is too usual in this program for a test to tell
  kHealthy,  // this sample is not suspicious
  kSuspicious,  // it is; `suspicions` in a row so far
  kCandidate,  // so many in a row that chance is at most alpha: have it verified
};

struct Observation {
  Judgement judgement;
  uint32_t suspicions;  // consecutive suspicious samples
  double probability;  // that a healthy program shows that many in a row; 1 when none
};

class Model {
 public:
  static constexpr uint32_t kBatch = 16;  // samples of one runs test
  static constexpr uint32_t kBins = 1024;  // S_out exact up to 1,023 ranks; above, exact up to 511 ranks out
  static constexpr double kMostDoubling = 16;  // I grows to this multiple of the interval given to start()
  static constexpr double kMemory = 4096;  // samples, after which the older ones lose half their weight
  static constexpr uint32_t kMostSuspicions = 150;  // a test that needs more in a row is none

  /// `total_ranks` >= 1; `interval` is ParaStack's I in seconds, > 0; `alpha` is the significance, in (0, 1).
  void start(uint32_t total_ranks, double interval, double alpha, uint64_t seed);

  /// Seconds until the next sample: rand(I) + I/2, so I on average.
  double next_step() { return interval_ * (steps_.uniform() + .5); }

  /// One sample: `out` ranks of `total` outside MPI and not polling. `total` may shrink while ranks end; 0 is no
  /// sample.
  Observation observe(uint32_t out, uint32_t total);

  /// What was suspected turned out healthy (something moved): counts anew, keeps what was learned.
  void rejected();

  double interval() const { return interval_; }
  double samples() const { return samples_; }  // weight of the histogram
  bool random() const { return random_; }  // the last verdict of the runs test; true also where none is possible
  bool usable() const { return needed_ != 0; }
  /// Suspicious are samples with at most so many ranks out, of those given to start(); meaningful when usable().
  uint32_t threshold() const;
  double p_hat() const { return p_hat_; }  // observed probability of a suspicious sample
  double q() const { return q_; }  // what the test reckons with
  uint32_t needed() const { return needed_; }  // consecutive suspicious samples that make a candidate; 0: not usable

 private:
  uint32_t bin(uint32_t out, uint32_t total) const;
  void learn(uint32_t bin);
  void end_batch();
  bool degenerate_is_random(double mean, uint32_t above) const;
  void failed_batch();
  void passed_batch();
  void halve();
  void choose_level();
  bool try_level(uint32_t level);
  bool use(uint32_t bin, double p_hat, double q);

  double counts_[kBins];
  double samples_, chosen_at_, first_interval_, interval_, alpha_, p_hat_, q_, probability_;
  uint16_t batch_[kBatch];
  uint32_t in_batch_, failures_, passes_;
  uint32_t total_, threshold_, needed_, suspicions_;
  bool random_;
  Random steps_;
};

}  // namespace resil::hang::stats
