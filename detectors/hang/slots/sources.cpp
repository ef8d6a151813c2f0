// SPDX-License-Identifier: Apache-2.0
//
// The writing side of whom a vector or neighbourhood collective waits for: the ranks that its own counts receive from.
// MPI lets it return without all others. Threads of the program, on the way into such calls only; MPI is asked once
// about each topology.

#include <initializer_list>

#include "detectors/hang/slots/writer_internal.h"
#include "shim/base/spinlock.h"

namespace resil::hang {

namespace {

constexpr uint32_t kTopologies = 16;
constexpr int kMostNeighbors = 64;

/// The ranks that a topology receives from, as ranks of the world.
struct Topology {
  uint64_t comm;
  int count;  // negative: too many, or MPI does not tell
  int32_t ranks[kMostNeighbors];
};
Topology topologies[kTopologies];
SpinLock lock;  // never around an MPI call
uint32_t next_place;  // in Section::sources

void read_topology(CommInfo& comm, Topology* to) {
  int ranks[2 * kMostNeighbors], in = 0, out = 0;
  to->comm = comm.ring->id;
  to->count = -1;
  if (backend->messages == nullptr || backend->messages->neighbors == nullptr ||
      !backend->comm_degree(comm.handle, &in, &out) || in < 0 || out < 0 || in > kMostNeighbors ||
      out > kMostNeighbors || !backend->messages->neighbors(comm.handle, in, out, ranks, ranks + in))
    return;
  to->count = in;
  for (int i = 0; i < in; ++i) to->ranks[i] = world_of(&comm, ranks[i]);
}

/// A copy, since another thread may ask for another topology.
Topology topology_of(CommInfo& comm) {
  Topology& place = topologies[comm.index % kTopologies];
  Topology found;
  {
    SpinGuard guard(lock);
    found = place;
  }
  if (found.comm == comm.ring->id) return found;
  read_topology(comm, &found);
  SpinGuard guard(lock);
  place = found;
  return found;
}

void keep(Wait& wait, int32_t rank) {
  if (wait.kept + 1 < kWaitedKeys) wait.keys[++wait.kept] = uint64_t{static_cast<uint32_t>(rank)} << 32 | kSyncStrict;
  ++wait.count;
}

}  // namespace

void list_sources(Event& e, Pattern pattern, Wait& wait) {
  wait.count = wait.kept = 0;
  if (!can_be_counted(e.comm)) return;
  const bool neighbors = pattern == Pattern::kNeighbor;
  if (!neighbors && e.comm->size == 1 && e.comm->remote_size < 0) return;  // itself
  const Topology topology = neighbors ? topology_of(*e.comm) : Topology{};
  Members members = members_of(*e.comm);
  members.indegree = neighbors && topology.count > 0 ? topology.count : 0;
  const Transfer got = received(e, members, backend->is_in_place);
  bool all = !neighbors && !members.inter();
  for (int64_t i = got.first; i < got.end && (all || wait.count < kWaitedKeys); ++i) {
    if (!neighbors && !members.inter() && i == members.rank) continue;
    if (got.count_of(i) <= 0 || type_size(*e.thread, got.type_of(i)) == 0) {
      all = false;
      continue;
    }
    const int32_t rank = neighbors ? topology.ranks[i] : world_of(e.comm, static_cast<int32_t>(i));
    if (rank >= 0 && !(neighbors && rank == world_of(e.comm, members.rank))) keep(wait, rank);
  }
  if (all && wait.count != 0) wait.flags |= kFromAll;
}

void publish_sources(const Event& e, const Wait& wait) {
  const int64_t at = e.result == 0 && e.cookies != nullptr ? request_index(e.cookies) : -1;
  if (at < 0) return;
  Pending& pending = writer.pending[at];
  pending.sources = 0;
  if (wait.kept == 0 || (wait.flags & kFromAll) != 0) return;
  SpinGuard guard(lock);
  const uint32_t index = next_place++ % kSourceLists;
  SourceList& place = writer.section->sources[index];
  __atomic_store_n(&place.owner, 0, __ATOMIC_RELAXED);
  __atomic_thread_fence(__ATOMIC_RELEASE);
  place.count = wait.kept < kSourceRanks ? wait.kept : kSourceRanks;
  for (uint32_t i = 0; i < place.count; ++i) place.ranks[i] = static_cast<int32_t>(wait.keys[i + 1] >> 32);
  __atomic_store_n(&place.owner, e.request_key, __ATOMIC_RELEASE);
  pending.sources = static_cast<uint8_t>(index + 1);
}

}  // namespace resil::hang
