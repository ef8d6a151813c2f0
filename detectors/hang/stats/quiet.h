// SPDX-License-Identifier: Apache-2.0
//
// Quiet intervals: how long no rank made progress, now and at most so far. ParaStack's check for transient slowdowns
// asks whether anything moved within one more step; here it asks whether so long a quiet interval was ever healthy in
// this program. One thread; all zeros before use.
#pragma once

#include <cstdint>

namespace resil::hang::stats {

class Quiet {
 public:
  static constexpr double kFactor = 3;  // times the longest
  static constexpr uint32_t kTail = 128;  // the longest intervals, kept for the shape of their tail
  static constexpr uint32_t kFewest = 6;  // intervals, below which their tail has no shape
  static constexpr uint32_t kManyForPareto = 32;
  // Seconds of the longest: from kMaterial on, three times that is no limit if the tail is heavy. From kShort on it is
  // none either, but with few intervals heavy tails and usual hiccups look alike, and the latter are far more usual.
  static constexpr double kShort = 1, kMaterial = 2;
  static constexpr double kFactorOfFew = 16;  // times the longest, with fewer than kFewest
  static constexpr double kMostOfFew = 40;  // times the longest, with fewer than kManyForPareto
  static constexpr double kMostOfShort = 14;  // seconds, with fewer than kManyForPareto, below kMaterial
  static constexpr double kApart = 4;  // intervals so many times as long as the next ones are another kind,
  static constexpr uint32_t kFewestApart = 4;  // if there are so many
  static constexpr double kHeavy = .05;  // Pareto index, estimated, below which the tail is light from kMaterial on,
  static constexpr double kHeavyForCertain = .2;  // and before;
  static constexpr double kLightForCertain = -.5;  // not even then: between them is kFactorOfFew, from kMaterial on,
  static constexpr double kWide = .25;  // if the mean of their logarithms over the shortest's is more than this
  static constexpr double kDoubt = 2;  // standard errors, by which what is estimated of the tail may be too small
  static constexpr double kMost = 3600;  // seconds; no tail makes the limit longer
  static constexpr double kRare = 1e-9;  // probability of an interval to be extrapolated to
  static constexpr double kRareQuantile = 6;  // normal quantile of it

  /// One look: the clock and, of the seconds since the last look, those excused, and of these, those for want of a CPU;
  /// the progress counter; whether a rank is out. An interval through which all ranks were in says nothing about
  /// computations: starved or slow communication.
  void look(double now, double excused, double starved, uint64_t moves, bool out);

  double current() const { return current_; }  // seconds without progress, less those excused
  double starved() const { return starved_; }  // seconds without progress for want of a CPU
  double longest() const { return longest_; }  // of intervals that ended
  double longest_out() const { return tail_[0]; }  // of those in which a rank was out
  double longest_crowded() const { return longest_crowded_; }  // of the same with those for want of a CPU
  double watched() const {
    return watched_;
  }  // seconds of looks so far, less those excused for another reason than want of a CPU
  uint64_t intervals() const { return intervals_; }  // of those, with at least one look without progress

  /// Seconds of quiet that a healthy computation of this program will not reach, by what it has shown so far:
  /// 3 x longest_out, and more where the longest intervals show a heavy tail.
  double limit() const;

 private:
  void ended(double seconds, double starved);
  double computed_limit() const;
  double tail_limit() const;
  double log_normal_limit(uint32_t count, double all) const;
  double pareto_limit(uint32_t count, double all, double least) const;

  double last_, current_, starved_, watched_, longest_, longest_crowded_;
  uint64_t moves_, intervals_;
  double tail_[kTail];  // descending
  mutable double limit_;  // 0: to be computed
  uint32_t in_tail_;
  bool started_, out_;
};

}  // namespace resil::hang::stats
