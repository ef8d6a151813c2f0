// SPDX-License-Identifier: Apache-2.0
//
// See quiet_notice.h.

#include "detectors/hang/root/quiet_notice.h"

#include "detectors/hang/reader/records.h"
#include "detectors/hang/root/hang_log.h"
#include "detectors/hang/root/root_verdict.h"
#include "shim/model/calls.h"
#include "shim/report/log.h"

namespace resil::hang {

namespace {

constexpr double kNoticeFactor = 3;  // times the longest quiet interval of this job
constexpr double kMostNotices = 5;  // lines of one job
constexpr uint32_t kMostKinds = 3;  // calls that are named

/// A call that takes as long as a disk, or another program, does.
bool waits_for_others(const RankState& state) {
  if ((state.irregular & kOtherWorld) != 0) return true;  // ranks that nobody sees
  for (uint32_t i = 0; i < state.thread_count; ++i) {
    const uint16_t call = threads_of(state)[i].call;
    if (call < kCallCount && class_of(static_cast<CallId>(call)) == CallClass::kFile) return true;
  }
  return false;
}

/// Ranks outside MPI, stopped ones and those that wait. False: somebody is out of sight, in a debugger, or waits for
/// what is no rank of this job.
bool sort_ranks(const Root& root, RankSet* computing, RankSet* stopped, uint32_t* waiting) {
  for (uint32_t i = 0; i < root.states.count; ++i) {
    const RankState* state = root.states.by_rank[i];
    if (state == nullptr || state->activity == RankActivity::kUnknown || state->kernel_state == 't' ||
        waits_for_others(*state))
      return false;
    if (state->activity == RankActivity::kComputing) computing->add(static_cast<int32_t>(i));
    if (state->activity == RankActivity::kStopped) stopped->add(static_cast<int32_t>(i));
    *waiting += state->activity == RankActivity::kBlocked || state->activity == RankActivity::kPolling;
  }
  return true;
}

void add_ranks_of(Verdict* verdict, Message id, const RankSet& ranks) {
  if (ranks.total == 0) return;
  Statement& made = verdict->add(id, ranks);
  made.rank = ranks.ranges[0].first;
  made.n[0] = ranks.total;
}

}  // namespace

double notice_limit(const Root& root) {
  const double usual = kNoticeFactor * root.learned.longest;
  return usual > root.notice.after ? usual : root.notice.after;
}

bool quiet_notice(const Root& root, double now, Verdict* verdict) {
  const stats::Quiet& record = root.model.record();
  const double quiet = record.current() + record.starved();
  if (root.notice.after == 0 || root.notice.said_at != 0 || root.learned.notices >= kMostNotices ||
      root.published_at >= root.moved_at || root.summary.moved != 0 || quiet < notice_limit(root) ||
      now - root.moved_at < quiet || !all_answer(root))
    return false;
  RankSet computing = {}, stopped = {};
  uint32_t waiting = 0;
  // More than half of the ranks compute: that is their work, and the others wait for it.
  if (!sort_ranks(root, &computing, &stopped, &waiting) || waiting == 0 || computing.total > waiting + stopped.total)
    return false;
  verdict->begin(HangClass::kUnknown, Confidence::kSuspected);
  verdict->notice = true;
  verdict->add(Message::kNothingMoves).seconds[0] = quiet;
  if (computing.total + stopped.total == 0) verdict->add(Message::kAllInside).n[0] = waiting;
  add_ranks_of(verdict, computing.total == 1 ? Message::kOneComputes : Message::kSomeCompute, computing);
  add_ranks_of(verdict, Message::kSomeStopped, stopped);
  WaitGroup kinds[kWaitGroups];
  const uint32_t count = find_wait_groups(root, verdict, kinds);
  for (uint32_t k = 0; k < count && k < kMostKinds; ++k) add_wait_group(verdict, Message::kTheseWait, kinds[k]);
  verdict->add(Message::kIfExpected);
  return true;
}

void print_notice(Root& root) {
  root.notice.said_at = monotonic_seconds();
  root.learned.notices += 1;
  log_hang("notice", root.explanation.message);
  log_line(root.explanation.message);
}

void withdraw_notice(Root& root, double now) {
  if (root.notice.said_at == 0) return;
  Statement line = statement_of(Message::kGoesOn);
  line.seconds[0] = now - root.notice.said_at;
  root.notice.said_at = 0;
  char text[256];
  explain(line, names_of(root.names), text, sizeof(text));
  log_hang("withdrawn", text);
  log_line(text);
}

}  // namespace resil::hang
