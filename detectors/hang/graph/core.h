// SPDX-License-Identifier: Apache-2.0
//
// Where the trouble is among all that is deadlocked, and which calls tell it.
#pragma once

#include "detectors/hang/graph/model.h"

namespace resil::hang::graph {

/// In the order of preference: what ended a process explains everything else, a finished rank may be a mere
/// consequence.
enum class CoreKind : uint8_t {
  kNone = 0,
  kEnded,  ///< they wait for ranks that have finished, or are in MPI_Finalize
  kLeft,  ///< they wait on a communicator or window for ranks that have freed it
  kNever,  ///< one rank in a call that nobody can end
  kCycle,  ///< calls that wait for each other (a cycle, or a knot of wildcards)
  kGone,  ///< they wait for ranks that ended without MPI_Finalize
};

/// One part of what one thread waits for; indices into the state.
struct Wait {
  uint32_t rank = kNone, thread = 0, part = 0;
  bool valid() const { return rank != kNone; }
};

/// Calls of one collective that wait.
struct Wave {
  const Comm* comm = nullptr;
  uint64_t sequence = 0;
  uint32_t waiting = 0;  ///< how many ranks of the core; with a core of ended ranks: of all
  Wait first;
};

constexpr uint32_t kMaxWaves = 4;

struct Core {
  CoreKind kind = CoreKind::kNone;
  uint8_t* member = nullptr;  ///< by rank: belongs to it, ended ones included
  uint32_t count = 0, first = kNone;
  Wave waves[kMaxWaves];  ///< those with most ranks first
  uint32_t wave_count = 0;  ///< may exceed what is kept
  Wait message;  ///< first wait for a message (or a receive) that belongs to the core, if any
};

/// After find_components(). False: no memory, or nothing is deadlocked.
bool find_core(Graph& graph, Core* core);

/// Do all that are deadlocked wait for ranks that are not, but will never do anything about it?
inline bool of_ended(CoreKind kind) {
  return kind == CoreKind::kEnded || kind == CoreKind::kLeft || kind == CoreKind::kGone;
}

/// Is this member of a communicator one of the core?
inline bool is_in_core(const Core& core, const Member& member) {
  return core.member[member.rank] != 0 && (core.kind != CoreKind::kLeft || member.freed);
}

/// Whether this part of a deadlocked rank is one of the reasons: it waits for something in the core.
bool waits_for_core(const Graph& graph, const Core& core, uint32_t rank, uint32_t part);

/// Calls `with(thread, part)` for every part that is one of the reasons why this rank cannot go on.
template <class With>
void each_reason(const Graph& graph, const Core& core, uint32_t rank, With with) {
  const View& v = graph.view(rank);
  for (uint32_t t = 0; t < v.thread_count; ++t)
    for (uint32_t i = v.threads[t].first_part; i < v.threads[t].first_part + v.threads[t].part_count; ++i)
      if (waits_for_core(graph, core, rank, i)) with(t, i);
}

}  // namespace resil::hang::graph
