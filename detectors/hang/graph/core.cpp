// SPDX-License-Identifier: Apache-2.0

#include "detectors/hang/graph/core.h"
#include "shim/base/sort.h"

namespace resil::hang::graph {

namespace {

struct Found {
  Wave wave;
  uint32_t rank;
};

/// The collectives among the reasons of those who wait, and the first wait for a message.
bool find_waits(Graph& graph, Core* core) {
  const bool ended = of_ended(core->kind);
  size_t count = 0, room = 0;
  auto each = [&](auto with) {
    for (uint32_t rank = 0; rank < graph.ranks(); ++rank)
      if (graph.deadlocked(rank) && (ended || core->member[rank] != 0))
        each_reason(graph, *core, rank, [&](uint32_t thread, uint32_t part) { with(rank, thread, part); });
  };
  each([&](uint32_t, uint32_t, uint32_t) { ++room; });
  Found* found = graph.arena().allocate<Found>(room);
  if (graph.arena().failed()) return false;
  each([&](uint32_t rank, uint32_t thread, uint32_t part) {
    const Part& p = graph.view(rank).parts[part];
    if (p.kind == PartKind::kCollective)
      found[count++] = {{graph.comm(p.comm), p.sequence, 0, {rank, thread, part}}, rank};
    else if (!core->message.valid()) core->message = {rank, thread, part};
  });
  heap_sort(found, count, [](const Found& a, const Found& b) {
    return a.wave.comm != b.wave.comm           ? a.wave.comm < b.wave.comm
           : a.wave.sequence != b.wave.sequence ? a.wave.sequence < b.wave.sequence
                                                : a.rank < b.rank;
  });
  for (size_t i = 0; i < count;) {
    Wave wave = found[i].wave;
    uint32_t last = kNone;
    for (; i < count && found[i].wave.comm == wave.comm && found[i].wave.sequence == wave.sequence; ++i) {
      wave.waiting += found[i].rank != last ? 1 : 0;
      last = found[i].rank;
    }
    ++core->wave_count;
    for (uint32_t at = 0; at < kMaxWaves; ++at)
      if (core->waves[at].comm == nullptr || core->waves[at].waiting < wave.waiting) {
        const Wave moved = core->waves[at];
        core->waves[at] = wave;
        wave = moved;
        if (wave.comm == nullptr) break;
      }
  }
  return true;
}

}  // namespace

bool waits_for_core(const Graph& graph, const Core& core, uint32_t rank, uint32_t part) {
  const Fact fact = graph.fact(rank, part);
  if (fact == Fact::kNever) return core.kind == CoreKind::kNever && core.member[rank] != 0;
  const uint32_t target = graph.target(rank, part);
  if (fact != Fact::kHolds || !graph.stuck(target)) return false;
  if (graph.is_leaver(target)) return core.kind == CoreKind::kLeft && core.member[graph.leaver_rank(target)] != 0;
  if (target < graph.ranks()) return core.kind != CoreKind::kLeft && core.member[target] != 0;
  const Part& p = graph.view(rank).parts[part];
  const Comm& comm = *graph.comm(p.comm);
  if (p.kind != PartKind::kCollective)  // a wildcard is a reason inside its own knot only
    return core.kind == CoreKind::kCycle && core.member[rank] != 0 &&
           graph.component(target) == graph.component(core.first);
  if (core.kind == CoreKind::kCycle && core.member[rank] != 0)  // all members of the core share one component
    return graph.component(target) == graph.component(core.first);
  return comm.core_at < graph.late(comm, p.sequence);
}

bool find_core(Graph& graph, Core* core) {
  const uint32_t count = graph.component_count();
  if (count == 0) return false;
  CoreKind* kinds = graph.arena().allocate<CoreKind>(count);
  core->member = graph.arena().allocate<uint8_t>(graph.ranks());
  if (graph.arena().failed()) return false;
  auto note = [&](uint32_t component, CoreKind kind) {
    if (component != kNone && graph.terminal(component) && kind > kinds[component]) kinds[component] = kind;
  };
  for (uint32_t rank = 0; rank < graph.ranks(); ++rank) {
    const uint32_t component = graph.component(rank);
    if (const uint32_t node = graph.leaver(rank); node != kNone) note(graph.component(node), CoreKind::kLeft);
    if (is_sink(graph.status(rank)))
      note(component, graph.status(rank) == RankStatus::kGone ? CoreKind::kGone : CoreKind::kEnded);
    else if (graph.deadlocked(rank)) {
      note(component, CoreKind::kCycle);
      // A thread whose only reason is a wait that nobody can end is a component of its own.
      for (uint32_t t = 0; t < graph.view(rank).thread_count; ++t)
        if (const uint32_t own = graph.component(graph.thread_node(rank, t)); own != component)
          note(own, CoreKind::kNever);
    }
  }
  uint32_t chosen = kNone;
  for (uint32_t rank = 0; rank < graph.ranks(); ++rank) {
    uint32_t own[2 + kMaxThreads] = {graph.component(rank)}, owned = 1;
    if (const uint32_t node = graph.leaver(rank); node != kNone) own[owned++] = graph.component(node);
    for (uint32_t t = 0; graph.deadlocked(rank) && t < graph.view(rank).thread_count; ++t)
      own[owned++] = graph.component(graph.thread_node(rank, t));
    for (uint32_t i = 0; i < owned; ++i)
      if (own[i] != kNone && kinds[own[i]] > core->kind) {
        core->kind = kinds[own[i]];
        chosen = own[i];
      }
  }
  if (core->kind == CoreKind::kNone) return false;
  const bool ended = of_ended(core->kind);
  for (uint32_t rank = 0; rank < graph.ranks(); ++rank) {
    const bool left = core->kind == CoreKind::kLeft;
    const uint32_t component = graph.component(left ? graph.leaver(rank) : rank);
    bool in = ended ? component != kNone && (left || is_sink(graph.status(rank))) && kinds[component] == core->kind
                    : component == chosen;
    for (uint32_t t = 0; !in && !ended && graph.deadlocked(rank) && t < graph.view(rank).thread_count; ++t)
      in = graph.component(graph.thread_node(rank, t)) == chosen;
    if (!in) continue;
    core->member[rank] = 1;
    ++core->count;
    if (core->first == kNone) core->first = rank;
  }
  for (uint32_t i = 0; i < graph.comm_count(); ++i) {
    Comm& comm = graph.comms()[i];
    comm.core_at = 0;
    while (comm.core_at < comm.count && !is_in_core(*core, graph.in_order(comm, comm.core_at))) ++comm.core_at;
  }
  return find_waits(graph, core);
}

}  // namespace resil::hang::graph
