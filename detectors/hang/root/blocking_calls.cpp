// SPDX-License-Identifier: Apache-2.0
//
// MPI_Win_start may return before the window is exposed, and MPI_Win_lock before the lock is had (MPI 4.0, 12.5.2 and
// 12.5.3). If the call burns 0.5 s of CPU time, this MPI blocks in it: the wait counts like one that MPI requires. Time
// alone does not tell: on a crowded machine the thread may not have run.

#include "detectors/hang/reader/records.h"
#include "detectors/hang/root/root_verdict.h"

namespace resil::hang {

namespace {

constexpr uint32_t kEnoughMs = 500;

/// A thread all of whose parts are permitted waits; null: there is none.
ThreadWait* permitted(RankState& state, Part* parts) {
  auto* threads = reinterpret_cast<ThreadWait*>(&state + 1);
  for (uint32_t i = 0; i < state.thread_count; ++i) {
    uint32_t count = 0;
    for (uint32_t k = 0; k < threads[i].part_count; ++k)
      count += (parts[threads[i].first_part + k].flags & kPermitted) != 0;
    if (count != 0 && count == threads[i].part_count && threads[i].cpu_ms != 0) return &threads[i];
  }
  return nullptr;
}

}  // namespace

void note_blocking_calls(Root& root) {
  for (uint32_t rank = 0; rank < root.states.count; ++rank) {
    if (root.states.by_rank[rank] == nullptr || root.states.by_rank[rank]->activity != RankActivity::kBlocked) continue;
    auto& state = const_cast<RankState&>(*root.states.by_rank[rank]);  // a record in root.states.bytes
    auto* parts = const_cast<Part*>(parts_of(state));
    const ThreadWait* thread = permitted(state, parts);
    if (thread == nullptr) continue;
    CallCpu& seen = root.call_cpu[rank];
    if (seen.instance != thread->instance) seen = {thread->instance, thread->cpu_ms};
    if (thread->cpu_ms - seen.cpu_ms < kEnoughMs) continue;
    for (uint32_t k = 0; k < thread->part_count; ++k)
      parts[thread->first_part + k].flags &= static_cast<uint8_t>(~kMayBuffer);
  }
}

}  // namespace resil::hang
