// SPDX-License-Identifier: Apache-2.0

#include "detectors/hang/root/ways.h"

#include "detectors/hang/root/hang_log.h"
#include "detectors/hang/root/wait_errors.h"

namespace resil::hang {

namespace {

constexpr uint32_t kMostSources = 8;  ///< nodes that probe what all of them wait for: of many to one a vote at once
constexpr uint32_t kMostLines = 4;
constexpr double kFresh = 30;  ///< seconds after which what a probe has found is old

bool answers(const void* of, uint32_t node) {
  const Root& root = *static_cast<const Root*>(of);
  return root.silences[node].since == 0 && !root.silences[node].left;
}

Statement& fill(Statement& made, const Way& way, const Vote& vote, double now) {
  made.others.add(static_cast<int32_t>(way.from < way.to ? way.from : way.to));
  made.others.add(static_cast<int32_t>(way.from < way.to ? way.to : way.from));
  made.n[0] = way.failures;
  made.n[1] = vote.reach_both;
  made.n[2] = vote.asked;
  made.seconds[0] = now - way.failed_since;
  return made;
}

void line(Root& root, Message id, const Way& way, const Vote& vote, double now) {
  Statement made = statement_of(id);
  fill(made, way, vote, now);
  if (id == Message::kNodeOutOfReach) {
    made.others = {};
    made.others.add(static_cast<int32_t>(vote.reach_to == 0 ? way.to : way.from));
  }
  log_hang("notice", made, names_of(root.names));
}

/// A way is probed from both ends: told once.
bool told_already(const Root& root, const Way& way) {
  const Way* back = probes_way(root.probes, way.to, way.from);
  return way.told || (back != nullptr && back->told);
}

/// What others say of it is known, or nobody is there to ask.
bool is_voted(const Root& root, const Vote& vote) {
  uint32_t voters = 0;
  for (uint32_t node = 0; node < root.probes.nodes; ++node) voters += answers(&root, node) ? 1 : 0;
  return vote.asked != 0 || voters <= 2;
}

void tell_broken(Root& root, Way& way, double now) {
  const Vote vote = probes_vote(root.probes, way);
  if (!is_broken(way) || told_already(root, way) || !is_voted(root, vote)) return;
  way.told = true;
  const Message id = vote.asked == 0                              ? Message::kWayNoVote
                     : vote.reach_both != 0                       ? Message::kWayBrokenLine
                     : vote.reach_to == 0 || vote.reach_from == 0 ? Message::kNodeOutOfReach
                                                                  : Message::kWayNoVote;
  line(root, id, way, vote, now);
}

/// Probed a short while ago; once for both directions.
bool explains(const Root& root, const Way& way, double now) {
  if (!is_broken(way) || now - way.asked_at > kFresh || probes_vote(root.probes, way).reach_both == 0) return false;
  const Way* back = probes_way(root.probes, way.to, way.from);
  return back == nullptr || !is_broken(*back) || way.from < way.to;
}

void add_broken(const Root& root, double now, Verdict* verdict) {
  uint32_t lines = 0;
  for (uint32_t i = 0; i < root.probes.count && lines < kMostLines; ++i) {
    const Way& way = root.probes.ways[i];
    if (!explains(root, way, now)) continue;
    fill(verdict->add(Message::kWayBroken), way, probes_vote(root.probes, way), now);
    if (lines++ == 0) verdict->add(Message::kDoSeeWay);
  }
}

void add_votes(const Root& root, Verdict* verdict) {
  uint32_t lines = 0;
  for (uint32_t node = 0; node < root.probes.nodes && lines < kMostLines; ++node) {
    if (answers(&root, node)) continue;
    uint64_t asked = 0, reach = 0;
    for (uint32_t i = 0; i < root.probes.count; ++i) {
      const Way& way = root.probes.ways[i];
      if (way.to != node || way.reach == Reach::kUnknown) continue;
      ++asked;
      reach += way.reach == Reach::kHost || way.reach == Reach::kReplied ? 1 : 0;
    }
    if (asked == 0) continue;
    Statement& made = verdict->add(reach != 0 ? Message::kHostReached : Message::kHostNotReached);
    made.n[0] = reach;
    made.n[1] = asked;
    ++lines;
  }
}

}  // namespace

void plan_probes(Root& root, double now) {
  if (root.probes.nodes < 2) return;
  WaitError errors[kMostErrors];
  const uint32_t count = find_errors(root, errors, kMostErrors);
  bool due = false;
  for (uint32_t i = 0; i < count; ++i) {
    const WaitError& error = errors[i];
    if (error.responsible < 0) continue;
    uint32_t nodes[kMostSources], node_count = 0;
    for (uint32_t k = 0; k < error.sources.count && node_count < kMostSources; ++k)
      for (int32_t rank = error.sources.ranges[k].first; rank <= error.sources.ranges[k].last; ++rank) {
        const auto node = static_cast<uint32_t>(node_of(root, rank));
        bool known = node == static_cast<uint32_t>(error.responsible);
        for (uint32_t n = 0; n < node_count && !known; ++n) known = nodes[n] == node;
        if (!known && node_count < kMostSources) nodes[node_count++] = node;
      }
    for (uint32_t n = 0; n < node_count; ++n)
      due = probes_want(root.probes, nodes[n], static_cast<uint32_t>(error.responsible), now) || due;
  }
  for (uint32_t i = 0; i < root.probes.count; ++i)  // until it is back
    if (const Way way = root.probes.ways[i]; way.told) due = probes_want(root.probes, way.from, way.to, now) || due;
  if (due) root.probes_due = true;
}

void note_probes(Root& root, const ProbeAnswer* given, uint32_t count, double now) {
  Probes& probes = root.probes;
  for (uint32_t i = 0; i < probes.count; ++i) {
    Way& way = probes.ways[i];
    if (!way.told) continue;
    for (uint32_t k = 0; k < count; ++k)
      if (given[k].from == way.from && given[k].to == way.to && way.asking &&
          (given[k].reach == Reach::kReplied || given[k].reach == Reach::kHost)) {
        way.told = false;
        line(root, Message::kWayBack, way, {}, now);
      }
  }
  probes_came(probes, given, count, now);
  probes_want_votes(probes, answers, &root, now);
  for (uint32_t i = 0; i < probes.count; ++i) tell_broken(root, probes.ways[i], now);
}

void add_ways(const Root& root, Verdict* verdict) {
  if (root.probes.count == 0) return;
  if (verdict->type == HangClass::kInsideMpi || verdict->type == HangClass::kUnknown)
    add_broken(root, root.looked_at, verdict);
  else if (verdict->type == HangClass::kNodeSilent) add_votes(root, verdict);
}

}  // namespace resil::hang
