// SPDX-License-Identifier: Apache-2.0
//
// See root.h. One chain of rounds at a time: a summary at each random step; then, when a rank has been inside one call
// for half a second or nobody moves, the states of all ranks, what the graph has to know of their messages, and the
// names in the verdict; then, once a second, the collectives. A job without a waiting rank costs the summaries only.

#include "detectors/hang/root/root.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "detectors/hang/mismatch/accounts.h"
#include "detectors/hang/mismatch/mismatch.h"
#include "detectors/hang/monitor/monitor.h"
#include "detectors/hang/monitor/monitor_internal.h"
#include "detectors/hang/reader/watch.h"
#include "detectors/hang/root/publish.h"
#include "detectors/hang/root/report_files.h"
#include "detectors/hang/root/root_verdict.h"
#include "detectors/hang/root/unreceived.h"
#include "shim/base/hash.h"
#include "shim/call/runtime.h"
#include "shim/config/config.h"
#include "shim/model/call_info.h"
#include "shim/report/log.h"
#include "shim/tables/tables.h"

namespace resil::hang {

namespace {

constexpr double kStatesEvery = 0.9, kMismatchEvery = 1;
constexpr double kLookEvery = 0.5;  // a proof must not wait for a doubled interval
constexpr double kStuckRound = 10;
constexpr uint32_t kMostStates = 64u << 20, kMostQuestions = 65536, kMostAnswers = 1u << 20;
template <class T>
T* reserve(size_t count) {
  void* memory =
      mmap(nullptr, count * sizeof(T), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return memory == MAP_FAILED ? nullptr : static_cast<T*>(memory);
}

template <class T>
void unreserve(T* memory, size_t count) {
  if (memory != nullptr) munmap(memory, count * sizeof(T));
}

void note_opinion(Root& root) {
  const stats::Verdict& opinion = root.opinion;
  if (opinion.finding >= stats::Finding::kSuspected && !root.suspected) {
    root.suspected = true;
    log_hang("suspected",
             "no rank has made progress for %.1f s; %u of %u ranks are outside MPI, %u low samples in a row "
             "(chance %.2g); verified after %.1f s",
             opinion.quiet, root.summary.out, root.summary.ranks, opinion.observation.suspicions,
             opinion.observation.probability, opinion.verified_at);
  } else if (root.suspected && root.summary.moved != 0) {
    root.suspected = root.verified = false;
    log_hang("withdrawn", "ranks make progress again");
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
  root_learn(root, {longest, record.limit(), record.watched()});
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
    root.moved_at = now;
    root.faulty_since = 0;
  }
  note_facts(root, now);
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
  root.with_states = (summary.waiting != 0 || root.suspected || summary.gone != 0 || summary.stopped != 0) &&
                     now - root.states_at >= kStatesEvery;
  root.with_mismatch = now - root.mismatch_at >= kMismatchEvery;
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
  return {root.states.by_rank, root.states.count, realtime_now_ns(), world_comm_id(runtime.world)};
}

void decide(Root& root);
bool found_by_graph(Root& root, double now, Verdict* verdict);
Names names_of(Root& root);
void next_round(Root& root);

void states_came(Root& root, const void* merged, uint32_t bytes) {
  const double now = monotonic_seconds();
  root.states_at = now;
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
  note_insistence(root);
  if (root.confirming) {  // the same instances as before the answers: what they say held while these calls were open
    root.confirming = false;
    decide(root);
    return;
  }
  learn_patience(root, names_of(root));
  search_faulty(root, now);
  note_blocked(root, now);
  note_cpu(root, now);
  root.question_count = graph_questions(graph_input(root), root.questions, kMostQuestions);
  root.answer_count = 0;
  if (root.question_count == 0 || !monitor_ask(Round::kAnswers, root.questions, root.question_count * sizeof(Question)))
    decide(root);
}

const char* comm_of(void* self, uint64_t id) { return name_of(*static_cast<Root*>(self), -1, NameKind::kComm, id); }
const char* call_of(void*, uint16_t id) { return id < kCallCount ? call_info(static_cast<CallId>(id)).name : "?"; }
void site_of(void* self, int32_t rank, uint64_t address, char* text, uint32_t bytes) {
  snprintf(text, bytes, "%s", name_of(*static_cast<Root*>(self), rank, NameKind::kSite, address));
}

Names names_of(Root& root) { return {&root, comm_of, call_of, site_of}; }

/// Proved, or after long patience verified.
bool found_by_graph(Root& root, double now, Verdict* verdict) {
  const GraphInput input = graph_input(root);
  const Names names = names_of(root);
  if (graph_judge(input, root.questions, root.question_count, root.answers, root.answer_count, false, names, verdict))
    return true;
  const double blocked = now - root.blocked_since;
  if (blocked < lenient_after(root) ||
      !graph_judge(input, root.questions, root.question_count, root.answers, root.answer_count, true, names, verdict))
    return false;
  // All that these calls wait for has happened, and data may take long on its way; or some poll, and may wait for more
  // than messages.
  return (verdict->type != HangClass::kInsideMpi && root.summary.polling == 0) || blocked >= inside_after(root);
}

/// The first certain verdict there is, with whatever names are known so far.
bool judged(Root& root, double now) {
  const Names names = names_of(root);
  if (!found_by_graph(root, now, &root.verdict) && !computation_verdict(root, now, names, &root.verdict) &&
      !stopped_verdict(root, now, names, &root.verdict) && !silent_verdict(root, now, names, &root.verdict) &&
      !idle_verdict(root, now, names, &root.verdict) && !device_verdict(root, now, names, &root.verdict))
    return false;
  name_idle(root, now, &root.verdict);
  add_device_evidence(root, &root.verdict);
  say_where(root, &root.verdict);
  return true;
}

/// The communicators that the files will name.
void name_places(Root& root) {
  for (uint32_t i = 0; i < root.states.count; ++i) {
    const RankState* state = root.states.by_rank[i];
    const Part* part = state != nullptr ? first_part(*state) : nullptr;
    if (part != nullptr && part->kind == PartKind::kCollective) name_of(root, -1, NameKind::kComm, part->comm);
  }
}

void decide(Root& root) {
  const double now = monotonic_seconds();
  root.names.count = 0;
  root.names.asked = false;
  root.naming = judged(root, now);
  if (root.naming) name_places(root);
  if (root.naming && root.names.asked &&
      monitor_ask(Round::kNames, root.names.questions, root.names.count * sizeof(NameQuestion)))
    return;
  if (root.naming) publish(root, root.verdict);
  root.naming = false;
  next_round(root);
}

bool mismatch_came(Root& root, const void* merged, uint32_t bytes);
void after_mismatch(Root& root);

/// The names are there: the same verdict once more, now in full.
void names_came(Root& root, const NameAnswer* answers, uint32_t count) {
  for (uint32_t i = 0; i < count; ++i)
    if (answers[i].question < root.names.count) {
      memcpy(root.names.texts[answers[i].question], answers[i].text, sizeof(answers[i].text));
      root.names.texts[answers[i].question][sizeof(answers[i].text) - 1] = 0;
    }
  if (root.renaming) {
    mismatch_came(root, nullptr, 0);
    after_mismatch(root);
    return;
  }
  if (root.naming && judged(root, monotonic_seconds())) publish(root, root.verdict);
  root.naming = false;
  next_round(root);
}

void last_round(Root& root);

/// True: names have been asked of other nodes; then once more.
bool mismatch_came(Root& root, const void* merged, uint32_t bytes) {
  const Names names = names_of(root);
  root.mismatch_at = monotonic_seconds();
  bool may_ask = !root.renaming;
  root.renaming = false;
  if (may_ask) {
    root.names.count = 0;
    root.names.asked = false;
  }
  for (bool found = mismatch_judge(merged, bytes, names, &root.verdict); found;
       found = mismatch_judge(nullptr, 0, names, &root.verdict)) {
    if (!root.names.asked || !may_ask) {
      say_where(root, &root.verdict);
      publish(root, root.verdict);
      continue;
    }
    may_ask = false;
    mismatch_again();
    root.renaming = monitor_ask(Round::kNames, root.names.questions, root.names.count * sizeof(NameQuestion));
    if (root.renaming) return true;
  }
  return false;
}

void after_mismatch(Root& root) {
  if (root.ending) last_round(root);
  else next_round(root);
}

/// Notes for the report: programs leave messages behind without harm, and with.
void accounts_came(Root& root, const void* merged, uint32_t bytes) {
  const Names names = names_of(root);
  for (int again = 0; again < 2; ++again)
    if (accounts_judge(merged, bytes, names, &root.verdict, again != 0, &unreceived_list())) {
      log_hang("suspected", "%s: %s", class_name(root.verdict.type), root.verdict.message);
      add_note_format("hang: %s", root.verdict.message);
    }
}

void last_round(Root& root) {
  root.ending = false;
  if (!monitor_ask(Round::kAccounts, nullptr, 0)) root.busy = false;
}

/// What is left of this chain.
void next_round(Root& root) {
  if (root.with_states) {
    root.with_states = false;
    if (monitor_ask(Round::kStates, nullptr, 0)) return;
  }
  if (root.with_mismatch) {
    root.with_mismatch = false;
    if (monitor_ask(Round::kMismatch, nullptr, 0)) return;
  }
  root.busy = false;
}

}  // namespace

bool root_begin(Root& root, const Wiring& wiring, NodeBoard& board) {
  root.wiring = &wiring;
  root.board = &board;
  const auto count = static_cast<uint32_t>(runtime.size > 0 ? runtime.size : 1);
  root.states.count = count;
  root.states.bytes = reserve<char>(kMostStates);
  root.states.by_rank = reserve<const RankState*>(count);
  root.marks = reserve<stats::RankState>(count);
  root.progress = reserve<stats::RankState>(count);
  root.facts = reserve<Fact>(count);
  root.waited = reserve<Waited>(count);
  root.cpu_then = reserve<uint64_t>(count);
  root.insistences = reserve<Insistence>(count);
  root.silences = reserve<Silence>(wiring.node_count);
  root.questions = reserve<Question>(kMostQuestions);
  root.answers = reserve<Answer>(kMostAnswers);
  root.model.start(count, config_real("RESIL_HANG_INTERVAL"), config_real("RESIL_HANG_ALPHA"), realtime_now_ns());
  root.begun_at = monotonic_seconds();
  root.traced = config_has("RESIL_LOG", "debug");
  return root.states.bytes != nullptr && root.states.by_rank != nullptr && root.marks != nullptr &&
         root.progress != nullptr && root.facts != nullptr && root.waited != nullptr && root.cpu_then != nullptr &&
         root.insistences != nullptr && root.silences != nullptr && root.questions != nullptr &&
         root.answers != nullptr;
}

void root_learn(Root& root, const Learned& from) {
  Learned& learned = root.learned;
  learned.longest = from.longest > learned.longest ? from.longest : learned.longest;
  learned.limit = from.limit > learned.limit ? from.limit : learned.limit;
  learned.watched = from.watched > learned.watched ? from.watched : learned.watched;
}

double root_turn(Root& root, double now) {
  if (root.busy) {
    if (now - root.asked_at < kStuckRound) return 0.1;
    root.busy = false;  // the overlay has lost its root in between
  }
  if (now < root.next_look) return root.next_look - now;
  root.asked_at = now;
  root.busy = true;
  if (!monitor_ask(Round::kSummary, &root.learned, sizeof(root.learned))) root.busy = false;
  root.next_look = now + kLookEvery;
  if (root.next_sample < root.next_look) root.next_look = root.next_sample > now ? root.next_sample : now;
  return root.next_look - now;
}

void root_node(Root& root, uint32_t node, NodeState state) {
  if (node < root.wiring->node_count) root.silences[node].left = state == NodeState::kLeft;
}

bool root_busy(const Root& root) { return root.busy; }

bool root_accounts(Root& root) {
  if (root.busy && monitor_waits()) return false;
  root.busy = root.ending = true;
  // Collectives that did not match just before the end, or in a job too short for any look.
  if (!monitor_ask(Round::kMismatch, nullptr, 0)) last_round(root);
  return true;
}

void root_end(Root& root) {
  unreserve(root.states.bytes, kMostStates);
  unreserve(root.states.by_rank, root.states.count);
  unreserve(root.marks, root.states.count);
  unreserve(root.progress, root.states.count);
  unreserve(root.facts, root.states.count);
  unreserve(root.waited, root.states.count);
  unreserve(root.cpu_then, root.states.count);
  unreserve(root.insistences, root.states.count);
  unreserve(root.silences, root.wiring->node_count);
  unreserve(root.questions, kMostQuestions);
  unreserve(root.answers, kMostAnswers);
}

void root_finished(Root& root, Round kind, const void* merged, uint32_t bytes, const uint32_t* unanswered,
                   uint32_t count) {
  if (kind == Round::kSummary) note_silence(root, unanswered, count, monotonic_seconds());
  switch (kind) {
    case Round::kSummary:
      if (bytes == sizeof(Summary)) sampled(root, *static_cast<const Summary*>(merged));
      next_round(root);
      break;
    case Round::kStates: states_came(root, merged, bytes); break;
    case Round::kAnswers:
      root.answer_count = bytes / sizeof(Answer) < kMostAnswers ? bytes / sizeof(Answer) : kMostAnswers;
      memcpy(root.answers, merged, root.answer_count * sizeof(Answer));
      // A message may have been in flight when the states were taken, and told when the counters were read. So what is
      // found is judged again with states that are younger than the answers.
      root.confirming = found_by_graph(root, monotonic_seconds(), &root.verdict);
      if (!root.confirming || !monitor_ask(Round::kStates, nullptr, 0)) decide(root);
      break;
    case Round::kNames: names_came(root, static_cast<const NameAnswer*>(merged), bytes / sizeof(NameAnswer)); break;
    case Round::kMismatch:
      if (!mismatch_came(root, merged, bytes)) after_mismatch(root);
      break;
    case Round::kAccounts:
      if (count == 0) accounts_came(root, merged, bytes);
      root.busy = false;
      break;
  }
}

}  // namespace resil::hang
