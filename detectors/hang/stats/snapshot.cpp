// SPDX-License-Identifier: Apache-2.0
#include "detectors/hang/stats/snapshot.h"

namespace resil::hang::stats {

namespace {

/// `polls` alone never counts: ParaStack too takes a loop of MPI_Test for standing still. Between two polls of such a
/// loop the rank may be seen outside, so that out and polling are one as long as polls go on.
bool rank_moved(const RankState& before, const RankState& now) {
  if (before.where == Where::kUnknown || now.where == Where::kUnknown)
    return false;
  if (before.moves != now.moves)
    return true;
  if (before.where == now.where)
    return false;
  const bool loop = before.where != Where::kIn && now.where != Where::kIn && now.where != Where::kEnded;
  // One that computed all the time until its first poll has got somewhere.
  return !(loop && (before.where == Where::kPolling || before.polls == now.polls));
}

}  // namespace

Comparison compare(const RankState* before, const RankState* now, uint32_t ranks) {
  Comparison result{};
  for (uint32_t i = 0; i < ranks; ++i) {
    result.moved += rank_moved(before[i], now[i]);
    switch (now[i].where) {
      case Where::kOut:
        ++result.out;
        break;
      case Where::kIn:
        ++result.in;
        break;
      case Where::kPolling:
        ++result.polling;
        break;
      case Where::kEnded:
        ++result.ended;
        break;
      default:
        ++result.unknown;
    }
  }
  return result;
}

void FaultySearch::start(RankState* marks, uint32_t ranks) {
  marks_ = marks;
  ranks_ = ranks;
  snapshots_ = 0;
}

void FaultySearch::add(const RankState* snapshot) {
  for (uint32_t i = 0; i < ranks_; ++i) {
    if (snapshots_ == 0)
      marks_[i] = snapshot[i];
    else if (marks_[i].where == Where::kOut && (snapshot[i].where != Where::kOut || snapshot[i].moves != marks_[i].moves))
      marks_[i].where = snapshot[i].where == Where::kEnded ? Where::kEnded : Where::kIn;  // no longer a candidate
  }
  ++snapshots_;
}

FaultySearch::Answer FaultySearch::answer(uint32_t* ranks, uint32_t capacity) const {
  if (snapshots_ < kSnapshots)
    return {Result::kUnfinished, 0};
  uint32_t out = 0, present = 0;
  for (uint32_t i = 0; i < ranks_; ++i) {
    present += marks_[i].where != Where::kEnded;
    out += marks_[i].where == Where::kOut;
  }
  if (out == 0)
    return {Result::kCommunicationPhase, 0};
  if (2 * static_cast<uint64_t>(out) > present)
    return {Result::kMostCompute, 0};
  uint32_t written = 0;
  for (uint32_t i = 0; i < ranks_ && written < capacity; ++i)
    if (marks_[i].where == Where::kOut)
      ranks[written++] = i;
  return {Result::kFaulty, out};
}

}  // namespace resil::hang::stats
