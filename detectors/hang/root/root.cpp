// SPDX-License-Identifier: Apache-2.0
//
// See root.h. One chain of rounds at a time: a summary at each random step; then, when a rank has been inside one call
// for half a second or nobody moves, the states of all ranks, what the graph has to know of their messages, and the
// names in the verdict; then, once a second, the collectives. A job without a waiting rank costs the summaries only.

#include "detectors/hang/root/root.h"

#include <stdio.h>
#include <string.h>

#include <initializer_list>

#include "detectors/hang/mismatch/mismatch.h"
#include "detectors/hang/mismatch/unmatched.h"
#include "detectors/hang/reader/records.h"
#include "detectors/hang/reader/watch.h"
#include "detectors/hang/root/hang_log.h"
#include "detectors/hang/root/publish.h"
#include "detectors/hang/root/quiet_notice.h"
#include "detectors/hang/root/root_verdict.h"
#include "detectors/hang/root/stacks_file.h"
#include "detectors/hang/root/unmatched_report.h"
#include "detectors/hang/root/ways.h"
#include "detectors/hang/root/why.h"
#include "detectors/hang/verdict/note.h"
#include "shim/base/hash.h"
#include "shim/call/runtime.h"
#include "shim/config/config.h"
#include "shim/runtime/memory.h"
#include "shim/tables/tables.h"

