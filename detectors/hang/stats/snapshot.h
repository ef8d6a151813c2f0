// SPDX-License-Identifier: Apache-2.0
//
// What is known of every rank at one instant, and what several of these say: which ranks of
// a computation hang stayed outside MPI all the time. Exact counters stand where ParaStack compares function names.
// Plain arrays of the caller's, one element a rank; no allocation. Any thread.
#pragma once

#include <cstdint>

namespace resil::hang::stats {

enum class Where : uint8_t {
  kOut,  // in the program's own code; not in a loop of polls
  kIn,  // inside a call
  kPolling,  // in a loop of MPI_Test, MPI_Iprobe, ... that completes nothing: counts as in, and as no progress
  kEnded,  // finalized or gone
  kUnknown,  // did not answer
};

struct RankState {
  uint64_t moves;  // calls entered + calls left; without polls that completed nothing and local queries
  uint64_t polls;  // polls that completed nothing; never evidence of progress
  Where where;
};

/// ParaStack's search for the faulty ranks: those outside MPI in each of at least kSnapshots snapshots, without a move.
/// `marks` has one element a rank, of the caller's; snapshots should be a tenth of a second or more apart.
class FaultySearch {
 public:
  static constexpr uint32_t kSnapshots = 5;

  void start(RankState* marks, uint32_t ranks);
  void add(const RankState* snapshot);

  enum class Result : uint8_t {
    kUnfinished,  // fewer than kSnapshots so far
    kFaulty,  // `count` ranks stayed out: accused
    kCommunicationPhase,  // none did: all stand inside MPI, the fault is in the communication
    kMostCompute,  // more than half of the ranks did: they compute, nobody is accused
  };
  struct Answer {
    Result result;
    uint32_t count;
  };
  /// Writes the first `capacity` accused ranks in rising order; `count` says how many there are.
  Answer answer(uint32_t* ranks, uint32_t capacity) const;

 private:
  RankState* marks_;
  uint32_t ranks_, snapshots_;
};

}  // namespace resil::hang::stats
