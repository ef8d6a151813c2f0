// SPDX-License-Identifier: Apache-2.0
//
// The answers, added up by question: how many messages of an envelope were sent, and how many their destination has
// asked for and been told of.
#pragma once

#include "detectors/hang/graph/arena.h"
#include "detectors/hang/reader/rank_state.h"

namespace resil::hang::graph {

struct Tally {
  Question question;
  bool used;
  bool other_tags;  ///< of one half at least: only sums over all tags are exact
  uint32_t sources;  ///< ranks whose `sent` is in it
  uint32_t destinations;  ///< halves of the destination in it
  uint64_t sent, posted, taken, pending, wild_pending;

  uint64_t told() const { return posted - pending + taken; }
  /// Receives of the destination that have taken or could still take such a message. An upper bound.
  uint64_t capacity() const { return posted + taken + wild_pending; }
  bool has_destination() const { return destinations == 1 && pending <= posted; }
};

class Tallies {
 public:
  bool open(Arena& arena, const Question* questions, uint32_t question_count, const Answer* answers,
            uint32_t answer_count);
  /// Null: not asked.
  const Tally* find(uint64_t comm, int32_t source, int32_t destination, int32_t tag) const;

 private:
  Tally* slot(const Question& question) const;
  Tally* table_ = nullptr;
  size_t mask_ = 0;
};

}  // namespace resil::hang::graph
