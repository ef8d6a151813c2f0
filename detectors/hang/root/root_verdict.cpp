// SPDX-License-Identifier: Apache-2.0

#include "detectors/hang/root/root_verdict.h"

#include <initializer_list>

#include "detectors/hang/reader/records.h"
#include "shim/base/hash.h"

namespace resil::hang {

namespace {

constexpr double kStopped = 15, kStopFactor = 3;
constexpr double kStoppedAndWaitedFor = 5;  // all that run wait inside MPI, and nobody is to be ended for it
// Of a node that gives no answer, nobody knows whether its ranks compute: a longer timeout than with those that are
// seen.
constexpr double kSilent = 30, kSilentFactor = 3, kSilentUnlearned = 600;
constexpr double kMayBufferAfter = 12, kInsideAfter = 30, kUnlearnedAfter = 30, kIdleFactor = 3;
constexpr double kSlowest = 50e6;  // bytes a second that a call which copies its data at once copies at least
constexpr double kSwapped = 30;  // seconds of uninterruptible sleep that excuse a rank that uses no processor time
constexpr double kGoneOn = 10;  // seconds that the others may take after the silence began until they wait for it

bool is_culprit(const Verdict& verdict, int32_t rank) {
  for (uint32_t i = 0; i < verdict.culprit_count && i < kMaxCulprits; ++i)
    if (verdict.culprits[i] == rank) return true;
  return false;
}

}  // namespace

uint32_t find_wait_groups(const Root& root, Verdict* verdict, WaitGroup* kinds) {
  uint32_t count = 0;
  for (uint32_t i = 0; i < root.states.count; ++i) {
    const RankState* state = root.states.by_rank[i];
    if (state == nullptr || is_culprit(*verdict, static_cast<int32_t>(i)) ||
        (state->activity != RankActivity::kBlocked && state->activity != RankActivity::kPolling) ||
        state->thread_count == 0)
      continue;
    verdict->add_victim(static_cast<int32_t>(i));
    const Part* part = first_part(*state);
    const bool collective = part != nullptr && part->kind == PartKind::kCollective;
    const WaitGroup wanted = {
        threads_of(*state)[0].call, collective ? part->comm : 0, collective ? part->sequence : 0, {}};
    uint32_t k = 0;
    while (k < count &&
           (kinds[k].call != wanted.call || kinds[k].comm != wanted.comm || kinds[k].sequence != wanted.sequence))
      ++k;
    if (k == kWaitGroups) continue;
    if (k == count) kinds[count++] = wanted;
    kinds[k].ranks.add(static_cast<int32_t>(i));
  }
  return count;
}

Statement& add_wait_group(Verdict* verdict, Message id, const WaitGroup& kind) {
  Statement& made = verdict->add(id, kind.ranks);
  made.call = kind.call;
  made.comm = kind.comm;
  made.n[1] = kind.ranks.total;
  made.n[2] = kind.sequence;
  return made;
}

namespace {

/// The call in which most of the others wait, all such calls as evidence; and all others as victims.
void explain_waiting(const Root& root, Verdict* verdict) {
  WaitGroup kinds[kWaitGroups];
  uint32_t most = 0;
  const uint32_t kind_count = find_wait_groups(root, verdict, kinds);
  for (uint32_t k = 1; k < kind_count; ++k)
    if (kinds[k].ranks.total > kinds[most].ranks.total) most = k;
  auto add = [&](Message id, const WaitGroup& kind) { add_wait_group(verdict, id, kind).n[0] = verdict->victim_count; };
  if (kind_count == 0) return;
  verdict->call = kinds[most].call;
  verdict->comm = kinds[most].comm;
  verdict->sequence = kinds[most].sequence;
  add(kinds[most].ranks.total < verdict->victim_count ? Message::kMostOthersWait : Message::kOthersWait, kinds[most]);
  for (uint32_t k = 0; k < kind_count; ++k) add(Message::kWaitingIn, kinds[k]);
}

void explain_culprits(const Root& root, Verdict* verdict) {
  constexpr uint32_t kMost = 8;
  for (uint32_t i = 0; i < verdict->culprit_count && i < kMost; ++i) {
    Statement& made = verdict->add(Message::kCulprit);
    made.rank = verdict->culprits[i];
    const RankState* state = root.states.by_rank[made.rank];
    made.n[0] = state != nullptr ? state->calls : 0;
    made.n[1] = state != nullptr ? static_cast<unsigned char>(state->kernel_state) : 0;
  }
}

/// A statement about the culprits: the first one's host is named.
Statement& add_about_culprits(Verdict* verdict, Message id, double seconds = 0) {
  Statement& made = verdict->add(id, verdict->culprit_set());
  made.rank = verdict->culprits[0];
  made.seconds[0] = seconds;
  return made;
}

void add_seconds(Verdict* verdict, Message id, double seconds) { verdict->add(id).seconds[0] = seconds; }

uint64_t signature_of(const Root& root, const Verdict& verdict) {
  uint64_t hash = static_cast<uint64_t>(verdict.type) + 1;
  for (uint32_t i = 0; i < verdict.culprit_count && i < kMaxCulprits; ++i) {
    const RankState* state = root.states.by_rank[verdict.culprits[i]];
    hash = hash_combine(hash_combine(hash, static_cast<uint64_t>(verdict.culprits[i])),
                        state != nullptr ? state->calls - state->polls : 0);
  }
  return verdict.culprit_count != 0 ? hash : hash_combine(hash, root.moves);
}

}  // namespace

bool all_answer(const Root& root) {
  for (uint32_t node = 0; node < root.wiring->node_count; ++node)
    if (root.silences[node].since != 0) return false;
  return true;
}

bool computation_verdict(const Root& root, Verdict* verdict) {
  const stats::Verdict& opinion = root.opinion;
  if (opinion.finding != stats::Finding::kVerified || root.summary.moved != 0 || !all_answer(root)) return false;
  uint32_t ranks[kMaxCulprits];
  const stats::FaultySearch::Answer answer = root.faulty.answer(ranks, kMaxCulprits);
  if (answer.result == stats::FaultySearch::Result::kUnfinished ||
      answer.result == stats::FaultySearch::Result::kMostCompute)
    return false;
  if (answer.result == stats::FaultySearch::Result::kFaulty) {
    verdict->begin(HangClass::kComputation, Confidence::kVerified);
    for (uint32_t i = 0; i < answer.count && i < kMaxCulprits; ++i)
      verdict->add_culprit(static_cast<int32_t>(ranks[i]));
    verdict->culprit_count = answer.count;
    add_about_culprits(verdict, Message::kComputing, opinion.quiet);
    add_about_culprits(verdict, Message::kLastCall);
    if (opinion.starved >= 1) add_seconds(verdict, Message::kStarved, opinion.starved);
  } else {
    verdict->begin(HangClass::kInsideMpi, Confidence::kVerified);
    add_seconds(verdict, Message::kNoProgress, opinion.quiet);
    verdict->add(Message::kNotProved);
  }
  explain_waiting(root, verdict);
  add_seconds(verdict, Message::kLongestPause, root.model.record().longest());
  explain_culprits(root, verdict);
  Statement& statistics = verdict->add(Message::kStatistics);
  statistics.n[0] = opinion.observation.suspicions;
  statistics.seconds[2] = opinion.observation.probability;
  verdict->signature = signature_of(root, *verdict);
  return true;
}

namespace {

/// All ranks that run are inside MPI, one at least.
bool others_wait(const Root& root) {
  uint32_t waiting = 0;
  for (uint32_t i = 0; i < root.states.count; ++i) {
    const RankState* state = root.states.by_rank[i];
    if (state == nullptr || state->activity == RankActivity::kComputing || state->activity == RankActivity::kUnknown)
      return false;
    waiting += state->activity == RankActivity::kBlocked || state->activity == RankActivity::kPolling;
  }
  return waiting != 0;
}

}  // namespace

bool stopped_verdict(const Root& root, double now, Verdict* verdict) {
  const double least = others_wait(root) && !root.aborts ? kStoppedAndWaitedFor : kStopped,
               usual = kStopFactor * root.longest_stop, limit = usual > least ? usual : least;
  if (now - root.moved_at < limit || !all_answer(root)) return false;
  verdict->begin(HangClass::kRankStopped, Confidence::kVerified);
  double since = now;
  for (uint32_t i = 0; i < root.states.count; ++i) {
    const Fact& fact = root.facts[i];
    if (fact.said != RankActivity::kStopped || now - fact.since < limit) continue;
    if (root.states.by_rank[i] != nullptr && root.states.by_rank[i]->kernel_state == 't')
      continue;  // somebody is looking at it with a debugger
    verdict->add_culprit(static_cast<int32_t>(i));
    since = fact.since < since ? fact.since : since;
  }
  if (verdict->culprit_count == 0 || verdict->culprit_count >= root.summary.ranks)
    return false;  // all of them: somebody has suspended the job
  add_about_culprits(verdict, Message::kStopped, now - since);
  add_about_culprits(verdict, Message::kDoContinue);
  explain_waiting(root, verdict);
  explain_culprits(root, verdict);
  verdict->signature = signature_of(root, *verdict);
  return true;
}

namespace {

/// Ranks of the nodes that have been silent for `limit` and since about the last progress, into the culprits. Returns
/// the nodes; `longest`: how long.
RankSet find_silent(const Root& root, double now, double limit, Verdict* verdict, double* longest) {
  RankSet nodes = {};
  for (uint32_t node = 0; node < root.wiring->node_count && root.wiring->nodes != nullptr; ++node) {
    const Silence& silence = root.silences[node];
    // Silent long before: its connection was lost, and the job went on.
    const double most = root.learned.longest > kGoneOn ? root.learned.longest : kGoneOn;
    if (!silence.said || now - silence.since < limit || root.moved_at - silence.since > most) continue;
    const NodeEntry& entry = root.wiring->nodes[node];
    for (uint32_t rank = entry.first_rank; rank < entry.first_rank + entry.ranks && rank < root.states.count; ++rank)
      if (root.states.by_rank[rank] == nullptr)  // else of another node: ranks need not be placed one after the other
        verdict->add_culprit(static_cast<int32_t>(rank));
    nodes.add(static_cast<int32_t>(node));
    *longest = now - silence.since > *longest ? now - silence.since : *longest;
  }
  return nodes;
}

}  // namespace

double silent_limit(const Learned& learned) {
  double limit = learned.watched < stats::Watch::kLearned ? kSilentUnlearned : kSilent;
  for (const double usual : {kSilentFactor * learned.longest, learned.limit}) limit = usual > limit ? usual : limit;
  return limit;
}

bool silent_verdict(const Root& root, double now, Verdict* verdict) {
  if (root.silent == 0 || root.summary.moved != 0 || root.summary.ranks == 0 || root.summary.out != 0) return false;
  const double limit = silent_limit(root.learned);
  if (now - root.moved_at < limit) return false;
  verdict->begin(HangClass::kNodeSilent, Confidence::kVerified);
  double longest = 0;
  const RankSet nodes = find_silent(root, now, limit, verdict, &longest);
  if (nodes.total == 0 || 2 * verdict->culprit_count > root.states.count)
    return false;  // more than half: it is this part that is cut off
  Statement& made = verdict->add(Message::kSilent);
  made.others = nodes;
  made.seconds[0] = longest;
  made.seconds[1] = now - root.moved_at;
  explain_waiting(root, verdict);
  add_seconds(verdict, Message::kLongestPause, root.learned.longest);
  verdict->add(Message::kDoSeeNode);
  verdict->signature = signature_of(root, *verdict);
  return true;
}

double may_buffer_after(const Root& root) {
  const double least = root.learned.watched < stats::Watch::kLearned ? kUnlearnedAfter : kMayBufferAfter,
               limit = root.learned.limit;
  return limit > least ? limit : least;
}

double inside_after(const Root& root) {
  const double limit = may_buffer_after(root);
  return limit > kInsideAfter ? limit : kInsideAfter;
}

namespace {

/// What it waits for is known: a wait for a client, for a file or for a window may well use no processor time.
bool is_plain(const RankState* state) {
  if (state == nullptr || state->activity != RankActivity::kBlocked || state->part_count == 0) return false;
  for (uint32_t i = 0; i < state->part_count; ++i)
    if (const Part& part = parts_of(*state)[i];
        (part.flags & kTransfer) != 0 ||
        (part.kind != PartKind::kReceive && part.kind != PartKind::kSend && part.kind != PartKind::kCollective))
      return false;
  return true;
}

}  // namespace

bool cpu_idle_verdict(const Root& root, double now, Verdict* verdict) {
  const double least = may_buffer_after(root), usual = kIdleFactor * root.learned.longest,
               limit = usual > least ? usual : least;
  if (root.summary.moved != 0 || root.summary.out != 0 || !all_answer(root) ||
      root.learned.watched < stats::Watch::kLearned || now - root.moved_at < limit || now - root.blocked_since < limit)
    return false;
  verdict->begin(HangClass::kInsideMpi, Confidence::kVerified);
  verdict->culprit_count = find_cpu_idle(root, now, verdict->culprits);
  for (uint32_t i = 0; i < verdict->culprit_count; ++i) {
    const RankState* state = root.states.by_rank[verdict->culprits[i]];
    if (!is_plain(state) || (state->kernel_state == 'D' && now - root.moved_at < kSwapped)) return false;
  }
  if (verdict->culprit_count == 0) return false;
  add_seconds(verdict, Message::kNoProgress, now - root.moved_at);
  add_about_culprits(verdict, Message::kNoCpuTime);
  add_about_culprits(verdict, Message::kStuckBelow);
  explain_waiting(root, verdict);
  explain_culprits(root, verdict);
  verdict->signature = signature_of(root, *verdict);
  return true;
}

namespace {

/// MPI gives it no other rank to wait for: it starts a transfer (in a synchronisation that has come to nothing it may
/// wait for the target, who then waits as well), or asks whether one is complete.
bool is_local(CallId id) {
  const CallInfo& call = call_info(id);
  const bool message = call.call_class == CallClass::kSend || call.call_class == CallClass::kReceive ||
                       call.call_class == CallClass::kSendReceive ||
                       call.call_class == CallClass::kSendReceiveReplace || call.call_class == CallClass::kCollective;
  return call.call_class == CallClass::kRma || call.call_class == CallClass::kStart ||
         (call.attributes & kCallPoll) != 0 || (message && call.initiation == Initiation::kNonblocking);
}

/// Seconds that this rank has been in such a call, less what its data may take; negative: it is in another.
double in_local_call(const RankState* state) {
  if (state == nullptr || state->activity != RankActivity::kBlocked || state->thread_count != 1) return -1;
  const ThreadWait& wait = threads_of(*state)[0];
  const uint64_t now = realtime_ns();
  if (wait.call >= kCallCount || !is_local(static_cast<CallId>(wait.call)) || wait.entered_ns == 0 ||
      wait.entered_ns > now)
    return -1;
  const Part* part = first_part(*state);
  const double bytes = part != nullptr ? static_cast<double>(part->bytes) : 0;
  return static_cast<double>(now - wait.entered_ns) * 1e-9 - bytes / kSlowest;
}

}  // namespace

bool local_call_verdict(const Root& root, double now, Verdict* verdict) {
  const double least = inside_after(root), usual = kIdleFactor * root.learned.longest,
               limit = usual > least ? usual : least;
  if (root.summary.moved != 0 || root.summary.out != 0 || !all_answer(root) || now - root.moved_at < limit ||
      now - root.blocked_since < limit)
    return false;
  verdict->begin(HangClass::kInsideMpi, Confidence::kVerified);
  for (uint32_t i = 0; i < root.states.count; ++i)
    if (in_local_call(root.states.by_rank[i]) >= limit) verdict->add_culprit(static_cast<int32_t>(i));
  if (verdict->culprit_count == 0 || verdict->culprit_count >= root.summary.ranks) return false;
  const ThreadWait& wait = threads_of(*root.states.by_rank[verdict->culprits[0]])[0];
  add_seconds(verdict, Message::kNoProgress, now - root.moved_at);
  Statement& made = add_about_culprits(verdict, Message::kInLocalCall, now - root.moved_at);
  made.call = wait.call;
  made.wait.site = wait.site;
  explain_waiting(root, verdict);
  verdict->add(Message::kDoCheckArguments);
  explain_culprits(root, verdict);
  verdict->signature = signature_of(root, *verdict);
  return true;
}

bool device_verdict(const Root& root, double now, Verdict* verdict) {
  const double least = inside_after(root), usual = kIdleFactor * root.learned.longest,
               limit = usual > least ? usual : least;
  if (root.summary.moved != 0 || root.summary.out != 0 || !all_answer(root) || now - root.moved_at < limit)
    return false;
  verdict->begin(HangClass::kInsideMpi, Confidence::kVerified);
  for (uint32_t i = 0; i < root.states.count && verdict->culprit_count < kMaxCulprits; ++i) {
    const RankState* state = root.states.by_rank[i];
    if (state != nullptr &&
        (state->device.kind == DeviceWorkKind::kCopyDown || state->device.kind == DeviceWorkKind::kCopyUp) &&
        static_cast<double>(state->device.age_ns) * 1e-9 >= limit)
      verdict->add_culprit(static_cast<int32_t>(i));
  }
  if (verdict->culprit_count == 0) return false;
  add_seconds(verdict, Message::kNoProgress, now - root.moved_at);
  add_about_culprits(verdict, Message::kCopyWaits);
  explain_waiting(root, verdict);
  explain_culprits(root, verdict);
  verdict->signature = signature_of(root, *verdict);
  return true;
}

void add_devices(const Root& root, Verdict* verdict) {
  constexpr uint32_t kMost = 8;
  uint32_t lines = 0;
  for (uint32_t i = 0; i < root.states.count && lines < kMost; ++i) {
    const RankState* state = root.states.by_rank[i];
    if (state == nullptr || state->device.kind == DeviceWorkKind::kNone) continue;
    for (const Message id : {Message::kDevice, Message::kDeviceLine}) {
      if (id == Message::kDevice && lines != 0) continue;
      Statement& made = verdict->add(id);
      made.rank = static_cast<int32_t>(i);
      made.device = state->device;
    }
    ++lines;
  }
}

namespace {

/// Whether what the program did may follow from data that it received.
bool follows_from_data(HangClass type) {
  return type == HangClass::kDeadlock || type == HangClass::kCollectiveMismatch ||
         type == HangClass::kUnmatchedMessage || type == HangClass::kMissingRank;
}

}  // namespace

void add_places(const Root& root, Verdict* verdict) {
  if (root.lazy && follows_from_data(verdict->type)) verdict->add(Message::kLazyChecksums);
  constexpr uint32_t kMost = 8;
  if (root.wiring->nodes == nullptr) return;
  RankSet known = {};
  for (uint32_t i = 0; i < verdict->culprit_count && i < kMaxCulprits && known.total < kMost; ++i) {
    const int32_t rank = verdict->culprits[i];
    if (rank >= 0 && rank < static_cast<int32_t>(root.states.count) && root.states.by_rank[rank] != nullptr)
      known.add(rank);
  }
  if (known.total != 0) verdict->add(Message::kPlaces, known);
}

}  // namespace resil::hang
