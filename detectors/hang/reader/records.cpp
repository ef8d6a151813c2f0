// SPDX-License-Identifier: Apache-2.0
//
// Records that travel between nodes: whole or not used, added up. Pure functions.

#include "detectors/hang/reader/records.h"

namespace resil::hang {

bool state_is_whole(const RankState& state, uint32_t room) {
  const uint64_t bytes = sizeof(RankState) + uint64_t{state.thread_count} * sizeof(ThreadWait) +
                         uint64_t{state.part_count} * sizeof(Part) + uint64_t{state.comm_count} * sizeof(Membership);
  if (state.bytes > room || state.bytes % 8 != 0 || state.bytes < bytes) return false;
  for (uint32_t i = 0; i < state.thread_count; ++i) {
    const ThreadWait& wait = threads_of(state)[i];
    if (wait.first_part > state.part_count || wait.part_count > state.part_count - wait.first_part) return false;
  }
  return true;
}

void summary_add(Summary* into, const Summary& from) {
  into->ranks += from.ranks;
  into->out += from.out;
  into->polling += from.polling;
  into->finished += from.finished;
  into->gone += from.gone;
  into->stopped += from.stopped;
  into->moved += from.moved;
  into->waiting += from.waiting;
  into->finalizing += from.finalizing;
  if (from.oldest_open_ns > into->oldest_open_ns) into->oldest_open_ns = from.oldest_open_ns;
  if (from.familiar < into->familiar) into->familiar = from.familiar;
  if (from.quiet < into->quiet) into->quiet = from.quiet;
  if (from.excused > into->excused) {
    into->excused = from.excused;
    into->starved = from.starved;
  }
  if (into->ending.name == 0) into->ending = from.ending;
  if (from.why > into->why) into->why = from.why;
  uint32_t kept = into->event_count < kMaxEvents ? into->event_count : kMaxEvents;
  for (uint32_t i = 0; i < from.event_count && i < kMaxEvents && kept < kMaxEvents; ++i)
    into->events[kept++] = from.events[i];
  into->event_count += from.event_count;
}

}  // namespace resil::hang
