// SPDX-License-Identifier: Apache-2.0

#include "detectors/hang/graph/tally.h"

#include "shim/base/hash.h"

namespace resil::hang::graph {

namespace {

bool equal(const Question& a, const Question& b) {
  return a.comm == b.comm && a.source == b.source && a.destination == b.destination && a.tag == b.tag;
}

uint64_t hash_of(const Question& question) {
  uint64_t hash = mix64(question.comm);
  hash = hash_combine(
      hash, uint64_t{static_cast<uint32_t>(question.source)} << 32 | static_cast<uint32_t>(question.destination));
  return hash_combine(hash, static_cast<uint32_t>(question.tag));
}

}  // namespace

Tally* Tallies::slot(const Question& question) const {
  for (size_t i = hash_of(question);; ++i) {
    Tally& tally = table_[i & mask_];
    if (!tally.used || equal(tally.question, question)) return &tally;
  }
}

bool Tallies::open(Arena& arena, const Question* questions, uint32_t question_count, const Answer* answers,
                   uint32_t answer_count) {
  const size_t entries = power_of_two_above(question_count);
  table_ = arena.allocate<Tally>(entries);
  uint32_t* first = arena.allocate<uint32_t>(question_count);  // question by index -> slot; the same one may come twice
  if (arena.failed()) return false;
  mask_ = entries - 1;
  for (uint32_t i = 0; i < question_count; ++i) {
    Tally* tally = slot(questions[i]);
    first[i] = tally->used ? ~0u : static_cast<uint32_t>(tally - table_);
    tally->used = true;
    tally->question = questions[i];
  }
  for (uint32_t i = 0; i < answer_count; ++i) {
    const Answer& answer = answers[i];
    if (answer.question >= question_count || first[answer.question] == ~0u) continue;
    Tally& tally = table_[first[answer.question]];
    if (answer.from_source != 0) {
      tally.sources += answer.covered != 0 ? answer.covered : 1;
      tally.sent += answer.sent;
    }
    if (answer.from_destination != 0) {
      ++tally.destinations;
      tally.posted += answer.posted;
      tally.taken += answer.taken;
      tally.pending += answer.pending;
      tally.wild_pending += answer.wild_pending;
    }
    tally.other_tags |= answer.other_tags != 0;
  }
  return true;
}

const Tally* Tallies::find(uint64_t comm, int32_t source, int32_t destination, int32_t tag) const {
  const Tally* tally = slot({comm, source, destination, tag, 0});
  return tally->used ? tally : nullptr;
}

}  // namespace resil::hang::graph
