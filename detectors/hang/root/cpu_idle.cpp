// SPDX-License-Identifier: Apache-2.0
//
// A call that has got all it waits for and does not return: which rank is wrong cannot be seen from messages. But where
// MPI waits by polling, all who wait use processor time, and one that uses none is stuck somewhere else: in a driver, a
// lock, a system call. That is no proof, and said with the finding.

#include <string.h>

#include "detectors/hang/reader/records.h"
#include "detectors/hang/root/root_verdict.h"

namespace resil::hang {

namespace {

constexpr double kSettled = 3;  // seconds in the same calls, after which processor time is noted
constexpr double kShortest = 8;  // seconds of it that say something
constexpr double kIdle = .005, kBusy = .01;  // shares of a CPU; resil's helper uses a tenth of the first

bool waits(const RankState* state) {
  return state != nullptr && (state->activity == RankActivity::kBlocked || state->activity == RankActivity::kPolling);
}

}  // namespace

void note_cpu(Root& root, double now) {
  if (root.cpu_at > root.blocked_since || now - root.blocked_since < kSettled) return;
  root.cpu_at = now;
  for (uint32_t i = 0; i < root.states.count; ++i)
    root.cpu_then[i] = root.states.by_rank[i] != nullptr ? root.states.by_rank[i]->cpu_ns : 0;
}

uint32_t find_cpu_idle(const Root& root, double now, int32_t* ranks) {
  const double elapsed = now - root.cpu_at;
  if (root.cpu_at <= root.blocked_since || elapsed < kShortest) return 0;
  uint32_t waiting = 0, idle = 0;
  for (uint32_t i = 0; i < root.states.count; ++i) {
    const RankState* state = root.states.by_rank[i];
    if (!waits(state)) continue;
    if (root.cpu_then[i] == 0 || state->cpu_ns < root.cpu_then[i]) return 0;
    const double share = static_cast<double>(state->cpu_ns - root.cpu_then[i]) * 1e-9 / elapsed;
    // On crowded cores one that polls and yields gets hardly any, but is always ready to run.
    const bool ready = state->kernel_state == 'R';
    if (!ready && share >= kIdle && share < kBusy) return 0;  // neither, so it says nothing of the others either
    ++waiting;
    if (ready || share >= kIdle) continue;
    if (idle < kMaxCulprits) ranks[idle] = static_cast<int32_t>(i);
    ++idle;
  }
  return 2 * idle <= waiting && idle <= kMaxCulprits ? idle : 0;
}

void name_cpu_idle(const Root& root, double now, Verdict* verdict) {
  int32_t ranks[kMaxCulprits];
  const uint32_t idle =
      verdict->type == HangClass::kInsideMpi && verdict->culprit_count == 0 ? find_cpu_idle(root, now, ranks) : 0;
  if (idle == 0) return;
  memcpy(verdict->culprits, ranks, idle * sizeof(ranks[0]));
  verdict->culprit_count = idle;
  verdict->add(Message::kNoCpuInIt, verdict->culprit_set());
  verdict->add(Message::kDoLookThere, verdict->culprit_set());
}

}  // namespace resil::hang
