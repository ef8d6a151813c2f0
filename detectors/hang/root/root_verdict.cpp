// SPDX-License-Identifier: Apache-2.0

#include "detectors/hang/root/root_verdict.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <initializer_list>

#include "detectors/hang/root/publish.h"
#include "shim/base/hash.h"

namespace resil::hang {

namespace {

constexpr double kStopped = 15, kStopFactor = 3;
// Of a node that gives no answer, nobody knows whether its ranks compute: more patience than with those that are seen.
constexpr double kSilent = 30, kSilentFactor = 3, kSilentUnlearned = 600;
constexpr double kLenientAfter = 12, kInsideAfter = 30, kUnlearnedAfter = 30, kIdleFactor = 3;
constexpr double kSwapped = 30;  // seconds of uninterruptible sleep that excuse a rank that uses no processor time
constexpr double kGoneOn = 10;  // seconds that the others may take after the silence began until they wait for it

void append(char* text, size_t bytes, const char* format, ...) __attribute__((format(printf, 3, 4)));
void append(char* text, size_t bytes, const char* format, ...) {
  const size_t used = strlen(text);
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text + used, bytes - used, format, arguments);
  va_end(arguments);
}

void add_victim(Verdict* verdict, int32_t rank) {
  if (verdict->victim_count < kMaxVictims) verdict->victims[verdict->victim_count] = rank;
  ++verdict->victim_count;
}

bool is_culprit(const Verdict& verdict, int32_t rank) {
  for (uint32_t i = 0; i < verdict.culprit_count && i < kMaxCulprits; ++i)
    if (verdict.culprits[i] == rank) return true;
  return false;
}

/// The call in which most of the others wait, as a sentence; and all others as victims.
void describe_waiting(Root& root, const Names& names, Verdict* verdict) {
  struct Kind {
    uint16_t call;
    uint64_t comm, sequence;
    uint32_t count;
    int32_t ranks[kMaxVictims];
  };
  static Kind kinds[8];  // one thread
  uint32_t kind_count = 0;
  for (uint32_t i = 0; i < root.states.count; ++i) {
    const RankState* state = root.states.by_rank[i];
    if (state == nullptr || is_culprit(*verdict, static_cast<int32_t>(i)) ||
        (state->activity != RankActivity::kBlocked && state->activity != RankActivity::kPolling) ||
        state->thread_count == 0)
      continue;
    add_victim(verdict, static_cast<int32_t>(i));
    const ThreadWait& wait = threads_of(*state)[0];
    const Part* part = first_part(*state);
    const bool collective = part != nullptr && part->kind == PartKind::kCollective;
    const Kind wanted = {wait.call, collective ? part->comm : 0, collective ? part->sequence : 0, 0, {}};
    uint32_t k = 0;
    while (k < kind_count &&
           (kinds[k].call != wanted.call || kinds[k].comm != wanted.comm || kinds[k].sequence != wanted.sequence))
      ++k;
    if (k == kind_count) {
      if (kind_count == 8) continue;
      kinds[kind_count++] = wanted;
    }
    if (kinds[k].count < kMaxVictims) kinds[k].ranks[kinds[k].count] = static_cast<int32_t>(i);
    ++kinds[k].count;
  }
  uint32_t most = 0;
  for (uint32_t k = 0; k < kind_count; ++k) {
    char ranges[256];
    rank_ranges(kinds[k].ranks, kinds[k].count < kMaxVictims ? kinds[k].count : kMaxVictims, kinds[k].count, ranges,
                sizeof(ranges));
    if (kinds[k].comm != 0)
      append(verdict->evidence, sizeof(verdict->evidence), "waiting: rank%s %s in %s, collective %llu on %s\n",
             kinds[k].count == 1 ? "" : "s", ranges, names.call(names.self, kinds[k].call),
             static_cast<unsigned long long>(kinds[k].sequence), names.comm(names.self, kinds[k].comm));
    else
      append(verdict->evidence, sizeof(verdict->evidence), "waiting: rank%s %s in %s\n", kinds[k].count == 1 ? "" : "s",
             ranges, names.call(names.self, kinds[k].call));
    if (kinds[k].count > kinds[most].count) most = k;
  }
  if (kind_count == 0) return;
  verdict->call = kinds[most].call;
  verdict->comm = kinds[most].comm;
  verdict->sequence = kinds[most].sequence;
  char most_of_them[24] = "";
  if (kinds[most].count < verdict->victim_count)
    snprintf(most_of_them, sizeof(most_of_them), ", %u of them", kinds[most].count);
  append(verdict->message, sizeof(verdict->message), " %u other rank%s%s in %s", verdict->victim_count,
         verdict->victim_count == 1 ? " waits" : "s wait", most_of_them, names.call(names.self, kinds[most].call));
  if (kinds[most].comm != 0)
    append(verdict->message, sizeof(verdict->message), " (collective %llu on %s)",
           static_cast<unsigned long long>(kinds[most].sequence), names.comm(names.self, kinds[most].comm));
  append(verdict->message, sizeof(verdict->message), ".");
}

void describe_culprits(Root& root, Verdict* verdict) {
  for (uint32_t i = 0; i < verdict->culprit_count && i < kMaxCulprits && i < 8; ++i) {
    const int32_t rank = verdict->culprits[i];
    const RankState* state = root.states.by_rank[rank];
    append(verdict->evidence, sizeof(verdict->evidence),
           "rank %d: on %s; last call %s; %llu calls so far; kernel state %c\n", rank,
           name_of(root, rank, NameKind::kHost, 0), name_of(root, rank, NameKind::kLast, 0),
           static_cast<unsigned long long>(state != nullptr ? state->calls : 0),
           state != nullptr && state->kernel_state != 0 ? state->kernel_state : '?');
  }
}

void begin(Verdict* verdict, HangClass type) {
  memset(verdict, 0, sizeof(*verdict));
  verdict->type = type;
  verdict->confidence = Confidence::kVerified;
  verdict->call = static_cast<uint16_t>(~0u);
}

uint64_t signature_of(const Root& root, const Verdict& verdict) {
  uint64_t hash = static_cast<uint64_t>(verdict.type) + 1;
  for (uint32_t i = 0; i < verdict.culprit_count && i < kMaxCulprits; ++i) {
    const RankState* state = root.states.by_rank[verdict.culprits[i]];
    hash = hash_combine(hash_combine(hash, static_cast<uint64_t>(verdict.culprits[i])),
                        state != nullptr ? state->calls - state->polls : 0);
  }
  return verdict.culprit_count != 0 ? hash : hash_combine(hash, root.moves);
}

/// Whether every node that has not left was in the last summary: ranks that nobody sees may make progress.
bool all_answer(const Root& root) {
  for (uint32_t node = 0; node < root.wiring->node_count; ++node)
    if (root.silences[node].since != 0) return false;
  return true;
}

}  // namespace

