// SPDX-License-Identifier: Apache-2.0

#include "detectors/hang/root/probes.h"

namespace resil::hang {

namespace {

constexpr double kAgain = 10;  ///< seconds until a way that was fine is probed again
constexpr double kGivenUp = 8;  ///< until a node that does not say what its probe found is not awaited any more
constexpr double kSlack = 1.5;  ///< a probe that is so much older than the question was meant

bool reached(const Way* way) { return way != nullptr && (way->reach == Reach::kReplied || way->reach == Reach::kHost); }

Way* find(Probes& probes, uint32_t from, uint32_t to) {
  for (uint32_t i = 0; i < probes.count; ++i)
    if (probes.ways[i].from == from && probes.ways[i].to == to) return &probes.ways[i];
  return nullptr;
}

/// Room for one more: of those that are fine, the one that was asked first.
Way* add(Probes& probes, uint32_t from, uint32_t to) {
  Way* made = probes.count < kMostWays ? &probes.ways[probes.count++] : nullptr;
  for (uint32_t i = 0; made == nullptr && i < probes.count; ++i)
    if (!probes.ways[i].asking && probes.ways[i].failures == 0) made = &probes.ways[i];
  for (uint32_t i = 0; made != nullptr && i < probes.count; ++i)
    if (Way& way = probes.ways[i]; !way.asking && way.failures == 0 && way.asked_at < made->asked_at) made = &way;
  if (made != nullptr) *made = {from, to, Reach::kUnknown, false, false, 0, -1e9, 0};
  return made;
}

/// A probe younger than `since` will do. True: one begins.
bool want(Probes& probes, uint32_t from, uint32_t to, double now, double since) {
  if (from == to || from >= probes.nodes || to >= probes.nodes) return false;
  Way* way = find(probes, from, to);
  if (way == nullptr) way = add(probes, from, to);
  if (way == nullptr) return false;
  if (way->asking || way->asked_at >= since) return false;
  way->asking = true;
  way->asked_at = now;
  return true;
}

}  // namespace

bool probes_want(Probes& probes, uint32_t from, uint32_t to, double now) {
  const Way* way = find(probes, from, to);
  const bool once_more = way != nullptr && way->failures != 0 && !is_broken(*way);
  const bool fresh = want(probes, from, to, now, once_more ? now : now - kAgain);
  probes.pings += fresh ? 1 : 0;
  return fresh;
}

void probes_want_votes(Probes& probes, bool (*answers)(const void* of, uint32_t node), const void* of, double now) {
  const uint32_t ways = probes.count;
  for (uint32_t i = 0; i < ways; ++i) {
    const Way way = probes.ways[i];
    if (way.failures == 0) continue;
    const double since = way.failed_since > now - kAgain ? way.failed_since : now - kAgain;
    const auto vote = [&](uint32_t from, uint32_t to) { probes.votes += want(probes, from, to, now, since) ? 1 : 0; };
    if (answers(of, way.to)) vote(way.to, way.from);
    // Voters evenly over all nodes, the same ones each time and for both directions.
    const uint32_t first = way.from < way.to ? way.from : way.to;
    const uint32_t others = probes.nodes - 1, step = others > kMostVoters ? others / kMostVoters : 1;
    uint32_t voters = 0;
    for (uint32_t k = 1; k < probes.nodes && voters < kMostVoters; k += step) {
      const uint32_t voter = (first + k) % probes.nodes;
      if (voter == way.to || voter == way.from || !answers(of, voter)) continue;
      ++voters;
      vote(voter, way.from);
      vote(voter, way.to);
    }
  }
}

uint32_t probes_questions(Probes& probes, double now) {
  uint32_t count = 0;
  for (uint32_t i = 0; i < probes.count; ++i) {
    Way& way = probes.ways[i];
    if (way.asking && now - way.asked_at > kGivenUp) way.asking = false;
    if (way.asking) probes.questions[count++] = {way.from, way.to, static_cast<float>(now - way.asked_at + kSlack), 0};
  }
  return count;
}

void probes_came(Probes& probes, const ProbeAnswer* answers, uint32_t count, double now) {
  for (uint32_t i = 0; i < count; ++i) {
    const ProbeAnswer& answer = answers[i];
    Way* way = find(probes, answer.from, answer.to);
    if (way == nullptr || !way->asking || answer.reach == Reach::kAsking || answer.reach > Reach::kNothing) continue;
    way->asking = false;
    if (answer.reach == Reach::kUnknown) continue;
    way->reach = answer.reach;
    if (answer.reach != Reach::kNothing) {
      way->failures = 0;
    } else if (way->failures++ == 0) {
      way->failed_since = way->asked_at < now ? way->asked_at : now;
    }
  }
}

const Way* probes_way(const Probes& probes, uint32_t from, uint32_t to) {
  return find(const_cast<Probes&>(probes), from, to);
}

Vote probes_vote(const Probes& probes, const Way& way) {
  Vote vote = {};
  for (uint32_t i = 0; i < probes.count; ++i) {
    const Way& one = probes.ways[i];
    if (one.to != way.to || one.from == way.from || one.reach == Reach::kUnknown || one.asked_at < way.failed_since)
      continue;
    const Way* other = probes_way(probes, one.from, way.from);
    if (other == nullptr || other->reach == Reach::kUnknown || other->asked_at < way.failed_since) continue;
    ++vote.asked;
    vote.reach_to += reached(&one) ? 1 : 0;
    vote.reach_from += reached(other) ? 1 : 0;
    vote.reach_both += reached(&one) && reached(other) ? 1 : 0;
  }
  return vote;
}

uint32_t answer_probes(Overlay* overlay, uint32_t own, double now, const ProbeQuestion* questions, uint32_t count,
                       ProbeAnswer* answers, uint32_t room) {
  uint32_t made = 0;
  for (uint32_t i = 0; i < count && made < room; ++i) {
    const ProbeQuestion& question = questions[i];
    if (question.from != own || overlay == nullptr) continue;
    Probed found = overlay_probed(overlay, question.to);
    if (found.reach != Reach::kAsking && (found.reach == Reach::kUnknown || now - found.began > question.seconds))
      found = overlay_probe(overlay, question.to, kProbeTimeout) ? overlay_probed(overlay, question.to)
                                                                 : Probed{Reach::kUnknown, 0, 0};
    answers[made++] = {question.from, question.to, found.reach, {}, static_cast<float>(found.seconds)};
  }
  return made;
}

}  // namespace resil::hang