namespace resil::hang {

namespace {

constexpr double kStatesEvery = 0.9, kMismatchEvery = 1;
constexpr double kStatesEarly = 0.4;  ///< likewise, the first times after anybody has moved
constexpr uint32_t kEarlyStates = 4;
constexpr double kLookEvery = 0.5;  // a proof must not wait for a doubled interval
constexpr double kUnclearSeconds = 0.7;  ///< more than kStableSeconds, after which calls count as the same
constexpr double kUnclearAgain = 0.12;
constexpr double kStuckRound = 10;
constexpr double kLongestQuiet = 86400;
constexpr uint32_t kMostStates = 64u << 20, kMostQuestions = 65536, kMostAnswers = 1u << 20;

void note_opinion(Root& root) {
  const stats::Verdict& opinion = root.opinion;
  if (opinion.finding >= stats::Finding::kSuspected && !root.suspected) {
    root.suspected = true;
    Statement line = statement_of(Message::kSuspicion);
    line.n[0] = root.summary.out;
    line.n[1] = root.summary.ranks;
    line.n[2] = opinion.observation.suspicions;
    line.seconds[0] = opinion.quiet;
    line.seconds[1] = opinion.verified_at;
    line.seconds[2] = opinion.observation.probability;
    log_hang("suspected", line, names_of(root.names));
  } else if (root.suspected && root.summary.moved != 0) {
    root.suspected = false;
    log_hang("withdrawn", statement_of(Message::kWithdrawn), names_of(root.names));
  }
}

/// See kGapSeconds.
void gap(Root& root, double now) {
  root.moved_at = root.blocked_since = now;
  root.faulty_since = root.blocked_hash = 0;
  for (uint32_t i = 0; i < root.states.count; ++i) root.facts[i].since = now;
  for (uint32_t node = 0; node < root.wiring->node_count; ++node)
    if (root.silences[node].since != 0) root.silences[node].since = now;
}

void learn(Root& root) {
  const stats::Quiet& record = root.model.record();
  const double longest = record.longest() > record.longest_crowded() ? record.longest() : record.longest_crowded();
  root_learn(root, {longest, record.limit(), record.watched(), root.learned.notices});
}

/// What differs is said at once, whoever has not come yet.
void begin_last_look(Root& root, const Ending& ending) {
  root.last_look = ending;
  mismatch_close(*root.mismatch);
}

void sampled(Root& root, const Summary& summary) {
  const double now = monotonic_seconds();
  root.summary = summary;
  root.moves += summary.moved;
  root.excused += summary.excused;
  root.starved += summary.starved;
  root.familiar = summary.familiar < root.familiar ? summary.familiar : root.familiar;
  if (root.looked_at != 0 && now - root.looked_at > kGapSeconds) gap(root, now);
  root.looked_at = now;
  if (summary.moved != 0 || root.moved_at == 0) {
    // The first look of who takes over from another root: since when it stands still, the records tell.
    root.moved_at =
        summary.moved == 0 && summary.quiet > 0 && summary.quiet < kLongestQuiet ? now - summary.quiet : now;
    root.faulty_since = 0;
    root.states_taken = 0;
  }
  note_facts(root, now);
  if (summary.moved != 0) withdraw_notice(root, now);
  if (summary.ranks == 0) return;
  if (now >= root.next_sample) {  // the looks in between serve the proof; the model sees its own random steps
    const stats::Look look = {now, summary.out, summary.ranks, root.moves, root.familiar, root.excused, root.starved};
    if (root.traced) trace_look(look);
    root.opinion = root.model.look(look);
    root.next_sample = now + root.model.next_step();
    learn(root);
    root.familiar = ~uint64_t{0};
    root.excused = root.starved = 0;
    note_opinion(root);
  }
  root.states_due = (summary.waiting != 0 || root.suspected || summary.gone != 0 || summary.stopped != 0) &&
                    now - root.states_at >= (root.states_taken < kEarlyStates ? kStatesEarly : kStatesEvery);
  if (why_is_due(root, summary.why)) {
    root.why_at = root.why == 0 ? now : root.why_at;
    root.why = summary.why;
  }
  if (root.why != 0) root.states_due = true;
  if (root.probes.count != 0) root.probes_due = true;  // some may be under way
  if (summary.ending.name != 0) begin_last_look(root, summary.ending);
  // Also before anything can be proved: calls that do not match are the better word for what hangs on them.
  root.mismatch_due = summary.ending.name != 0 || now - root.mismatch_at >= kMismatchEvery ||
                      (root.states_due && root.states_taken == 1);
}

/// Which of the ranks stayed outside MPI while nobody moved.
void search_faulty(Root& root, double now) {
  const uint32_t count = root.states.count;
  for (uint32_t i = 0; i < count; ++i) {
    const RankState* state = root.states.by_rank[i];
    stats::RankState& progress = root.progress[i];
    progress = {0, 0, stats::Where::kUnknown};
    if (state == nullptr) continue;
    progress.moves = state->calls - state->polls;
    progress.polls = state->polls;
    progress.where = state->activity == RankActivity::kComputing ? stats::Where::kOut
                     : state->activity == RankActivity::kBlocked ? stats::Where::kIn
                     : state->activity == RankActivity::kPolling ? stats::Where::kPolling
                     : state->activity == RankActivity::kFinished || state->activity == RankActivity::kGone
                         ? stats::Where::kEnded
                         : stats::Where::kUnknown;
  }
  if (root.faulty_since == 0) {
    root.faulty_since = now;
    root.faulty.start(root.marks, count);
  }
  root.faulty.add(root.progress);
}

/// Since when the same ranks have been blocked in the same calls.
void note_blocked(Root& root, double now) {
  uint64_t hash = 1;
  for (uint32_t i = 0; i < root.states.count; ++i) {
    const RankState* state = root.states.by_rank[i];
    if (state != nullptr && state->stable &&
        (state->activity == RankActivity::kBlocked || state->activity == RankActivity::kPolling))
      hash = hash_combine(hash, i * 4099 + state->calls - state->polls);
  }
  if (hash != root.blocked_hash) {
    root.blocked_hash = hash;
    root.blocked_since = now;
  }
}

GraphInput graph_input(const Root& root) {
  return {root.states.by_rank, root.states.count, realtime_ns(), world_comm_id(runtime.world)};
}

// Each of these returns what to ask next.

Ask ask(Root& root, Phase phase, Round kind, const void* payload = nullptr, uint64_t bytes = 0) {
  root.phase = phase;
  return {kind, payload, static_cast<uint32_t>(bytes)};
}

Ask ask_names(Root& root, Phase phase) {
  root.names.missing = false;
  return ask(root, phase, Round::kNames, root.names.questions, root.names.count * sizeof(NameQuestion));
}

Ask ask_states(Root& root, Phase phase) {
  return ask(root, phase, Round::kStates, root.wanted, root.wanted_count * sizeof(root.wanted[0]));
}

/// What is left of this chain.
Ask next_round(Root& root) {
  if (root.stacks_due) {
    root.stacks_due = false;
    const uint32_t bytes = stacks_question(root);
    return ask(root, Phase::kStacking, Round::kStacks, &root.stacks_question, bytes);
  }
  if (root.probes_due) {
    root.probes_due = false;
    if (const uint32_t count = probes_questions(root.probes, monotonic_seconds()); count != 0)
      return ask(root, Phase::kProbing, Round::kProbe, root.probes.questions, count * sizeof(ProbeQuestion));
  }
  if (root.mismatch_due) {
    root.mismatch_due = false;
    return ask(root, Phase::kComparing, Round::kMismatch);
  }
  if (root.states_due) {
    root.states_due = false;
    return ask_states(root, Phase::kReading);
  }
  return ask(root, Phase::kIdle, Round::kNone);
}

/// Proved, or after a long timeout inferred. Fills `verdict`, if given.
bool found_by_graph(Root& root, double now, Verdict* verdict) {
  const GraphInput input = graph_input(root);
  const double blocked = now - root.blocked_since;
  if (verdict == nullptr && root.amounts.comm != 0) verdict = &root.verdict;  // which call it is counts
  const bool may_buffer = blocked >= may_buffer_after(root) || root.amounts.comm != 0;
  const Judgement found =
      graph_judge(input, root.questions, root.question_count, root.answers, root.answer_count, may_buffer, verdict);
  if (found == Judgement::kNothing || found == Judgement::kProved) return found == Judgement::kProved;
  // All that these calls wait for has happened, and data may take long on its way; or some poll, and may wait for more
  // than messages.
  if (found == Judgement::kInsideMpi && root.amounts.comm != 0 && amounts_explain(root, blocked, *verdict)) return true;
  return (found != Judgement::kInsideMpi && root.summary.polling == 0 && blocked >= may_buffer_after(root)) ||
         blocked >= inside_after(root);
}

/// The first certain verdict there is.
bool judged(Root& root, double now) {
  Verdict* verdict = &root.verdict;
  if (!found_by_graph(root, now, verdict) && !computation_verdict(root, verdict) &&
      !stopped_verdict(root, now, verdict) && !silent_verdict(root, now, verdict) &&
      !cpu_idle_verdict(root, now, verdict) && !device_verdict(root, now, verdict) &&
      !local_call_verdict(root, now, verdict))
    return false;
  promote_amounts(root, verdict);
  name_cpu_idle(root, now, verdict);
  add_devices(root, verdict);
  add_ways(root, verdict);
  add_places(root, verdict);
  return true;
}

/// The verdict in words, and the communicators that the files will name.
void explain_verdict(Root& root) {
  const Names names = names_of(root.names);
  explain(root.verdict, names, &root.explanation);
  for (uint32_t i = 0; i < root.states.count; ++i) {
    const Part* part = root.states.by_rank[i] != nullptr ? first_part(*root.states.by_rank[i]) : nullptr;
    if (part != nullptr && part->kind == PartKind::kCollective) comm_name(names, part->comm);
  }
}

/// Words and names are there: to who has asked, and as a finding if it is a new one.
void put_out(Root& root) {
  if (root.why != 0) answer_why(root);
  if (!root.why_only) publish(root);
}

/// The verdict stands: words, files, action.
Ask tell(Root& root) {
  explain_verdict(root);
  if (root.names.missing) return ask_names(root, Phase::kNaming);
  put_out(root);
  return next_round(root);
}

Ask decide(Root& root) {
  names_forget(root.names);
  const double now = monotonic_seconds();
  plan_probes(root, now);
  const bool certain = judged(root, now), known = certain && was_published(*root.control, root.verdict);
  root.why_only = root.why != 0 && (!certain || known);
  if (root.why == 0 && (known || (!certain && !quiet_notice(root, now, &root.verdict)))) return next_round(root);
  if (root.why != 0 && !certain) {
    if (root.mismatch_at < root.moved_at) {  // whether calls differ is asked first
      root.states_due = true;
      return ask(root, Phase::kComparing, Round::kMismatch);
    }
    why_verdict(root, now, &root.verdict);
    // Who polls may have been read, or lost its core, while it wrote down what for: then the next looks know more.
    if (root.verdict.type == HangClass::kUnknown && find_just_silent(root, now).total == 0 &&
        now - root.why_at < kUnclearSeconds) {
      root.next_look = now + kUnclearAgain;
      return next_round(root);
    }
  }
  if (const uint32_t count = near_miss_questions(root.verdict, root.searches); count != 0)
    return ask(root, Phase::kSearching, Round::kSearch, root.searches, count * sizeof(root.searches[0]));
  return tell(root);
}

Ask search_came(Root& root, const void* merged, uint32_t bytes) {
  add_near_misses(static_cast<const FoundMessage*>(merged), bytes / sizeof(FoundMessage), &root.verdict);
  return tell(root);
}

Ask states_came(Root& root, const void* merged, uint32_t bytes) {
  const double now = monotonic_seconds();
  root.states_at = now;
  ++root.states_taken;
  JobStates& states = root.states;
  memset(states.by_rank, 0, states.count * sizeof(states.by_rank[0]));
  states.used = bytes < kMostStates ? bytes : 0;
  memcpy(states.bytes, merged, states.used);
  for (uint32_t at = 0; at + sizeof(RankState) <= states.used;) {
    const auto* state = reinterpret_cast<const RankState*>(states.bytes + at);
    if (!state_is_whole(*state, states.used - at)) break;
    if (state->rank >= 0 && state->rank < static_cast<int32_t>(states.count)) states.by_rank[state->rank] = state;
    at += state->bytes;
  }
  note_blocking_calls(root);
  root.wanted_count = graph_wanted(graph_input(root), root.wanted, kMostWanted);
  // The same instances as before the answers: what they say held while these calls were open.
  if (root.phase == Phase::kConfirming) return decide(root);
  learn_timeouts(root);
  search_faulty(root, now);
  note_blocked(root, now);
  note_cpu(root, now);
  root.question_count = graph_questions(graph_input(root), root.questions, kMostQuestions);
  root.answer_count = 0;
  if (root.question_count == 0) return decide(root);
  return ask(root, Phase::kCounting, Round::kAnswers, root.questions, root.question_count * sizeof(Question));
}

/// A message may have been in flight when the states were taken, and told when the counters were read. So where there
/// is something to find, it is judged with states that are younger than the answers.
Ask answers_came(Root& root, const void* merged, uint32_t bytes) {
  const uint64_t count = bytes / sizeof(Answer);
  root.answer_count = static_cast<uint32_t>(count < kMostAnswers ? count : kMostAnswers);
  memcpy(root.answers, merged, root.answer_count * sizeof(Answer));
  if (root.why == 0 && !found_by_graph(root, monotonic_seconds(), nullptr)) return decide(root);
  return ask_states(root, Phase::kConfirming);
}

/// Amounts that differ are suspected only. But where MPI ends the job on an error in just this call, they are why.
bool fails_there(const Root& root, const Verdict& verdict) {
  return root.last_look.by_library != 0 && root.last_look.comm != 0 && verdict.type == HangClass::kCollectiveMismatch &&
         verdict.confidence == Confidence::kSuspected && verdict.comm == root.last_look.comm &&
         verdict.sequence == root.last_look.sequence;
}

void judge_as_failed(const Root& root, Verdict* verdict) {
  verdict->confidence = Confidence::kVerified;
  verdict->signature = hash_combine(verdict->signature, root.last_look.sequence);
  verdict->add(Message::kFailsThere).rank = root.last_look.name - 1;
}

/// The next verdict about collectives. The last: amounts that were only suspected before.
bool next_mismatch(Root& root, bool found) {
  Verdict& verdict = root.verdict;
  if (found && fails_there(root, verdict)) {
    judge_as_failed(root, &verdict);
  } else if (found && verdict.confidence == Confidence::kSuspected) {
    root.amounts = verdict;
  } else if (!found && fails_there(root, root.amounts)) {
    judge_as_failed(root, &root.amounts);
    verdict = root.amounts;
    return true;
  }
  return found;
}

/// When the job ends, a call is told once, though more ranks may come to it, and fail in it, while the first one waits.
bool said_at_end(Root& root, const Verdict& verdict) {
  if (root.last_look.name == 0 || verdict.confidence == Confidence::kSuspected) return false;
  if (root.failed_comm == verdict.comm && root.failed_sequence == verdict.sequence) return true;
  root.failed_comm = verdict.comm;
  root.failed_sequence = verdict.sequence;
  return false;
}

/// Verdicts about collectives, one after the other.
Ask report_mismatches(Root& root, bool found) {
  for (; next_mismatch(root, found); found = mismatch_judge(*root.mismatch, nullptr, 0, &root.verdict)) {
    if (root.verdict.confidence != Confidence::kSuspected) root.mismatched = root.verdict;
    if (was_published(*root.control, root.verdict) || said_at_end(root, root.verdict)) continue;
    add_places(root, &root.verdict);
    explain_verdict(root);
    if (root.names.missing) return ask_names(root, Phase::kNamingMismatch);
    publish(root);
  }
  return root.ending ? ask(root, Phase::kBalancing, Round::kUnmatched) : next_round(root);
}

Ask mismatch_came(Root& root, const void* merged, uint32_t bytes) {
  root.mismatch_at = monotonic_seconds();
  names_forget(root.names);
  return report_mismatches(root, mismatch_judge(*root.mismatch, merged, bytes, &root.verdict));
}

/// The names are there, or will not come: what is not known by now is said to be so.
Ask publish_named(Root& root) {
  const Phase phase = root.phase;
  explain_verdict(root);
  if (phase == Phase::kNaming) {
    put_out(root);
    return next_round(root);
  }
  publish(root);
  return report_mismatches(root, mismatch_judge(*root.mismatch, nullptr, 0, &root.verdict));
}

/// As far as the ranks are this node's.
void add_message_sites(Root& root) {
  const Statement message = root.verdict.statements[0];
  const auto destination = static_cast<int32_t>(message.n[0]), tag = static_cast<int32_t>(message.n[1]);
  for (uint32_t i = 0; root.names.watch != nullptr && i < root.names.watch->count; ++i) {
    const Watched& rank = root.names.watch->watched[i];
    for (const bool sent : {true, false}) {
      if (rank.header == nullptr || rank.rank != (sent ? message.rank : destination)) continue;
      const uint64_t site = site_of_message(rank, message.comm, tag, sent ? destination : message.rank, sent);
      if (site == 0) continue;
      Statement& made = root.verdict.add(sent ? Message::kSendSite : Message::kReceiveSite);
      made.rank = rank.rank;
      made.wait.site = site;
    }
  }
}

/// Notes for the report: programs leave messages behind without harm, and with.
void unmatched_came(Root& root, const void* merged, uint32_t bytes) {
  names_forget(root.names);
  uint64_t comm;
  char name[sizeof(NameAnswer::text)];
  for (uint32_t i = 0; unmatched_name(merged, bytes, i, &comm, name, sizeof(name)); ++i)
    names_add(root.names, NameKind::kComm, comm, name);
  const Names names = names_of(root.names);
  if (message_types_judge(merged, bytes, &root.verdict)) {
    add_message_sites(root);
    explain(root.verdict, names, &root.explanation);
    log_hang("suspected", root.verdict, root.explanation, names);
    note(root.explanation.message);
  }
  UnmatchedList& list = unmatched_list();
  if (!unmatched_judge(merged, bytes, &root.verdict, &list)) return;
  explain(root.verdict, names, &root.explanation);
  log_hang("suspected", root.verdict, root.explanation, names);
  note(root.explanation.message);
  for (uint32_t i = 0; i < list.listed; ++i)
    snprintf(list.entries[i].communicator, sizeof(list.entries[i].communicator), "%s",
             comm_name(names, list.entries[i].comm));
}

}  // namespace

bool root_begin(Root& root, const Wiring& wiring, ControlBlock& control, Watch& watch) {
  root.wiring = root.names.wiring = &wiring;
  root.names.watch = &watch;
  root.control = &control;
  const auto count = static_cast<uint32_t>(runtime.size > 0 ? runtime.size : 1);
  root.states.count = count;
  root.states.bytes = memory::map_array<char>(kMostStates);
  root.states.by_rank = memory::map_array<const RankState*>(count);
  root.marks = memory::map_array<stats::RankState>(count);
  root.progress = memory::map_array<stats::RankState>(count);
  root.facts = memory::map_array<Fact>(count);
  root.waited = memory::map_array<Waited>(count);
  root.cpu_then = memory::map_array<uint64_t>(count);
  root.call_cpu = memory::map_array<CallCpu>(count);
  root.silences = memory::map_array<Silence>(wiring.node_count);
  root.questions = memory::map_array<Question>(kMostQuestions);
  root.answers = memory::map_array<Answer>(kMostAnswers);
  root.mismatch = mismatch_create(count);
  root.model.start(count, config_real("RESIL_HANG_INTERVAL"), config_real("RESIL_HANG_ALPHA"), realtime_ns());
  root.probes.nodes = wiring.node_count;
  root.begun_at = monotonic_seconds();
  root.why_told = realtime_ns() - kAskedBefore;  // what was asked earlier, the leader before has answered
  root.traced = config_has("RESIL_LOG", "debug");
  root.aborts = config_has("RESIL_HANG", "abort");
  root.lazy = config_has("RESIL_MODE", "checksum") && !config_has("RESIL_CHECKSUM", "strict");
  root.stacks = config_has("RESIL_HANG_STACKS", "1");
  root.notice.after = config_has("RESIL_LOG", "quiet") ? 0 : config_real("RESIL_HANG_NOTICE");
  return root.states.bytes != nullptr && root.states.by_rank != nullptr && root.marks != nullptr &&
         root.progress != nullptr && root.facts != nullptr && root.waited != nullptr && root.cpu_then != nullptr &&
         root.call_cpu != nullptr && root.mismatch != nullptr && root.silences != nullptr &&
         root.questions != nullptr && root.answers != nullptr;
}

void root_learn(Root& root, const Learned& from) {
  Learned& learned = root.learned;
  learned.longest = from.longest > learned.longest ? from.longest : learned.longest;
  learned.limit = from.limit > learned.limit ? from.limit : learned.limit;
  learned.watched = from.watched > learned.watched ? from.watched : learned.watched;
  learned.notices = from.notices > learned.notices ? from.notices : learned.notices;
}

double root_step(Root& root, double now, Ask* next) {
  *next = {Round::kNone, nullptr, 0};
  if (root_busy(root)) {
    if (now - root.asked_at < kStuckRound) return 0.1;
    root.phase = Phase::kIdle;  // the overlay has lost its root in between
  }
  if (now < root.next_look) return root.next_look - now;
  root.asked_at = now;
  *next = ask(root, Phase::kSampling, Round::kSummary, &root.learned, sizeof(root.learned));
  root.next_look = now + kLookEvery;
  if (root.next_sample < root.next_look) root.next_look = root.next_sample > now ? root.next_sample : now;
  return root.next_look - now;
}

void root_asked(Root& root, double now) {
  constexpr double kApart = 0.05;  // whoever asks all the time does not get all of a core
  const double soon = root.asked_at + kApart > now ? root.asked_at + kApart : now;
  root.next_look = soon < root.next_look ? soon : root.next_look;
}

void root_node(Root& root, uint32_t node, NodeState state) {
  if (node < root.wiring->node_count) root.silences[node].left = state == NodeState::kLeft;
}

Ask root_last_look(Root& root, const Ending& ending) {
  if (root_busy(root)) return {Round::kNone, nullptr, 0};
  begin_last_look(root, ending);
  root.asked_at = monotonic_seconds();
  return ask(root, Phase::kComparing, Round::kMismatch);
}

Ask root_unmatched(Root& root) {
  withdraw_notice(root, monotonic_seconds());
  if (root_busy(root)) return {Round::kNone, nullptr, 0};
  root.ending = true;
  // Collectives that did not match just before the end, or in a job too short for any look.
  return ask(root, Phase::kComparing, Round::kMismatch);
}

void root_end(Root& root) {
  memory::unmap_array(root.states.bytes, kMostStates);
  memory::unmap_array(root.states.by_rank, root.states.count);
  memory::unmap_array(root.marks, root.states.count);
  memory::unmap_array(root.progress, root.states.count);
  memory::unmap_array(root.facts, root.states.count);
  memory::unmap_array(root.waited, root.states.count);
  memory::unmap_array(root.cpu_then, root.states.count);
  memory::unmap_array(root.call_cpu, root.states.count);
  memory::unmap_array(root.silences, root.wiring->node_count);
  memory::unmap_array(root.questions, kMostQuestions);
  memory::unmap_array(root.answers, kMostAnswers);
}

Ask root_finished(Root& root, Round kind, const void* merged, uint32_t bytes, const uint32_t* unanswered,
                  uint32_t count) {
  if (kind == Round::kSummary) note_silence(root, unanswered, count, monotonic_seconds());
  constexpr Round kAwaited[] = {Round::kNone,      Round::kSummary, Round::kStates,   Round::kAnswers,
                                Round::kStates,    Round::kNames,   Round::kMismatch, Round::kNames,
                                Round::kUnmatched, Round::kStacks,  Round::kSearch,   Round::kProbe};
  if (kind != kAwaited[static_cast<size_t>(root.phase)]) return {Round::kNone, nullptr, 0};  // too late
  switch (root.phase) {
    case Phase::kIdle: break;
    case Phase::kSampling:
      if (bytes == sizeof(Summary)) sampled(root, *static_cast<const Summary*>(merged));
      return next_round(root);
    case Phase::kReading:
    case Phase::kConfirming: return states_came(root, merged, bytes);
    case Phase::kCounting: return answers_came(root, merged, bytes);
    case Phase::kSearching: return search_came(root, merged, bytes);
    case Phase::kProbing:
      note_probes(root, static_cast<const ProbeAnswer*>(merged), bytes / sizeof(ProbeAnswer), monotonic_seconds());
      return next_round(root);
    case Phase::kStacking: write_stacks(root, merged, bytes); return next_round(root);
    case Phase::kNaming:
    case Phase::kNamingMismatch:
      names_learn(root.names, static_cast<const NameAnswer*>(merged), bytes / sizeof(NameAnswer));
      return publish_named(root);
    case Phase::kComparing: return mismatch_came(root, merged, bytes);
    case Phase::kBalancing:
      if (count == 0) unmatched_came(root, merged, bytes);
      root.ending = false;
      return ask(root, Phase::kIdle, Round::kNone);
  }
  return {Round::kNone, nullptr, 0};
}

Ask root_refused(Root& root) {
  switch (root.phase) {
    case Phase::kStacking: write_stacks(root, nullptr, 0); return next_round(root);
    case Phase::kReading:
    case Phase::kProbing: return next_round(root);
    case Phase::kCounting:
    case Phase::kConfirming: return decide(root);
    case Phase::kSearching: return tell(root);
    case Phase::kNaming:
    case Phase::kNamingMismatch: return publish_named(root);
    case Phase::kComparing:
      if (root.ending) return ask(root, Phase::kBalancing, Round::kUnmatched);
      break;
    default: break;
  }
  return ask(root, Phase::kIdle, Round::kNone);
}

}  // namespace resil::hang