bool computation_verdict(Root& root, double, const Names& names, Verdict* verdict) {
  const stats::Verdict& opinion = root.opinion;
  if (opinion.finding != stats::Finding::kVerified || root.summary.moved != 0 || !all_answer(root)) return false;
  begin(verdict, HangClass::kComputation);
  uint32_t ranks[kMaxCulprits];
  const stats::FaultySearch::Answer answer = root.faulty.answer(ranks, kMaxCulprits);
  if (answer.result == stats::FaultySearch::Result::kUnfinished ||
      answer.result == stats::FaultySearch::Result::kMostCompute)
    return false;
  if (answer.result == stats::FaultySearch::Result::kFaulty) {
    for (uint32_t i = 0; i < answer.count && i < kMaxCulprits; ++i)
      verdict->culprits[i] = static_cast<int32_t>(ranks[i]);
    verdict->culprit_count = answer.count;
    char ranges[256];
    rank_ranges(verdict->culprits, answer.count < kMaxCulprits ? answer.count : kMaxCulprits, answer.count, ranges,
                sizeof(ranges));
    append(verdict->message, sizeof(verdict->message),
           "Rank%s %s (%s) %s not come back from %s own code for %.1f s, after %s.", answer.count == 1 ? "" : "s",
           ranges, name_of(root, verdict->culprits[0], NameKind::kHost, 0), answer.count == 1 ? "has" : "have",
           answer.count == 1 ? "its" : "their", opinion.quiet, name_of(root, verdict->culprits[0], NameKind::kLast, 0));
    if (opinion.starved >= 1)
      append(verdict->message, sizeof(verdict->message), " Not counted: %.1f s of waiting for a CPU.", opinion.starved);
  } else {
    verdict->type = HangClass::kInsideMpi;
    append(verdict->message, sizeof(verdict->message),
           "No rank has made progress for %.1f s; every rank is inside MPI, and no set of calls was proved to wait for "
           "itself:"
           " the library or the network may have stopped.",
           opinion.quiet);
  }
  describe_waiting(root, names, verdict);
  append(verdict->message, sizeof(verdict->message), " The longest time without any progress before was %.1f s.",
         root.model.record().longest());
  describe_culprits(root, verdict);
  append(verdict->evidence, sizeof(verdict->evidence), "statistics: %u low samples of S_out in a row, chance %.2g\n",
         opinion.observation.suspicions, opinion.observation.probability);
  verdict->signature = signature_of(root, *verdict);
  return true;
}

