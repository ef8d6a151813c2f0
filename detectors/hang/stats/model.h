// SPDX-License-Identifier: Apache-2.0
//
// ParaStack's model of S_out, the share of ranks outside MPI (Li, Chen, Gupta, SC'17): sampled at random steps, tested
// for randomness, learned as an empirical distribution; many consecutive low samples are significant when a geometric
// distribution says so. Fed with all ranks instead of ten. No MPI, clock, thread, allocation or system call in here.
//
// One thread uses a Model; it is all zeros before start(). About 8 KiB.
#pragma once

#include <cstdint>

#include "detectors/hang/stats/random.h"

namespace resil::hang::stats {

enum class Judgement : uint8_t {
  kLearning,     // too few samples, or their randomness is not established yet
  kCannotJudge,  // enough samples, but no S_out of a hang would be rare: see Model::threshold()
  kHealthy,      // this sample is not suspicious
  kSuspicious,   // it is; `suspicions` in a row so far
  kCandidate,    // so many in a row that chance is at most alpha: have it verified
};

struct Observation {
  Judgement judgement;
  uint32_t suspicions;  // consecutive suspicious samples
  double probability;   // that a healthy program shows that many in a row; 1 when none
};

class Model {
 public:
  static constexpr uint32_t kBatch = 16;      // samples of one runs test
  static constexpr uint32_t kBins = 1024;     // S_out exact up to 1,023 ranks; above, exact up to 511 ranks out
  static constexpr double kMostDoubling = 16;  // I grows to this multiple of the interval given to start()
  static constexpr double kMemory = 4096;     // samples after which older ones lose half their weight

  /// `total_ranks` >= 1; `interval` is ParaStack's I in seconds, > 0; `alpha` is the significance, in (0, 1).
  void start(uint32_t total_ranks, double interval, double alpha, uint64_t seed);

  /// Seconds until the next sample: rand(I) + I/2, so I on average.
  double next_step();

  /// One sample: `out` ranks of `total` outside MPI and not polling, `now` in seconds of any clock. `total` may shrink
  /// while ranks end; a clock that goes back is harmless; a `total` of 0 is no sample.
  Observation observe(uint32_t out, uint32_t total, double now);

  /// What was suspected turned out healthy (something moved): starts counting anew, keeps what was learned.
  void rejected();

  double interval() const { return interval_; }
  double samples() const { return samples_; }  // weight of the histogram
  bool random() const { return random_; }      // a batch has passed the runs test, or none could fail it
  /// Suspicious is S_out of at most so many ranks out; meaningful when usable().
  uint32_t threshold() const;
  bool usable() const { return level_ != 0; }
  double p_hat() const { return p_hat_; }  // observed probability of a suspicious sample
  double q() const { return q_; }          // what the test reckons with, p_hat with its tolerance
  /// Consecutive suspicious samples that make a candidate; 0 when not usable.
  uint32_t needed() const { return needed_; }

 private:
  uint32_t bin(uint32_t out, uint32_t total) const;
  void end_batch();
  void longer_interval();
  void choose_level();

  double counts_[kBins];
  double samples_, last_chosen_;
  uint16_t batch_[kBatch];
  uint32_t in_batch_, failures_, passes_;
  double first_interval_, interval_, alpha_, p_hat_, q_, probability_, first_seen_;
  uint32_t total_, bins_, threshold_bin_, level_, needed_, suspicions_;
  bool started_, random_, seen_;
  Random random_steps_;
};

}  // namespace resil::hang::stats
