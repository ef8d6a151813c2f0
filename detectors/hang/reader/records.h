// SPDX-License-Identifier: Apache-2.0
//
// What travels between nodes as records (rounds.h, rank_state.h), read with care. Any thread.
#pragma once

#include "detectors/hang/monitor/rounds.h"

namespace resil::hang {

/// Adds the sample of another node.
void summary_add(Summary* into, const Summary& from);

/// A record as it came over the wire: its counts agree with its length, and it lies wholly in `room`.
bool state_is_whole(const RankState& state, uint32_t room);

inline const ThreadWait* threads_of(const RankState& state) { return reinterpret_cast<const ThreadWait*>(&state + 1); }
inline const Part* parts_of(const RankState& state) {
  return reinterpret_cast<const Part*>(threads_of(state) + state.thread_count);
}

/// What its first thread waits for first; null: nothing.
inline const Part* first_part(const RankState& state) {
  if (state.thread_count == 0 || threads_of(state)[0].part_count == 0) return nullptr;
  return parts_of(state) + threads_of(state)[0].first_part;
}

}  // namespace resil::hang
