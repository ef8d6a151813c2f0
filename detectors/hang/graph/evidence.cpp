// SPDX-License-Identifier: Apache-2.0
//
// The lines below the sentences: who waits where, since when, and the counters that prove it.

#include <string.h>

#include "detectors/hang/graph/story.h"

namespace resil::hang::graph {

/// Marks all deadlocked ranks of this side that wait in the same collective as `wait`, so that they share a line.
void Story::mark_alike(const Wait& wait, uint8_t* said) {
  memset(scratch_, 0, g_.ranks());
  scratch_[wait.rank] = said[wait.rank] = 1;
  const Part& part = part_of(g_, wait);
  if (part.kind != PartKind::kCollective) return;
  for (uint32_t rank = wait.rank + 1; rank < g_.ranks(); ++rank) {
    if (!g_.deadlocked(rank) || said[rank] != 0 || core_.member[rank] != core_.member[wait.rank]) continue;
    const Wait other = reason(rank);
    if (!other.valid()) continue;
    const Part& its = part_of(g_, other);
    if (its.kind == part.kind && its.comm == part.comm && its.sequence == part.sequence && its.call == part.call)
      scratch_[rank] = said[rank] = 1;
  }
}

void Story::evidence_of(const Wait& wait) {
  dump::Text& text = evidence_.text;
  const Part& part = part_of(g_, wait);
  evidence_.ranks(scratch_);
  text.str(": ");
  evidence_.wait(wait);
  evidence_.site(wait.rank, thread_of(g_, wait));
  text.str(", for ");
  evidence_.age(thread_of(g_, wait));
  const int32_t me = static_cast<int32_t>(wait.rank);
  const bool send = part.kind == PartKind::kSend;
  const Tally* tally = nullptr;
  if (part.kind <= PartKind::kSend)
    tally = g_.tallies().find(part.comm, send ? me : part.peer, send ? part.peer : me, part.tag);
  if (part.kind == PartKind::kToken) tally = g_.tallies().find(token_comm(part.comm), part.peer, me, part.tag);
  if (tally != nullptr && part.kind == PartKind::kToken)
    text.str("; call ").u64(part.needed).str(" of its kind, made ").u64(tally->sent);
  else if (tally != nullptr && send)
    text.str("; message ").u64(part.ordinal).str(", receives posted ").u64(tally->capacity());
  else if (tally != nullptr && part.needed != 0)
    text.str("; message ").u64(part.needed).str(", sent ").u64(tally->sent);
  else if (tally != nullptr) text.str("; sent ").u64(tally->sent).str(", received ").u64(tally->told());
  text.chr('\n');
}

void Story::evidence() {
  constexpr uint32_t kLines = 20;
  dump::Text& text = evidence_.text;
  text.str(g_.lenient() ? "reason: inferred, these calls were open before and after the counters were read\n"
                        : "reason: proved, these calls were open before and after the counters were read, and only "
                          "their own ranks could end them\n");
  text.str("core: ");
  evidence_.ranks(core_.member);
  text.chr('\n');
  if (v_.victim_count != 0) {
    text.str("waiting: ");
    evidence_.ranks(victim_);
    text.chr('\n');
  }
  if (near_.kind != NearMiss::kNothing) {
    text.str("near miss: ");
    tell_near_miss(evidence_);
    text.chr('\n');
  }
  uint8_t* said = g_.arena().take<uint8_t>(g_.ranks());
  uint32_t lines = 0;
  for (int of_core = 1; said != nullptr && of_core >= 0; --of_core)
    for (uint32_t rank = 0; rank < g_.ranks() && lines < kLines; ++rank) {
      if (!g_.deadlocked(rank) || said[rank] != 0 || (core_.member[rank] != 0) != (of_core == 1)) continue;
      const Wait wait = reason(rank);
      if (!wait.valid()) continue;
      mark_alike(wait, said);
      evidence_of(wait);
      ++lines;
    }
  evidence_.done();
}

}  // namespace resil::hang::graph
