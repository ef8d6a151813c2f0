// SPDX-License-Identifier: Apache-2.0
#include "detectors/hang/stats/watch.h"

#include <cstring>

namespace resil::hang::stats {

namespace {

double longer(double a, double b) { return a > b ? a : b; }

}  // namespace

void Watch::start(uint32_t total_ranks, double interval, double alpha, uint64_t seed) {
  memset(static_cast<void*>(this), 0, sizeof(*this));
  model_.start(total_ranks, interval, alpha, seed);
}

double Watch::next_step() { return step_ = model_.next_step(); }

Phase Watch::phase(const Look& look) const {
  if (look.out == 0) return Phase::kCommunication;
  if (2 * static_cast<uint64_t>(look.out) > look.total) return Phase::kMostCompute;
  return learned() && look.familiar >= kFamiliar ? Phase::kComputation : Phase::kUnfamiliar;
}

double Watch::suspect_at(Phase phase) const {
  if (phase == Phase::kComputation) {
    const double many = kSuspectFactor * quiet_.longest_out(), soon = kSuspectShare * longer(kVerify, quiet_.limit());
    const double usual =
        candidate_ ? longer(kSuspectCandidate, quiet_.longest_out()) : longer(kSuspect, many < soon ? many : soon);
    if (quiet_.current() + quiet_.starved() < longer(kSuspectCrowded, Quiet::kFactor * quiet_.longest_crowded()))
      return usual;
    const double own = longer(kSuspectOwn, kCrowdedFactor * quiet_.longest_out());
    return own < usual ? own : usual;
  }
  return phase == Phase::kMostCompute ? kNever : longer(kSuspectUnfamiliar, kSuspectFactor * quiet_.longest());
}

double Watch::verify_computation() const {
  const double usual = longer(kVerify, quiet_.limit()), crowded = quiet_.current() + quiet_.starved();
  if (usual > longer(kVerify, Quiet::kMostOfShort) ||
      crowded < longer(kVerifyCrowded, Quiet::kFactor * quiet_.longest_crowded()))
    return usual;
  const double own = longer(kVerifyOwn, kCrowdedFactor * quiet_.longest_out());
  return own < usual ? own : usual;
}

double Watch::verify_at(Phase phase, uint64_t familiar) const {
  const double longest = kLongFactor * quiet_.longest();
  switch (phase) {
    case Phase::kComputation: return verify_computation();
    case Phase::kCommunication: return longer(kVerifyCommunication, longest);
    case Phase::kUnfamiliar: {
      const double most = longer(kVerifyUnfamiliar, longest);
      if (!learned() || familiar == 0) return most;
      const double rareness = static_cast<double>(kFamiliar) / static_cast<double>(familiar);
      const double limit = longer(kVerify, quiet_.limit()) * rareness * rareness;
      return limit < most ? limit : most;
    }
    default: return kNever;
  }
}

Verdict Watch::look(const Look& look) {
  double excused = look.excused;
  const double since = looked_ && look.now > last_ ? look.now - last_ : 0;
  // A look that comes much later than asked for: this thread did not get to run either, nor maybe anything else.
  if (step_ > 0 && since - excused > 2 * step_ + 1) excused = since - step_;
  last_ = look.now;
  looked_ = true;
  quiet_.look(look.now, excused, look.starved < excused ? look.starved : excused, look.moves, look.out != 0);
  const Observation observation = model_.observe(look.out, look.total);
  const Finding usual = learned() ? Finding::kHealthy : Finding::kLearning;
  if (quiet_.current() == 0) {
    if (candidate_) model_.rejected();
    candidate_ = false;
    return {usual, phase(look), observation, 0, 0, kSuspect, kVerify};
  }
  candidate_ = candidate_ || observation.judgement == Judgement::kCandidate;
  const Phase now = phase(look);
  Verdict verdict{usual, now, observation, quiet_.current(), quiet_.starved(), kSuspect, kVerify};
  if (verdict.quiet < kSuspectOwn ||
      verdict.quiet + verdict.starved <
          kSuspectCandidate)  // nothing can be found yet, and the limit takes a while to compute
    return verdict;
  verdict.suspected_at = suspect_at(now);
  verdict.verified_at = verify_at(now, look.familiar);
  if (verdict.quiet >= verdict.verified_at) verdict.finding = Finding::kVerified;
  else if (verdict.quiet >= verdict.suspected_at) verdict.finding = Finding::kSuspected;
  return verdict;
}

}  // namespace resil::hang::stats
