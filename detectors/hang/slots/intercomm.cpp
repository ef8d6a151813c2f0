// SPDX-License-Identifier: Apache-2.0
//
// The writing side of what two groups do together: whom a collective call on an intercommunicator waits for (MPI 4.0,
// 6.2.2 and the paragraphs on intercommunicators: each group waits for the other one, never for its own), and the two
// leaders of MPI_Intercomm_create, who tell each other of their groups. Likewise the members of a group, in
// MPI_Comm_create_group: its tag is part of what must be the same.

#include "detectors/hang/slots/writer_internal.h"

namespace resil::hang {

namespace {

constexpr int kMostMembers = 48;  // of a group whose members are counted
static_assert(kMostMembers < static_cast<int>(kWaitedKeys));

void list(Wait& wait, int32_t rank, uint32_t value) {
  if (rank < 0) return;
  if (wait.kept + 1 < kWaitedKeys) wait.keys[++wait.kept] = uint64_t{static_cast<uint32_t>(rank)} << 32 | value;
  ++wait.count;
}

enum class Awaited : uint8_t { kNobody, kRoot, kAll };

/// Awaited MPI demands that this rank waits for: those whose data it gets.
Awaited awaited(Event& e, Pattern pattern) {
  switch (pattern) {
    case Pattern::kBarrier:
    case Pattern::kCreate: return Awaited::kAll;
    case Pattern::kBcast:
    case Pattern::kScatter:
    case Pattern::kGather:
    case Pattern::kReduce:
    case Pattern::kAllreduce:
    case Pattern::kReduceScatterBlock:
    case Pattern::kAllgather:
    case Pattern::kAlltoall: {
      const Transfer got = received(e, members_of(*e.comm), backend->is_in_place);
      if (!got.any() || got.count <= 0 || type_size(*e.thread, got.type) == 0) return Awaited::kNobody;
      return got.partner == Partner::kRank ? Awaited::kRoot : Awaited::kAll;
    }
    default: return Awaited::kNobody;
  }
}

}  // namespace

void list_remote(Event& e, Pattern pattern, Wait& wait) {
  wait.count = wait.kept = 0;
  const Awaited whom = awaited(e, pattern);
  if (whom == Awaited::kRoot) return list(wait, world_of(e.comm, e.peer), kSyncStrict);
  for (int32_t rank = 0;
       whom == Awaited::kAll && rank < e.comm->remote_size && rank < static_cast<int32_t>(kWaitedKeys); ++rank)
    list(wait, world_of(e.comm, rank), kSyncStrict);
}

void leader_enter(Event& e, Wait& wait) {
  wait.count = wait.kept = 0;
  wait.keys[0] = 0;
  // Only the leader's arguments about the other group count.
  if (e.comm == nullptr || e.local_leader != e.comm->rank) return;
  CommInfo* between = comm_lookup(*e.thread, e.peer_comm);
  const int32_t other = between != nullptr ? world_of(between, e.remote_leader) : kUnknownRank;
  if (other < 0 || !can_be_counted(between) || e.tag < 0 || e.tag >= kMostTokenTag) return set_irregular(kLostWindow);
  Envelope* envelope = envelope_of(token_comm(between->ring->id), other, kFirstLeaderToken - e.tag);
  if (envelope == nullptr) return;
  const uint64_t number = count_one(envelope->posted);
  count_one(envelope->sent);
  wait.keys[0] = between->ring->id;
  wait.receive_tag = kFirstLeaderToken - e.tag;
  list(wait, other, counts_exactly(*envelope) ? static_cast<uint32_t>(number) & ~uint32_t{kSyncStrict} : 0);
}

void members_enter(Event& e, Wait& wait) {
  wait.peer = ring::kNoPeer;
  wait.flags = 0;
  wait.count = wait.kept = 0;
  wait.keys[0] = 0;
  int32_t ranks[kMostMembers];
  int size = 0;
  if (!can_be_counted(e.comm) || e.tag < 0 || e.tag >= kMostTokenTag) return set_irregular(kLostWindow);
  if (!backend->group_world_ranks(e.group, kMostMembers, ranks, &size)) return;  // all members leave it out
  for (int i = 0; i < size; ++i)
    if (ranks[i] < 0) return;
  const int32_t self = world_of(e.comm, e.comm->rank);
  wait.keys[0] = e.comm->ring->id;
  wait.receive_tag = kFirstGroupToken - e.tag;
  for (int i = 0; i < size; ++i) {
    if (ranks[i] == self) continue;
    Envelope* envelope = envelope_of(token_comm(e.comm->ring->id), ranks[i], wait.receive_tag);
    if (envelope == nullptr) return set_irregular(kLostWindow);
    const uint64_t number = count_one(envelope->posted);
    count_one(envelope->sent);
    list(wait, ranks[i], counts_exactly(*envelope) ? static_cast<uint32_t>(number) & ~uint32_t{kSyncStrict} : 0);
  }
}

}  // namespace resil::hang
