// SPDX-License-Identifier: Apache-2.0
//
// A small generator of random numbers (xorshift64*, Vigna 2016) with a state of its own: the random steps of the
// sampling must neither touch the program's rand() nor ask the kernel.
#pragma once

#include <cstdint>

namespace resil::hang::stats {

class Random {
 public:
  /// Any seed will do; equal seeds give equal sequences.
  void start(uint64_t seed) {
    state_ = (seed ^ 0x9e3779b97f4a7c15) * 0xbf58476d1ce4e5b9;
    state_ ^= state_ >> 31;
    if (state_ == 0) state_ = 1;
  }

  uint64_t next() {
    if (state_ == 0)  // never started
      start(0);
    state_ ^= state_ >> 12;
    state_ ^= state_ << 25;
    state_ ^= state_ >> 27;
    return state_ * 0x2545f4914f6cdd1d;
  }

  /// Uniform in [0, 1).
  double uniform() { return static_cast<double>(next() >> 11) * 0x1p-53; }

 private:
  uint64_t state_;
};

}  // namespace resil::hang::stats
