// SPDX-License-Identifier: Apache-2.0
//
// The communicators that somebody waits on, and who is in them, as far as their members have reported.

#include "detectors/hang/graph/model.h"
#include "shim/base/hash.h"
#include "shim/base/sort.h"

namespace resil::hang::graph {

namespace {

bool on_communicator(const Part& part) {
  return (part.kind <= PartKind::kCollective || part.kind == PartKind::kToken || part.kind == PartKind::kLock) &&
         part.comm != 0;
}

}  // namespace

const Comm* Graph::comm(uint64_t id) const {
  for (size_t i = mix64(id); comm_table_[i & comm_mask_] != 0; ++i)
    if (comms_[comm_table_[i & comm_mask_] - 1].id == id) return &comms_[comm_table_[i & comm_mask_] - 1];
  return nullptr;
}

const Member* Graph::member(const Comm& of, uint32_t rank) const {
  uint32_t low = 0, high = of.count;
  while (low < high) {
    const uint32_t middle = (low + high) / 2;
    if (members_[of.first + middle].rank < rank) low = middle + 1;
    else high = middle;
  }
  return low < of.count && members_[of.first + low].rank == rank ? &members_[of.first + low] : nullptr;
}

uint32_t Graph::late(const Comm& of, uint64_t sequence) const {
  uint32_t low = 0, high = of.count;
  while (low < high) {
    const uint32_t middle = (low + high) / 2;
    if (in_order(of, middle).sequence < sequence) low = middle + 1;
    else high = middle;
  }
  return low;
}

const Part* Graph::freed(uint64_t id, uint32_t rank) const {
  const View& view = views_[rank];
  for (uint32_t i = 0; view.parts != nullptr && i < state(rank).part_count; ++i)
    if (view.parts[i].kind == PartKind::kFreed && view.parts[i].comm == id) return &view.parts[i];
  return nullptr;
}

/// Calls `with(membership, freed)` for all that the rank is in, or has been in (`freed`, else null). Where an MPI
/// library keeps a communicator until its messages are through, the rank is in it and has freed it: then that is what
/// counts.
template <class With>
void Graph::each_membership(uint32_t rank, With with) const {
  const View& view = views_[rank];
  if (view.comms == nullptr) return;
  bool any = false;
  for (uint32_t i = 0; i < state(rank).part_count; ++i) {
    const Part& part = view.parts[i];
    if (part.kind != PartKind::kFreed) continue;
    any = true;
    // The call that frees a communicator is none that others wait for, and sends them nothing. Others are barriers.
    const uint64_t calls = (part.flags & kFreedObject) != 0 || part.sequence == 0 ? part.sequence : part.sequence - 1;
    with({part.comm, calls, part.peer, part.tag, static_cast<int32_t>(part.ordinal), 0}, &part);
  }
  for (uint32_t i = 0; i < state(rank).comm_count; ++i)
    if (!any || freed(view.comms[i].comm, rank) == nullptr) with(view.comms[i], nullptr);
}

bool Graph::read_comms() {
  const size_t entries = power_of_two_above(parts_);
  comm_mask_ = entries - 1;
  comm_table_ = arena_.allocate<uint32_t>(entries);
  comms_ = arena_.allocate<Comm>(parts_);
  if (arena_.failed()) return false;
  for (uint32_t rank = 0; rank < ranks(); ++rank)
    for (uint32_t i = 0; views_[rank].status == RankStatus::kCandidate && i < state(rank).part_count; ++i) {
      const Part& part = views_[rank].parts[i];
      if (!on_communicator(part) || comm(part.comm) != nullptr) continue;
      size_t at = mix64(part.comm);
      while (comm_table_[at & comm_mask_] != 0) ++at;
      Comm& made = comms_[comm_count_];
      made.id = part.comm;
      made.size = -1;
      made.link = made.group = kNone;
      comm_table_[at & comm_mask_] = ++comm_count_;
    }
  // Twice over all memberships: how many, then who.
  uint32_t* last = arena_.allocate<uint32_t>(comm_count_);
  for (int pass = 0; pass < 2 && !arena_.failed(); ++pass) {
    for (uint32_t rank = 0; rank < ranks(); ++rank)
      each_membership(rank, [&](const Membership& membership, const Part* freed) {
        Comm* c = const_cast<Comm*>(comm(membership.comm));
        if (c == nullptr) return;
        uint32_t& seen = last[c - comms_];
        if (pass == 0) {
          const bool same =
              (c->size == membership.size && c->remote_size == membership.remote_size) ||
              (c->remote_size >= 0 && c->size == membership.remote_size && c->remote_size == membership.size);
          c->broken |= (c->size != -1 && !same) || seen == rank + 1 || membership.size <= 0;
          if (c->size == -1) {
            c->size = membership.size;
            c->remote_size = membership.remote_size;
          }
          c->irregular |= state(rank).irregular;
          c->left |= freed != nullptr;
          left_ |= freed != nullptr;
          ++c->count;
        } else {
          members_[c->first + seen] = {rank, membership.rank, calls_made(rank, membership), freed != nullptr,
                                       freed != nullptr && (freed->flags & kUncounted) != 0};
        }
        seen = pass == 0 ? rank + 1 : seen + 1;
      });
    if (pass == 1) break;
    for (uint32_t i = 0; i < comm_count_; ++i) {
      Comm& c = comms_[i];
      c.first = member_count_;
      member_count_ += c.count;
      c.complete = !c.broken && c.count == static_cast<int64_t>(c.size) + (c.remote_size > 0 ? c.remote_size : 0);
      last[i] = 0;
    }
    members_ = arena_.allocate<Member>(member_count_);
  }
  return !arena_.failed() && order_members();
}

/// MPI_Finalize is counted like a collective on MPI_COMM_WORLD, but satisfies nobody who waits in another one.
uint64_t Graph::calls_made(uint32_t rank, const Membership& membership) const {
  const View& view = views_[rank];
  if (view.status == RankStatus::kFinished && membership.comm == input_.world && membership.sequence > 0)
    return membership.sequence - 1;
  for (uint32_t i = 0; view.status == RankStatus::kFinalizing && i < state(rank).part_count; ++i)
    if (const Part& part = view.parts[i]; part.kind == PartKind::kCollective && part.comm == membership.comm &&
                                          part.sequence != 0 && part.sequence <= membership.sequence)
      return part.sequence - 1;
  return membership.sequence;
}

bool Graph::order_members() {
  order_ = arena_.allocate<uint32_t>(member_count_);
  if (arena_.failed()) return false;
  for (uint32_t i = 0; i < comm_count_; ++i) {
    const Comm& c = comms_[i];
    for (uint32_t k = 0; k < c.count; ++k) order_[c.first + k] = c.first + k;
    heap_sort(order_ + c.first, c.count, [this](uint32_t a, uint32_t b) {
      return members_[a].sequence != members_[b].sequence ? members_[a].sequence < members_[b].sequence : a < b;
    });
  }
  return true;
}

}  // namespace resil::hang::graph
