// SPDX-License-Identifier: Apache-2.0
//
// Learned time-outs, for what the statistics of S_out cannot judge: one record of the longest healthy time for each
// kind of waiting. A kind is any key of the caller's, e.g. a hash of call site and communicator. Longer than a multiple
// of what was ever seen is suspected, never more. Fixed table of 256 kinds, all zeros before use; one thread.
#pragma once

#include <cstdint>

namespace resil::hang::stats {

class AdaptiveTimeout {
 public:
  static constexpr uint32_t kKinds = 256;
  static constexpr double kFloor = 5;  // seconds; nothing shorter is suspected
  static constexpr double kFactor = 5;  // times the longest seen
  static constexpr uint32_t kFewest = 16;  // ends seen, below which a kind is unfamiliar
  static constexpr double kUnfamiliar = 60;  // seconds; nothing of an unfamiliar kind is suspected before

  /// A wait of this kind ended healthily after `seconds`. When the table is full, kinds share the record of all.
  void ended(uint64_t kind, double seconds);

  /// Seconds after which a wait of this kind is suspected.
  double limit(uint64_t kind) const;
  bool suspected(uint64_t kind, double seconds) const { return seconds > limit(kind); }

  double longest(uint64_t kind) const;  // seconds; 0 when never seen
  uint64_t seen(uint64_t kind) const;  // how often it ended

 private:
  struct Entry {
    uint64_t kind, seen;
    double longest;
  };
  Entry* place(uint64_t kind);
  const Entry& find(uint64_t kind) const;

  Entry entries_[kKinds];
  Entry rest_;  // of kinds that found no place
};

}  // namespace resil::hang::stats