bool stopped_verdict(Root& root, double now, const Names& names, Verdict* verdict) {
  const double limit = kStopFactor * root.longest_stop > kStopped ? kStopFactor * root.longest_stop : kStopped;
  if (now - root.moved_at < limit || !all_answer(root)) return false;
  begin(verdict, HangClass::kRankStopped);
  double since = now;
  for (uint32_t i = 0; i < root.states.count; ++i) {
    const Fact& fact = root.facts[i];
    if (fact.said != RankActivity::kStopped || now - fact.since < limit) continue;
    if (root.states.by_rank[i] != nullptr && root.states.by_rank[i]->kernel_state == 't')
      continue;  // somebody is looking at it with a debugger
    if (verdict->culprit_count < kMaxCulprits) verdict->culprits[verdict->culprit_count] = static_cast<int32_t>(i);
    ++verdict->culprit_count;
    since = fact.since < since ? fact.since : since;
  }
  if (verdict->culprit_count == 0 || verdict->culprit_count >= root.summary.ranks)
    return false;  // all of them: somebody has suspended the job
  char ranges[256];
  rank_ranges(verdict->culprits, verdict->culprit_count < kMaxCulprits ? verdict->culprit_count : kMaxCulprits,
              verdict->culprit_count, ranges, sizeof(ranges));
  append(verdict->message, sizeof(verdict->message),
         "Rank%s %s (%s) %s been stopped by a signal for %.1f s, and no other rank has made progress since.",
         verdict->culprit_count == 1 ? "" : "s", ranges, name_of(root, verdict->culprits[0], NameKind::kHost, 0),
         verdict->culprit_count == 1 ? "has" : "have", now - since);
  describe_waiting(root, names, verdict);
  append(verdict->message, sizeof(verdict->message), " kill -CONT lets it go on.");
  describe_culprits(root, verdict);
  verdict->signature = signature_of(root, *verdict);
  return true;
}

namespace {

/// Ranks of the nodes that have been silent for `limit` and since about the last progress, into the culprits; the nodes
/// by name. Returns how many nodes.
uint32_t find_silent(const Root& root, double now, double limit, Verdict* verdict, char* text, size_t bytes,
                     double* longest) {
  uint32_t nodes = 0;
  for (uint32_t node = 0; node < root.wiring->node_count && root.wiring->nodes != nullptr; ++node) {
    const Silence& silence = root.silences[node];
    // Silent long before: its connection was lost, and the job went on.
    const double most = root.learned.longest > kGoneOn ? root.learned.longest : kGoneOn;
    if (!silence.said || now - silence.since < limit || root.moved_at - silence.since > most) continue;
    const NodeEntry& entry = root.wiring->nodes[node];
    for (uint32_t rank = entry.first_rank; rank < entry.first_rank + entry.ranks && rank < root.states.count; ++rank) {
      if (root.states.by_rank[rank] != nullptr)
        continue;  // of another node: ranks need not be placed one after the other
      if (verdict->culprit_count < kMaxCulprits) verdict->culprits[verdict->culprit_count] = static_cast<int32_t>(rank);
      ++verdict->culprit_count;
    }
    char name[96];
    describe_node(root, node, name, sizeof(name));
    if (nodes < 4) append(text, bytes, "%s%s", nodes == 0 ? "" : ", ", name);
    ++nodes;
    *longest = now - silence.since > *longest ? now - silence.since : *longest;
  }
  if (nodes > 4) append(text, bytes, " and %u more", nodes - 4);
  return nodes;
}

}  // namespace

double silent_limit(const Learned& learned) {
  double limit = learned.watched < stats::Watch::kLearned ? kSilentUnlearned : kSilent;
  for (const double usual : {kSilentFactor * learned.longest, learned.limit}) limit = usual > limit ? usual : limit;
  return limit;
}

