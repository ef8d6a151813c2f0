// SPDX-License-Identifier: Apache-2.0
//
// Facts, which are no verdicts: a rank that is stopped or gone, a node that does not answer. Said once in hang.log when
// they begin and once when they end.

#include "detectors/hang/root/hang_log.h"
#include "detectors/hang/root/root_verdict.h"
#include "shim/base/clock.h"

namespace resil::hang {

namespace {

constexpr double kSilentSeconds = 1.2, kSilenceSuspected = 15;
// Seconds. Under strace or a debugger a rank is stopped for a moment at each system call.
constexpr double kStopTold = 1;
constexpr double kMissed = 1;  // from the last word of a node to the first missed answer, as of a leaf

void notice(Root& root, Message id, int32_t rank, double seconds = 0) {
  Statement line = statement_of(id, rank);
  line.seconds[0] = seconds;
  log_hang("notice", line, names_of(root.names));
}

void notice_node(Root& root, Message id, uint32_t node, double seconds = 0) {
  Statement line = statement_of(id);
  line.others.add(static_cast<int32_t>(node));
  line.seconds[0] = seconds;
  log_hang("notice", line, names_of(root.names));
}

}  // namespace

void note_facts(Root& root, double now) {
  const uint32_t count = root.states.count;
  for (uint32_t i = 0; i < count; ++i) root.facts[i].now = false;
  const uint32_t events = root.summary.event_count < kMaxEvents ? root.summary.event_count : kMaxEvents;
  for (uint32_t i = 0; i < events; ++i) {
    const RankEvent& event = root.summary.events[i];
    if (event.rank < 0 || event.rank >= static_cast<int32_t>(count) || event.what == RankActivity::kUnknown) continue;
    Fact& fact = root.facts[event.rank];
    fact.now = true;
    if (fact.said != event.what) fact = {event.what, true, false, now};
    if (fact.told || (event.what == RankActivity::kStopped && now - fact.since < kStopTold)) continue;
    fact.told = true;
    notice(root,
           event.what == RankActivity::kStopped ? Message::kRankStopped
           : event.memory != 0                  ? Message::kRankOutOfMemory
                                                : Message::kRankEnded,
           event.rank);
  }
  for (uint32_t i = 0; i < count && root.summary.event_count <= kMaxEvents; ++i) {
    Fact& fact = root.facts[i];
    if (fact.now || fact.said != RankActivity::kStopped) continue;
    const double lasted = now - fact.since;
    if (lasted > root.longest_stop) root.longest_stop = lasted;
    if (fact.told) notice(root, Message::kRankContinues, static_cast<int32_t>(i), lasted);
    fact.said = RankActivity::kUnknown;
  }
}

void root_instead(Root& root, uint32_t silent, double heard) {
  const uint64_t before = realtime_ns() - kAskedBefore;
  root.why_told = before > root.why_told ? before : root.why_told;
  if (silent < root.wiring->node_count && !root.silences[silent].left) root.silences[silent].since = heard + kMissed;
}

// Their helper is stopped, their host or the way there is gone, or the whole node is.
void note_silence(Root& root, const uint32_t* unanswered, uint32_t count, double now) {
  uint32_t next = 0;
  for (uint32_t node = 0; node < root.wiring->node_count; ++node) {
    Silence& silence = root.silences[node];
    const bool missed = next < count && unanswered[next] == node, silent = missed && !silence.left;
    next += missed;
    if (!silent && silence.said) {
      notice_node(root, Message::kNodeAnswers, node, now - silence.since);
      --root.silent;
    } else if (silent && silence.since != 0 && !silence.said && now - silence.since >= kSilentSeconds) {
      notice_node(root, Message::kNodeSilent, node);
      silence.said = true;
      ++root.silent;
    }
    if (!silent) silence = {0, false, silence.left};
    else if (silence.since == 0) silence.since = now;
  }
  if (root.silent == 0 || root.summary.moved != 0) root.silence_told = false;
  else if (!root.silence_told && now - root.moved_at > kSilenceSuspected) {
    root.silence_told = true;
    Statement line = statement_of(Message::kSilenceSuspicion);
    line.n[0] = root.silent;
    line.seconds[0] = now - root.moved_at;
    line.seconds[1] = root.learned.longest;
    line.seconds[2] = root.learned.watched;
    line.seconds[3] = silent_limit(root.learned);
    log_hang("suspected", line, names_of(root.names));
  }
}

}  // namespace resil::hang
