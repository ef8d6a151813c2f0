// SPDX-License-Identifier: Apache-2.0
//
// From states to the set of ranks that can never go on: the least set of nodes that still can is found by signals along
// the arcs (a rank that may act signals those who wait for it); what gets none is deadlocked. Linear in the arcs.

#include "detectors/hang/graph/model.h"

namespace resil::hang::graph {

namespace {

/// The variable part lies inside the record and is consistent in itself.
bool well_formed(const RankState& s, uint32_t rank) {
  if (s.rank != static_cast<int32_t>(rank) || s.thread_count > kMaxThreads || s.part_count > kMaxThreads * kMaxParts)
    return false;
  const uint64_t bytes = sizeof(RankState) + uint64_t{s.thread_count} * sizeof(ThreadWait) +
                         uint64_t{s.part_count} * sizeof(Part) + uint64_t{s.comm_count} * sizeof(Membership);
  if (bytes > s.bytes) return false;
  auto* threads = reinterpret_cast<const ThreadWait*>(&s + 1);
  for (uint32_t i = 0; i < s.thread_count; ++i)
    if (threads[i].first_part > s.part_count || threads[i].part_count > s.part_count - threads[i].first_part)
      return false;
  return true;
}

RankStatus status_of(const RankState& s, bool may_buffer) {
  if (s.activity == RankActivity::kFinished) return RankStatus::kFinished;
  if (s.activity == RankActivity::kGone) return RankStatus::kGone;
  if (s.stable == 0) return RankStatus::kRunnable;
  if (s.in_finalize != 0)  // but attribute callbacks of MPI_COMM_SELF may communicate (MPI 4.0, 11.2.4)
    return s.activity == RankActivity::kBlocked && (may_buffer || (s.irregular & kSelfAttribute) == 0)
               ? RankStatus::kFinalizing
               : RankStatus::kRunnable;
  const bool waits = s.activity == RankActivity::kBlocked || (may_buffer && s.activity == RankActivity::kPolling);
  return waits && s.provable != 0 && s.thread_count > 0 && (s.irregular & kLostThread) == 0 ? RankStatus::kCandidate
                                                                                            : RankStatus::kRunnable;
}

}  // namespace

bool Graph::read_states() {
  views_ = arena_.allocate<View>(ranks());
  if (arena_.failed()) return false;
  for (uint32_t rank = 0; rank < ranks(); ++rank) {
    const RankState* s = input_.states[rank];
    View& v = views_[rank];
    if (s == nullptr || !well_formed(*s, rank)) continue;
    v.threads = reinterpret_cast<const ThreadWait*>(s + 1);
    v.parts = reinterpret_cast<const Part*>(v.threads + s->thread_count);
    v.comms = reinterpret_cast<const Membership*>(v.parts + s->part_count);
    v.status = status_of(*s, may_buffer_);
    if (v.status != RankStatus::kCandidate) continue;
    v.first_thread = threads_;
    v.first_part = parts_;
    v.thread_count = s->thread_count;
    threads_ += s->thread_count;
    parts_ += s->part_count;
  }
  thread_rank_ = arena_.allocate<uint32_t>(threads_);
  any_ = arena_.allocate<uint8_t>(threads_);
  facts_ = arena_.allocate<Fact>(parts_);
  targets_ = arena_.allocate<uint32_t>(parts_);
  if (arena_.failed()) return false;
  for (uint32_t rank = 0; rank < ranks(); ++rank)
    for (uint32_t i = 0; i < views_[rank].thread_count; ++i) thread_rank_[views_[rank].first_thread + i] = rank;
  for (uint32_t i = 0; i < parts_; ++i) targets_[i] = kNone;
  return true;
}

uint32_t Graph::new_link(uint32_t rank, uint32_t before) {
  if (links_ == link_room_) return kNone;
  link_rank_[links_] = rank;
  link_before_[links_] = before;
  return first_link_ + links_++;
}

bool Graph::connect() {
  // Links come before groups in the numbers, and all links are there now.
  first_group_ = first_link_ + links_;
  uint32_t groups = 0, group_members = 0;
  group_comm_ = arena_.allocate<uint32_t>(comm_count_);
  if (arena_.failed()) return false;
  for (uint32_t i = 0; i < comm_count_; ++i)
    if (comms_[i].wild) {
      group_comm_[groups] = i;
      comms_[i].group = first_group_ + groups++;
      group_members += comms_[i].count;
    }
  first_leaver_ = left_ ? first_group_ + groups : kNone;
  nodes_ = first_group_ + groups + (left_ ? ranks() : 0);
  auto settle = [&](uint32_t& node) {
    if (node != kNone && (node & kLeaver) != 0) node = first_leaver_ + (node & ~kLeaver);
  };
  for (uint32_t i = 0; i < parts_; ++i) settle(targets_[i]);
  for (uint32_t i = 0; i < links_; ++i) settle(link_rank_[i]);
  // Wildcards named their communicator while groups had no number yet.
  for (uint32_t rank = 0; rank < ranks(); ++rank) {
    const View& v = views_[rank];
    if (v.status != RankStatus::kCandidate) continue;
    for (uint32_t i = 0; i < input_.states[rank]->part_count; ++i) {
      const Part& part = v.parts[i];
      if (facts_[v.first_part + i] == Fact::kHolds && part.kind <= PartKind::kProbe && part.peer == ring::kAnySource)
        targets_[v.first_part + i] = comm(part.comm)->group;
    }
  }
  free_ = arena_.allocate<uint8_t>(nodes_);
  arc_room_ = size_t{parts_} + threads_ + 2 * size_t{links_} + group_members;
  return !arena_.failed();
}

/// Signals. A node of kind AND (threads that wait for all parts, links) goes on when all its arcs have signalled; of
/// kind OR (ranks: any thread; threads that wait for any part; groups) when one has.
bool Graph::propagate() {
  Edge* edges = arena_.allocate<Edge>(arc_room_);
  uint32_t* needs = arena_.allocate<uint32_t>(nodes_);  // AND: signals still missing; OR: 1
  uint32_t* first = arena_.allocate<uint32_t>(size_t{nodes_} + 2);
  uint32_t* queue = arena_.allocate<uint32_t>(nodes_);
  uint32_t* by_source = arena_.allocate<uint32_t>(arc_room_);
  if (arena_.failed()) return false;
  size_t edge_count = 0, queued = 0;
  auto arc = [&](uint32_t from, uint32_t to) { edges[edge_count++] = {from, to}; };
  auto release = [&](uint32_t node) {
    if (free_[node] == 0) {
      free_[node] = 1;
      queue[queued++] = node;
    }
  };
  for (uint32_t rank = 0; rank < ranks(); ++rank) {
    const View& v = views_[rank];
    if (v.status == RankStatus::kRunnable) release(rank);
    needs[rank] = 1;
    for (uint32_t t = 0; t < v.thread_count; ++t) {
      const ThreadWait& wait = v.threads[t];
      const uint32_t node = ranks() + v.first_thread + t;
      const bool all = any_[v.first_thread + t] == 0;
      uint32_t unmet = 0;
      bool any_met = wait.part_count == 0 || wait.truncated != 0;
      arc(node, rank);
      for (uint32_t i = wait.first_part; i < wait.first_part + wait.part_count; ++i) {
        const Fact fact = facts_[v.first_part + i];
        const bool met = fact == Fact::kOpen || fact == Fact::kDone;
        unmet += met ? 0 : 1;
        any_met |= met;
        if (fact == Fact::kHolds) arc(targets_[v.first_part + i], node);
      }
      needs[node] = all ? unmet : 1;
      if (all ? unmet == 0 : any_met) release(node);
    }
  }
  for (uint32_t i = 0; i < links_; ++i) {
    arc(link_rank_[i], first_link_ + i);
    needs[first_link_ + i] = 1;
    if (link_before_[i] != kNone) {
      arc(link_before_[i], first_link_ + i);
      needs[first_link_ + i] = 2;
    }
  }
  for (uint32_t node = first_group_; node < nodes_ && !is_leaver(node); ++node) {
    const Comm& c = comms_[group_comm_[node - first_group_]];
    needs[node] = 1;
    for (uint32_t i = 0; i < c.count; ++i)
      if (!members_[c.first + i].freed) arc(members_[c.first + i].rank, node);
  }
  for (size_t i = 0; i < edge_count; ++i) ++first[edges[i].from + 2];
  for (size_t node = 0; node < nodes_; ++node) first[node + 1] += first[node];
  for (size_t i = 0; i < edge_count; ++i) by_source[first[edges[i].from + 1]++] = edges[i].to;
  for (size_t at = 0; at < queued; ++at)
    for (uint32_t i = first[queue[at]]; i < first[queue[at] + 1]; ++i) {
      const uint32_t node = by_source[i];
      if (needs[node] != 0 && --needs[node] == 0) release(node);
    }
  return true;
}

bool Graph::solve(const Question* questions, uint32_t question_count, const Answer* answers, uint32_t answer_count) {
  if (!(read_states() && read_comms() && read_holds() &&
        tallies_.open(arena_, questions, question_count, answers, answer_count) && judge_parts() && make_links()))
    return false;
  settle_may_buffer();
  return connect() && propagate();
}

}  // namespace resil::hang::graph
