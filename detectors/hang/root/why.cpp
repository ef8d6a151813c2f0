// SPDX-License-Identifier: Apache-2.0
//
// See why.h. The timeout that a finding needs is not asked for here: the user has asked, and reads "suspected".

#include "detectors/hang/root/why.h"

#include "detectors/hang/reader/records.h"
#include "detectors/hang/root/report_files.h"
#include "detectors/hang/root/root_verdict.h"
#include "detectors/hang/root/stacks_file.h"
#include "detectors/hang/root/ways.h"
#include "shim/base/clock.h"
#include "shim/call/runtime.h"
#include "shim/model/calls.h"
#include "shim/tables/tables.h"

namespace resil::hang {

namespace {

constexpr double kPause = 1;  ///< seconds without a move that are no news in any program
constexpr double kJustSilent = 1;  ///< seconds since the first answer that a node missed: some two since its last one
constexpr double kElsewhere =
    7;  ///< the same of a node below a silent one: OverlayOptions::silence, and to go elsewhere
constexpr double kLonger = 2;  ///< a pause is news when it is so many times as long as the longest before
constexpr uint64_t kAhead = 60000000000;  ///< ns that another host's clock may be ahead

void begin(Verdict* verdict, HangClass type) { verdict->begin(type, Confidence::kSuspected); }

void add_quiet(const Root& root, double now, Verdict* verdict) {
  Statement& made = verdict->add(Message::kQuietFor);
  made.seconds[0] = now - root.moved_at;
  made.seconds[1] = root.learned.longest;
}

/// Its activity; who is seen inside of a poll, polls.
RankActivity activity_of(const RankState& state) {
  if (state.activity != RankActivity::kBlocked || state.thread_count == 0) return state.activity;
  const uint16_t call = threads_of(state)[0].call;
  const bool polls = call < kCallCount && (call_info(static_cast<CallId>(call)).attributes & kCallPoll) != 0;
  return polls ? RankActivity::kPolling : RankActivity::kBlocked;
}

/// Ranks of that activity, as culprits.
RankSet find(const Root& root, RankActivity activity) {
  RankSet found = {};
  for (uint32_t i = 0; i < root.states.count; ++i)
    if (const RankState* state = root.states.by_rank[i]; state != nullptr && activity_of(*state) == activity)
      found.add(static_cast<int32_t>(i));
  return found;
}

/// Whether a node on its way to the root is silent, too: then it may only be cut off, until it has found another way.
bool below_silent(const Root& root, uint32_t node) {
  while (node != 0) {
    node = (node - 1) / kFanOut;
    if (root.silences[node].since != 0) return true;
  }
  return false;
}

/// Whether a node of that rank is silent, for less than kJustSilent or longer. (Ranks need not be placed one after the
/// other: then a rank lies between those of several nodes.)
bool silent_node(const Root& root, uint32_t rank, double now, bool just) {
  for (uint32_t node = 0; node < root.wiring->node_count && root.wiring->nodes != nullptr; ++node) {
    const NodeEntry& entry = root.wiring->nodes[node];
    const Silence& silence = root.silences[node];
    if (rank - entry.first_rank >= entry.ranks || silence.since == 0) continue;
    const double just_silent = below_silent(root, node) ? kElsewhere : kJustSilent;
    if ((now - silence.since < just_silent) == just) return true;
  }
  return false;
}

/// No answer: `just`, or for longer.
RankSet find_silent(const Root& root, double now, bool just) {
  RankSet found = {};
  for (uint32_t i = 0; i < root.states.count; ++i)
    if (root.states.by_rank[i] == nullptr &&
        (silent_node(root, i, now, true) && !silent_node(root, i, now, false)) == just)
      found.add(static_cast<int32_t>(i));
  return found;
}

void accuse(const RankSet& ranks, Verdict* verdict) {
  for (uint32_t i = 0; i < ranks.count; ++i)
    for (int32_t rank = ranks.ranges[i].first; rank <= ranks.ranges[i].last; ++rank) verdict->add_culprit(rank);
}

void add_ranks_of(Verdict* verdict, Message id, const RankSet& ranks) {
  if (ranks.total == 0) return;
  Statement& made = verdict->add(id, ranks);
  made.rank = ranks.count != 0 ? ranks.ranges[0].first : -1;
  made.n[0] = ranks.total;
}

/// All that wait, by call; as victims.
void add_waiting(const Root& root, Verdict* verdict) {
  WaitGroup kinds[kWaitGroups];
  const uint32_t count = find_wait_groups(root, verdict, kinds);
  for (uint32_t k = 0; k < count; ++k) add_wait_group(verdict, Message::kTheseWait, kinds[k]);
}

/// The graph, with all waits that MPI permits: what it finds is not certain.
bool by_graph(const Root& root, Verdict* verdict) {
  const GraphInput input = {root.states.by_rank, root.states.count, realtime_ns(), world_comm_id(runtime.world)};
  if (graph_judge(input, root.questions, root.question_count, root.answers, root.answer_count, true, verdict) ==
      Judgement::kNothing)
    return false;
  verdict->confidence = Confidence::kSuspected;
  return true;
}

/// Ranks wait in the collective of which it was found that calls differ.
bool waits_in_mismatch(const Root& root) {
  const Verdict& told = root.mismatched;
  for (uint32_t i = 0; i < root.states.count && told.comm != 0; ++i)
    if (const RankState* state = root.states.by_rank[i]; state != nullptr)
      for (uint32_t k = 0; k < state->part_count; ++k)
        if (const Part& part = parts_of(*state)[k];
            part.kind == PartKind::kCollective && part.comm == told.comm && part.sequence == told.sequence)
          return true;
  return false;
}

void moves(const Root& root, double now, Verdict* verdict) {
  begin(verdict, HangClass::kMoving);
  if (root.summary.moved != 0) {
    Statement& made = verdict->add(Message::kJobMoves);
    made.n[0] = root.summary.moved;
    made.n[1] = root.summary.ranks;
  } else {
    add_quiet(root, now, verdict);
  }
}

}  // namespace

RankSet find_just_silent(const Root& root, double now) { return find_silent(root, now, true); }

bool why_is_due(const Root& root, uint64_t ticket) { return ticket > root.why_told && ticket < realtime_ns() + kAhead; }

void why_verdict(const Root& root, double now, Verdict* verdict) {
  const double longest = kLonger * root.learned.longest, usual = longest > kPause ? longest : kPause;
  if (root.summary.moved != 0 || now - root.moved_at <= usual) return moves(root, now, verdict);
  const RankSet gone = find(root, RankActivity::kGone), stopped = find(root, RankActivity::kStopped),
                computing = find(root, RankActivity::kComputing), silent = find_silent(root, now, false),
                just_silent = find_just_silent(root, now), blocked = find(root, RankActivity::kBlocked),
                polling = find(root, RankActivity::kPolling);
  const uint32_t waiting = blocked.total + polling.total;
  // Somebody who runs may end all that the graph would call a wait for ever; so first who is not inside MPI.
  if (stopped.total == 0 && computing.total == 0 && waits_in_mismatch(root)) {
    *verdict = root.mismatched;
  } else if (computing.total > waiting) {
    begin(verdict, HangClass::kMoving);
    add_quiet(root, now, verdict);
    add_ranks_of(verdict, computing.total == 1 ? Message::kOneComputes : Message::kSomeCompute, computing);
  } else if (stopped.total != 0) {
    begin(verdict, HangClass::kRankStopped);
    accuse(stopped, verdict);
    add_quiet(root, now, verdict);
    add_ranks_of(verdict, Message::kSomeStopped, stopped);
    verdict->add(Message::kDoContinue, stopped);
  } else if (computing.total != 0) {
    begin(verdict, HangClass::kComputation);
    accuse(computing, verdict);
    add_quiet(root, now, verdict);
    add_ranks_of(verdict, computing.total == 1 ? Message::kOneComputes : Message::kSomeCompute, computing);
  } else if (gone.total != 0 && !by_graph(root, verdict)) {
    begin(verdict, HangClass::kRankGone);
    accuse(gone, verdict);
    add_quiet(root, now, verdict);
    add_ranks_of(verdict, Message::kEndedWithout, gone);
    verdict->add(Message::kDoSeeDeath);
  } else if (silent.total != 0 && gone.total == 0) {
    begin(verdict, HangClass::kNodeSilent);
    accuse(silent, verdict);
    add_quiet(root, now, verdict);
    add_ranks_of(verdict, Message::kNoAnswer, silent);
    verdict->add(Message::kDoSeeNode);
  } else if (just_silent.total != 0 && gone.total == 0) {
    begin(verdict, HangClass::kUnknown);
    add_quiet(root, now, verdict);
    add_ranks_of(verdict, Message::kJustSilent, just_silent);
  } else if (gone.total == 0 && !by_graph(root, verdict)) {
    begin(verdict, polling.total != 0 ? HangClass::kUnknown : HangClass::kInsideMpi);
    add_quiet(root, now, verdict);
    add_ranks_of(verdict, Message::kSomePoll, polling);
    if (polling.total == 0) verdict->add(Message::kAllInside).n[0] = waiting;
  }
  if (verdict->victim_count == 0 && verdict->type != HangClass::kMoving) add_waiting(root, verdict);
  add_devices(root, verdict);
  add_ways(root, verdict);
  if (verdict->type != HangClass::kCollectiveMismatch) add_places(root, verdict);
}

void answer_why(Root& root) {
  char json_path[1300], text_path[1300];
  write_hang_files(root, HangFile::kWhy, 0, "report", json_path, text_path, sizeof(json_path));
  if (root.verdict.type != HangClass::kMoving) want_stacks(root, json_path);
  root.why_told = root.why;
  root.why = 0;
}

}  // namespace resil::hang
