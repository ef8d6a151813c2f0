// SPDX-License-Identifier: Apache-2.0
//
// How long a rank waits for the others' lists at the end of an epoch. A rank whose private messages do not come (lost
// by MPI, or queued there for ever) would cost the full wait in each epoch of each window: a program of 200 short
// windows took 1,000 s.
#pragma once

#include <atomic>
#include <cstdint>

namespace resil::rma {

/// Each wait in vain halves the next one, two waits that were answered double it: all waits in vain together stay under
/// 4 times the first. Any thread; changes that meet may be lost, which costs at most one step.
class Trust {
 public:
  /// Seconds to wait now, of `whole` at most.
  double wait(double whole) const {
    const uint32_t halvings = lost_.load(std::memory_order_relaxed) / 2;
    return halvings < 32 ? whole / static_cast<double>(uint64_t{1} << halvings) : 0;
  }
  void answered() {
    const uint32_t lost = lost_.load(std::memory_order_relaxed);
    if (lost != 0) [[unlikely]]
      lost_.store(lost - 1, std::memory_order_relaxed);
  }
  void in_vain() { lost_.store(lost_.load(std::memory_order_relaxed) + 2, std::memory_order_relaxed); }

 private:
  std::atomic<uint32_t> lost_{0};
};

}  // namespace resil::rma
