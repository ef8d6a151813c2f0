// SPDX-License-Identifier: Apache-2.0
//
// Verdicts that are not the graph's: a rank that does not come back from its own code, one that stays stopped, and no
// progress for no reason that can be seen. Verified at most. Helper thread of the root's node.
#pragma once

#include "detectors/hang/root.h"

namespace resil::hang {

/// By the statistics and five snapshots in which the same ranks were outside MPI without a move.
bool computation_verdict(Root& root, double now, const Names& names, Verdict* verdict);
/// By a rank that is stopped while no other rank has moved for longer than any stop before that ended.
bool stopped_verdict(Root& root, double now, const Names& names, Verdict* verdict);

/// A record as it came over the wire: its counts agree with its length, and it lies wholly in `room`.
bool state_is_whole(const RankState& state, uint32_t room);

inline const ThreadWait* threads_of(const RankState& state) { return reinterpret_cast<const ThreadWait*>(&state + 1); }

/// What its first thread waits for first; null: nothing.
inline const Part* first_part(const RankState& state) {
  if (state.thread_count == 0 || threads_of(state)[0].part_count == 0)
    return nullptr;
  return reinterpret_cast<const Part*>(threads_of(state) + state.thread_count) + threads_of(state)[0].first_part;
}

}  // namespace resil::hang
