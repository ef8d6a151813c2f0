// SPDX-License-Identifier: Apache-2.0
//
// Waits in collectives as chains of links, and what becomes of waits that MPI does not demand.

#include "detectors/hang/graph/model.h"
#include "shim/base/sort.h"

namespace resil::hang::graph {

bool Graph::make_links() {
  // Chains of links; twice the room where waits for lower ranks need chains of their own.
  first_link_ = ranks() + threads_;
  link_room_ = member_count_;
  if (lower_) link_room_ += 4 * member_count_ + 65536;
  link_room_ += shared_locks_;
  link_rank_ = arena_.allocate<uint32_t>(link_room_);
  link_before_ = arena_.allocate<uint32_t>(link_room_);
  if (arena_.failed()) return false;
  for (uint32_t i = 0; i < comm_count_; ++i) {
    Comm& c = comms_[i];
    uint32_t before = kNone;
    for (uint32_t k = 0; c.chained && k < c.count; ++k) {
      before = new_link(actor(in_order(c, k)), before);
      if (k == 0) c.link = before;
    }
  }
  for (uint32_t rank = 0; rank < ranks(); ++rank) {
    const View& v = views_[rank];
    for (uint32_t i = 0; v.status == RankStatus::kCandidate && i < state(rank).part_count; ++i)
      if (v.parts[i].kind == PartKind::kCollective && facts_[v.first_part + i] == Fact::kHolds &&
          (v.parts[i].flags & kRootOnly) == 0)
        targets_[v.first_part + i] += comm(v.parts[i].comm)->link;
  }
  if (lower_ && !link_lower()) return false;
  if (shared_locks_ != 0) link_holders();
  return true;
}

/// A lock that several hold: all of them must let go. As long as there is room; a wait without a chain stays open.
void Graph::link_holders() {
  for (uint32_t rank = 0; rank < ranks(); ++rank) {
    const View& v = views_[rank];
    for (uint32_t i = 0; v.status == RankStatus::kCandidate && i < state(rank).part_count; ++i) {
      const Part& part = v.parts[i];
      uint32_t holders = 0;
      if (part.kind != PartKind::kLock || facts_[v.first_part + i] != Fact::kOpen ||
          ((part.flags & kMayBuffer) != 0 && !may_buffer_) || (state(rank).irregular & kLostWindow) != 0 ||
          comm(part.comm) == nullptr || comm(part.comm)->broken || member(*comm(part.comm), rank) == nullptr ||
          each_holder(rank, part, [&](uint32_t) { ++holders; }) || holders < 2 || link_room_ - links_ < holders)
        continue;
      uint32_t link = kNone;
      each_holder(rank, part, [&](uint32_t holder) { link = new_link(holder, link); });
      facts_[v.first_part + i] = Fact::kHolds;
      targets_[v.first_part + i] = link;
    }
  }
}

/// Whether MPI demands that the call waits for this part.
bool Graph::may_return(const Part& part) const {
  const Comm* c = part.kind == PartKind::kCollective ? comm(part.comm) : nullptr;
  return (part.flags & kMayBuffer) != 0 || (c != nullptr && c->remote_size >= 0 && (part.flags & kRootOnly) == 0);
}

/// Whether the sender of that message does in MPI whatever its data needs to arrive: it waits for messages or
/// collectives, or has nothing left to do. One that computes may let its data wait, and so may one that reads a file.
bool Graph::delivers(const Part& part) const {
  if (part.kind != PartKind::kReceive || part.peer < 0 || static_cast<uint32_t>(part.peer) >= ranks()) return false;
  const View& sender = view(static_cast<uint32_t>(part.peer));
  if (sender.status == RankStatus::kFinalizing || sender.status == RankStatus::kFinished) return true;
  if (sender.status != RankStatus::kCandidate) return false;
  const RankState& its = state(static_cast<uint32_t>(part.peer));
  for (uint32_t i = 0; i < its.part_count; ++i)
    if (const Part& other = sender.parts[i];
        (other.flags & kTransfer) != 0 || (other.kind > PartKind::kSend && other.kind != PartKind::kCollective))
      return false;
  return its.part_count != 0 && its.activity == RankActivity::kBlocked;
}

/// After a long timeout, parts that MPI need not wait for count only where nothing else can explain the wait: not
/// beside parts that it must wait for (even if these should be done: then MPI may be the reason, unless that is assumed
/// away); and of several, nobody knows which one it is, so that each of them must be in vain.
void Graph::settle_may_buffer() {
  for (uint32_t thread = 0; thread < threads_; ++thread) {
    const View& v = views_[thread_rank_[thread]];
    const ThreadWait& wait = v.threads[thread - v.first_thread];
    any_[thread] = wait.kind == WaitKind::kAny;
    if (any_[thread] != 0 || !may_buffer_) continue;
    uint32_t permitted = 0, aside = 0;
    bool sends = assumed_ == Assumed::kDoneArrived;  // and nothing else is permitted to return early
    for (uint32_t i = wait.first_part; i < wait.first_part + wait.part_count; ++i)
      sends &= v.parts[i].kind == PartKind::kSend || !may_return(v.parts[i]);
    auto is_aside = [&](uint32_t i) {
      const Part& part = v.parts[i];
      const Fact fact = facts_[v.first_part + i];
      return ((part.flags & kOneSource) != 0 && fact != Fact::kHolds) ||
             (sends && fact == Fact::kDone && !may_return(part) && delivers(part));
    };
    for (uint32_t i = wait.first_part; i < wait.first_part + wait.part_count; ++i) {
      permitted += may_return(v.parts[i]) ? 1 : 0;
      aside += is_aside(i) ? 1 : 0;
    }
    any_[thread] = permitted == wait.part_count || (permitted != 0 && permitted + aside == wait.part_count);
    for (uint32_t i = wait.first_part; any_[thread] != 0 && aside != 0 && i < wait.first_part + wait.part_count; ++i)
      if (is_aside(i) && (sends || facts_[v.first_part + i] != Fact::kDone)) facts_[v.first_part + i] = Fact::kAside;
    // For questions small sends stay: what is known of them counts once the receives beside them are known to be done.
    for (uint32_t i = wait.first_part; any_[thread] == 0 && permitted != 0 && i < wait.first_part + wait.part_count;
         ++i)
      if (may_return(v.parts[i]) && !(hopeful_ && v.parts[i].kind == PartKind::kSend)) {
        facts_[v.first_part + i] = Fact::kOpen;
        targets_[v.first_part + i] = kNone;
      }
  }
}

/// MPI_Scan and the like: a chain for each wave of the members that are late, in the order of their ranks in the
/// communicator. As long as there is room; a wait without a chain stays open.
bool Graph::link_lower() {
  struct Lower {
    const Comm* comm;
    uint64_t sequence;
    int32_t comm_rank;
    uint32_t part;  // in facts
  };
  Lower* waits = arena_.allocate<Lower>(parts_);
  Member* late_ones = arena_.allocate<Member>(member_count_);
  if (arena_.failed()) return false;
  uint32_t count = 0;
  for (uint32_t rank = 0; rank < ranks(); ++rank) {
    const View& v = views_[rank];
    for (uint32_t i = 0; v.status == RankStatus::kCandidate && i < state(rank).part_count; ++i) {
      const Part& part = v.parts[i];
      const Comm* c = part.kind == PartKind::kCollective && (part.flags & kLowerOnly) != 0 ? comm(part.comm) : nullptr;
      const Member* me =
          c != nullptr && !c->broken && ((part.flags & kMayBuffer) == 0 || may_buffer_) ? member(*c, rank) : nullptr;
      if (me != nullptr && c->remote_size < 0 && facts_[v.first_part + i] == Fact::kOpen && part.sequence != 0 &&
          me->sequence >= part.sequence && (c->irregular & kUnknownOrder) == 0)
        waits[count++] = {c, part.sequence, me->comm_rank, v.first_part + i};
    }
  }
  heap_sort(waits, count, [](const Lower& a, const Lower& b) {
    return a.comm != b.comm           ? a.comm < b.comm
           : a.sequence != b.sequence ? a.sequence < b.sequence
                                      : a.comm_rank < b.comm_rank;
  });
  uint64_t work = 16 * uint64_t{member_count_} + 65536;
  for (uint32_t i = 0; i < count;) {
    const Comm& c = *waits[i].comm;
    const uint64_t sequence = waits[i].sequence;
    const uint32_t late_count = late(c, sequence);
    if (late_count > work)
      break;  // different waves by the thousand: an error, surely, but this is not the way to tell it
    work -= late_count;
    for (uint32_t k = 0; k < late_count; ++k) late_ones[k] = in_order(c, k);
    heap_sort(late_ones, late_count, [](const Member& a, const Member& b) { return a.comm_rank < b.comm_rank; });
    uint32_t link = kNone, linked = 0;
    for (; i < count && waits[i].comm == &c && waits[i].sequence == sequence; ++i) {
      for (; linked < late_count && late_ones[linked].comm_rank < waits[i].comm_rank && links_ < link_room_; ++linked)
        link = new_link(actor(late_ones[linked]), link);
      if (link != kNone) {
        facts_[waits[i].part] = Fact::kHolds;
        targets_[waits[i].part] = link;
      }
    }
  }
  return true;
}

}  // namespace resil::hang::graph