bool silent_verdict(Root& root, double now, const Names& names, Verdict* verdict) {
  if (root.silent == 0 || root.summary.moved != 0 || root.summary.ranks == 0 || root.summary.out != 0) return false;
  const double limit = silent_limit(root.learned);
  if (now - root.moved_at < limit) return false;
  begin(verdict, HangClass::kNodeSilent);
  char nodes[512] = "";
  double longest = 0;
  const uint32_t count = find_silent(root, now, limit, verdict, nodes, sizeof(nodes), &longest);
  if (count == 0 || 2 * verdict->culprit_count > root.states.count)
    return false;  // more than half: it is this part that is cut off
  append(verdict->message, sizeof(verdict->message),
         "%c%s %s given no answer for %.1f s: stopped, gone or cut off. All other ranks wait, and none of them has "
         "made progress for %.1f s.",
         nodes[0] - 'a' + 'A', nodes + 1, count == 1 ? "has" : "have", longest, now - root.moved_at);
  describe_waiting(root, names, verdict);
  append(verdict->message, sizeof(verdict->message), " The longest time without any progress before was %.1f s.",
         root.learned.longest);
  verdict->signature = signature_of(root, *verdict);
  return true;
}

double lenient_after(const Root& root) {
  const double least = root.learned.watched < stats::Watch::kLearned ? kUnlearnedAfter : kLenientAfter,
               limit = root.learned.limit;
  return limit > least ? limit : least;
}

double inside_after(const Root& root) {
  const double limit = lenient_after(root);
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

bool idle_verdict(Root& root, double now, const Names& names, Verdict* verdict) {
  const double least = lenient_after(root), usual = kIdleFactor * root.learned.longest,
               limit = usual > least ? usual : least;
  if (root.summary.moved != 0 || root.summary.out != 0 || !all_answer(root) ||
      root.learned.watched < stats::Watch::kLearned || now - root.moved_at < limit || now - root.blocked_since < limit)
    return false;
  begin(verdict, HangClass::kInsideMpi);
  verdict->culprit_count = find_idle(root, now, verdict->culprits);
  for (uint32_t i = 0; i < verdict->culprit_count; ++i) {
    const RankState* state = root.states.by_rank[verdict->culprits[i]];
    if (!is_plain(state) || (state->kernel_state == 'D' && now - root.moved_at < kSwapped)) return false;
  }
  if (verdict->culprit_count == 0) return false;
  char ranges[256];
  rank_ranges(verdict->culprits, verdict->culprit_count, verdict->culprit_count, ranges, sizeof(ranges));
  const bool one = verdict->culprit_count == 1;
  append(verdict->message, sizeof(verdict->message),
         "All ranks are inside MPI and none has made progress for %.1f s. Rank%s %s (%s) %s no processor time in %s "
         "call, while all"
         " others that wait do: stuck in a system call, a lock or a driver, below MPI.",
         now - root.moved_at, one ? "" : "s", ranges, name_of(root, verdict->culprits[0], NameKind::kHost, 0),
         one ? "uses" : "use", one ? "its" : "their");
  describe_waiting(root, names, verdict);
  describe_culprits(root, verdict);
  verdict->signature = signature_of(root, *verdict);
  return true;
}

bool device_verdict(Root& root, double now, const Names& names, Verdict* verdict) {
  const double least = inside_after(root), usual = kIdleFactor * root.learned.longest,
               limit = usual > least ? usual : least;
  if (root.summary.moved != 0 || root.summary.out != 0 || !all_answer(root) || now - root.moved_at < limit)
    return false;
  begin(verdict, HangClass::kInsideMpi);
  for (uint32_t i = 0; i < root.states.count && verdict->culprit_count < kMaxCulprits; ++i) {
    const RankState* state = root.states.by_rank[i];
    if (state != nullptr &&
        (state->device.kind == DeviceWorkKind::kCopyDown || state->device.kind == DeviceWorkKind::kCopyUp) &&
        static_cast<double>(state->device.age_ns) * 1e-9 >= limit)
      verdict->culprits[verdict->culprit_count++] = static_cast<int32_t>(i);
  }
  if (verdict->culprit_count == 0) return false;
  char ranges[256];
  rank_ranges(verdict->culprits, verdict->culprit_count, verdict->culprit_count, ranges, sizeof(ranges));
  append(verdict->message, sizeof(verdict->message),
         "All ranks are inside MPI and none has made progress for %.1f s. Rank%s %s (%s) %s for a copy between device "
         "and host memory.",
         now - root.moved_at, verdict->culprit_count == 1 ? "" : "s", ranges,
         name_of(root, verdict->culprits[0], NameKind::kHost, 0), verdict->culprit_count == 1 ? "waits" : "wait");
  describe_waiting(root, names, verdict);
  describe_culprits(root, verdict);
  verdict->signature = signature_of(root, *verdict);
  return true;
}

}  // namespace resil::hang
