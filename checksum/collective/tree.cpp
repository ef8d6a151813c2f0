// SPDX-License-Identifier: Apache-2.0
//
// See tree.h. Both caches are small and direct-mapped; ids of communicators are never used again.

#include "checksum/collective/tree.h"

#include "checksum/collective/memory.h"
#include "shim/abi/backend.h"
#include "shim/base/spinlock.h"
#include "shim/tables/tables.h"

namespace resil::collective {

namespace {

using ledger::Peer;
using ledger::Reason;

constexpr uint32_t kTrees = 64, kTopologies = 16;

Tree trees[kTrees];
Neighbours* topologies[kTopologies];
SpinLock lock;

struct Guard : OptionalGuard {
  Guard() : OptionalGuard(lock, ledger::concurrent()) {}
};

uint32_t place_of(uint64_t comm, int root) {
  return static_cast<uint32_t>((comm >> 7) ^ comm ^ static_cast<uint32_t>(root)) % kTrees;
}

void copy(Tree& to, const Tree& from) {
  __builtin_memcpy(&to, &from, offsetof(Tree, children) + from.child_count * sizeof(from.children[0]));
}

[[gnu::noinline]] void build(CommInfo& comm, int root, Tree& tree) {
  tree.comm = comm.ring->id;
  tree.root = root;
  tree.child_count = tree.missing = 0;
  tree.reason = Reason::kNone;
  tree.parent = nullptr;
  const int size = comm.size, mine = (comm.rank - root + size) % size;
  auto rank_of = [&](int relative) { return static_cast<int>((int64_t{relative} + root) % size); };
  Reason why = Reason::kNone;
  if (mine != 0) {
    tree.parent = local_peer(comm, rank_of(mine & (mine - 1)), &why);
    if (tree.parent == nullptr) tree.reason = why;
  }
  for (int64_t bit = 1; bit < size && (mine == 0 || bit < (mine & -mine)) && mine + bit < size; bit *= 2) {
    Peer* child = local_peer(comm, rank_of(static_cast<int>(mine + bit)), &why);
    if (child != nullptr) {
      tree.children[tree.child_count++] = child;
    } else {
      tree.missing += 1;
      tree.reason = why;
    }
  }
}

void find_repeated(Edge* edges, int count) {
  for (int i = 0; i < count; ++i)
    for (int j = i + 1; edges[i].peer != nullptr && j < count; ++j)
      if (edges[j].peer == edges[i].peer) edges[i].repeated = edges[j].repeated = true;
}

void resolve(CommInfo& comm, Edge* edges, int count, const int* ranks) {
  for (int i = 0; i < count; ++i) {
    edges[i] = {nullptr, Reason::kNone, false};
    if (ranks[i] >= 0) edges[i].peer = ledger::peer_of(comm, ranks[i], &edges[i].why);
  }
  find_repeated(edges, count);
}

}  // namespace

Peer* local_peer(CommInfo& comm, int rank, Reason* why) {
  if (comm.remote_size < 0) return ledger::peer_of(comm, rank, why);
  int world = -1;
  *why = Reason::kOtherWorld;
  if (!backend->comm_world_ranks(comm.handle, false, 1, &rank, &world) || world < 0) return nullptr;
  Peer* peer = ledger::peer_of(world);
  *why = peer != nullptr ? Reason::kNone : Reason::kMemory;
  return peer;
}

const Tree& tree_of(CommInfo& comm, int root, Tree& room) {
  Tree& cached = trees[place_of(comm.ring->id, root)];
  {
    Guard guard;
    if (cached.comm == comm.ring->id && cached.root == root) [[likely]] {
      if (!ledger::concurrent()) return cached;
      copy(room, cached);
      return room;
    }
  }
  build(comm, root, room);
  Guard guard;
  copy(cached, room);
  return room;
}

Neighbours* neighbours_take(CommInfo& comm, Reason* why) {
  const uint64_t id = comm.ring->id;
  Neighbours*& cached = topologies[((id >> 7) ^ id) % kTopologies];
  *why = Reason::kNone;
  {
    Guard guard;
    if (cached != nullptr && cached->comm == id) {
      ++cached->users;
      return cached;
    }
  }
  int in = 0, out = 0;
  *why = Reason::kCollective;
  if (!backend->comm_degree(comm.handle, &in, &out)) return nullptr;
  const auto edges = static_cast<size_t>(in) + static_cast<size_t>(out);
  const size_t bytes = sizeof(Neighbours) + edges * (sizeof(Edge) + sizeof(int));
  void* memory = pool.allocate(bytes);
  if (memory == nullptr) {
    *why = Reason::kMemory;
    return nullptr;
  }
  auto* made = static_cast<Neighbours*>(memory);
  *made = {id, in, out, 1, true, bytes};
  int* ranks = reinterpret_cast<int*>(made->sources() + edges);
  if (!backend->messages->neighbors(comm.handle, in, out, ranks, ranks + in)) {
    pool.release(memory, bytes);
    return nullptr;
  }
  resolve(comm, made->sources(), in, ranks);
  resolve(comm, made->destinations(), out, ranks + in);
  *why = Reason::kNone;
  Neighbours* old;
  {
    Guard guard;
    old = cached;
    if (old != nullptr && old->users != 0) {
      made->cached = false;
      old = nullptr;
    } else {
      cached = made;
    }
  }
  if (old != nullptr) pool.release(old, old->memory);
  return made;
}

void neighbours_give(Neighbours* neighbours) {
  {
    Guard guard;
    --neighbours->users;
    if (neighbours->cached) return;
  }
  pool.release(neighbours, neighbours->memory);
}

}  // namespace resil::collective
