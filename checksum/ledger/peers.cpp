// SPDX-License-Identifier: Apache-2.0
//
// The other ranks, as far as this one has met them. Pointers never move; entries live until the process ends.

#include <cstring>

#include "checksum/ledger/peer.h"
#include "shim/call/attach.h"
#include "shim/call/runtime.h"
#include "shim/runtime/memory.h"
#include "shim/tables/tables.h"

namespace resil::ledger {

Peer** peer_table;

namespace {

constexpr uint32_t kSlab = 256;  // peers mapped at a time

int peer_capacity;
Peer* slab;
uint32_t slab_used = kSlab;
Peer** met;  // in order of first contact
uint32_t met_count;

Peer* make(int world_rank) {
  if (slab_used == kSlab) {
    slab = memory::map_array<Peer>(kSlab);
    if (slab == nullptr) return nullptr;
    slab_used = 0;
  }
  Peer* peer = &slab[slab_used++];
  peer->world_rank = world_rank;
  peer->sums_hold_out = peer->sums_hold_in = true;
  if (peer_is_self(*peer)) strncpy(peer->host, runtime.host, sizeof(peer->host) - 1);
  met[met_count] = peer;
  __atomic_store_n(&met_count, met_count + 1, __ATOMIC_RELEASE);
  __atomic_store_n(&peer_table[world_rank], peer, __ATOMIC_RELEASE);
  return peer;
}

}  // namespace

bool peers_create(int world_size) {
  peer_table = memory::map_array<Peer*>(2 * static_cast<size_t>(world_size));
  if (peer_table == nullptr) return false;
  met = peer_table + world_size;
  peer_capacity = world_size;
  return true;
}

Peer* peer_find(int world_rank) {
  return world_rank >= 0 && world_rank < peer_capacity ? __atomic_load_n(&peer_table[world_rank], __ATOMIC_ACQUIRE)
                                                       : nullptr;
}

Peer* peer_by_index(uint32_t index) {
  return index < __atomic_load_n(&met_count, __ATOMIC_ACQUIRE) ? met[index] : nullptr;
}

bool peer_is_self(const Peer& peer) { return peer.world_rank == runtime.rank; }

Peer* peer_of(int world_rank) {
  Peer* found = peer_find(world_rank);
  if (found != nullptr) [[likely]]
    return found;
  if (!connected() || world_rank < 0 || world_rank >= peer_capacity) return nullptr;
  Guard guard;
  found = peer_find(world_rank);
  return found != nullptr ? found : make(world_rank);
}

Peer* peer_of(CommInfo& comm, int rank, Reason* why) {
  if (!connected()) {
    *why = Reason::kNotConnected;
    return nullptr;
  }
  // Flag 1: made out of sight; flag 0: its id holds on one side of an intercommunicator only.
  if (comm.index < 2 || (comm.ring->flags & 2)) {
    *why = Reason::kUnknownCommunicator;
    return nullptr;
  }
  int world = (comm.ring->flags & 1) ? -1 : comm_world_rank(comm, rank);
  if (world < 0) {
    *why = Reason::kOtherWorld;
    return nullptr;
  }
  Peer* peer = peer_of(world);
  *why = peer != nullptr ? Reason::kNone : Reason::kMemory;
  return peer;
}

int world_rank_of(const Peer& peer) { return peer.world_rank; }
const char* host_of(const Peer& peer) { return peer.host; }

}  // namespace resil::ledger
