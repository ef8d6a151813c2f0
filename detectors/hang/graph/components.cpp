// SPDX-License-Identifier: Apache-2.0
//
// Strongly connected components of what cannot go on (Tarjan 1972, without recursion). A component that waits for no
// other one is where the trouble is; all the rest waits for it.

#include "detectors/hang/graph/model.h"

namespace resil::hang::graph {

/// A thread that waits for any of several: those that have ended do not count beside others.
void Graph::mark_skips() {
  for (uint32_t thread = 0; thread < threads_; ++thread) {
    const uint32_t rank = thread_rank_[thread];
    const View& v = views_[rank];
    const ThreadWait& wait = v.threads[thread - v.first_thread];
    if (any_[thread] == 0) continue;
    for (uint32_t i = wait.first_part; i < wait.first_part + wait.part_count; ++i) {
      const uint32_t to = targets_[v.first_part + i];
      if (facts_[v.first_part + i] == Fact::kHolds && stuck(to) && !has_ended(to)) skip_sinks_[thread] = 1;
    }
  }
}

bool Graph::find_components() {
  component_ = arena_.allocate<uint32_t>(nodes_);
  uint32_t* number = arena_.allocate<uint32_t>(nodes_);  // 0: not seen
  uint32_t* low = arena_.allocate<uint32_t>(nodes_);
  uint32_t* next_arc = arena_.allocate<uint32_t>(nodes_);
  uint32_t* path = arena_.allocate<uint32_t>(nodes_);
  uint32_t* open = arena_.allocate<uint32_t>(nodes_);
  leaves_ = arena_.allocate<uint8_t>(nodes_);
  skip_sinks_ = arena_.allocate<uint8_t>(threads_);
  if (arena_.failed()) return false;
  mark_skips();
  for (uint32_t node = 0; node < nodes_; ++node) component_[node] = kNone;
  uint32_t numbered = 0, opened = 0;
  for (uint32_t start = 0; start < ranks(); ++start) {
    if (!deadlocked(start) || number[start] != 0) continue;
    uint32_t depth = 0;
    path[depth++] = start;
    while (depth > 0) {
      const uint32_t node = path[depth - 1];
      if (number[node] == 0) {
        number[node] = low[node] = ++numbered;
        open[opened++] = node;
      }
      uint32_t into = kNone;
      waits_for(node, next_arc[node], [&](uint32_t other) {
        ++next_arc[node];
        if (other == kNone) return true;
        if (number[other] == 0) {
          into = other;
          return false;
        }
        if (component_[other] == kNone && number[other] < low[node]) low[node] = number[other];
        return true;
      });
      if (into != kNone) {
        path[depth++] = into;
        continue;
      }
      if (low[node] == number[node]) {
        uint32_t closed;
        do {
          closed = open[--opened];
          component_[closed] = component_count_;
        } while (closed != node);
        ++component_count_;
      }
      if (--depth > 0 && low[node] < low[path[depth - 1]]) low[path[depth - 1]] = low[node];
    }
  }
  for (uint32_t node = 0; node < nodes_; ++node)
    if (component_[node] != kNone)
      waits_for(node, 0, [&](uint32_t other) {
        if (other != kNone && component_[other] != component_[node]) leaves_[component_[node]] = 1;
        return true;
      });
  return true;
}

}  // namespace resil::hang::graph
