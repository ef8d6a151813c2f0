// SPDX-License-Identifier: Apache-2.0
//
// Adaptive timeouts, for hangs of a part of the job while the rest goes on: the statistics see progress, and where a
// rank of the part computes there is nothing to prove. A wait that lasts several times longer than any wait of its kind
// before is a line in hang.log, and never more.

#include "detectors/hang/reader/records.h"
#include "detectors/hang/reader/watch.h"
#include "detectors/hang/root/hang_log.h"
#include "detectors/hang/root/root_verdict.h"
#include "detectors/hang/root/wait_errors.h"
#include "shim/base/hash.h"

namespace resil::hang {

namespace {

/// Call and communicator: call sites have other addresses in other ranks.
uint64_t kind_of(const RankState& state) {
  const Part* part = first_part(state);
  return hash_combine(threads_of(state)[0].call, part != nullptr ? part->comm : 0) | 1;
}

void ended(Root& root, Waited& waited) {
  if (waited.kind != 0) root.timeouts.ended(waited.kind, waited.seconds);
  if (waited.timer != 0) root.timers.ended(waited.timer, waited.seconds);
  waited = {};
}

/// Once for all ranks that wait alike.
bool told(Root& root, uint64_t kind) {
  for (const uint64_t known : root.overdue)
    if (known == kind) return true;
  root.overdue[root.overdue_next++ % (sizeof(root.overdue) / sizeof(root.overdue[0]))] = kind;
  return false;
}

}  // namespace

void learn_timeouts(Root& root) {
  const uint64_t now = realtime_ns();
  for (uint32_t i = 0; i < root.states.count; ++i) {
    const RankState* state = root.states.by_rank[i];
    Waited& waited = root.waited[i];
    if (state == nullptr || state->activity != RankActivity::kBlocked || state->thread_count == 0) {
      ended(root, waited);
      continue;
    }
    const ThreadWait& wait = threads_of(*state)[0];
    if (wait.instance != waited.instance) {
      ended(root, waited);
      waited.instance = wait.instance;
      waited.kind = kind_of(*state);
      waited.timer = timer_of(root, *state);
    }
    waited.seconds =
        wait.entered_ns != 0 && now > wait.entered_ns ? static_cast<double>(now - wait.entered_ns) * 1e-9 : 0;
    if (!root.timeouts.suspected(waited.kind, waited.seconds) || told(root, waited.kind)) continue;
    Statement line = statement_of(Message::kLongWait, static_cast<int32_t>(i));
    line.call = wait.call;
    line.seconds[0] = waited.seconds;
    line.seconds[1] = root.timeouts.longest(waited.kind);
    log_hang("suspected", line, names_of(root.names));
  }
}

}  // namespace resil::hang
