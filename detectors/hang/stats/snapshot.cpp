// SPDX-License-Identifier: Apache-2.0
#include "detectors/hang/stats/snapshot.h"

namespace resil::hang::stats {

void FaultySearch::start(RankState* marks, uint32_t ranks) {
  marks_ = marks;
  ranks_ = ranks;
  snapshots_ = 0;
}

void FaultySearch::add(const RankState* snapshot) {
  for (uint32_t i = 0; i < ranks_; ++i) {
    if (snapshots_ == 0) marks_[i] = snapshot[i];
    else if (marks_[i].where == Where::kOut &&
             (snapshot[i].where != Where::kOut || snapshot[i].moves != marks_[i].moves))
      marks_[i].where = snapshot[i].where == Where::kEnded ? Where::kEnded : Where::kIn;  // no longer a candidate
  }
  ++snapshots_;
}

FaultySearch::Answer FaultySearch::answer(uint32_t* ranks, uint32_t capacity) const {
  if (snapshots_ < kSnapshots) return {Result::kUnfinished, 0};
  uint32_t out = 0, present = 0;
  for (uint32_t i = 0; i < ranks_; ++i) {
    present += marks_[i].where != Where::kEnded;
    out += marks_[i].where == Where::kOut;
  }
  if (out == 0) return {Result::kCommunicationPhase, 0};
  if (2 * static_cast<uint64_t>(out) > present) return {Result::kMostCompute, 0};
  uint32_t written = 0;
  for (uint32_t i = 0; i < ranks_ && written < capacity; ++i)
    if (marks_[i].where == Where::kOut) ranks[written++] = i;
  return {Result::kFaulty, out};
}

}  // namespace resil::hang::stats
