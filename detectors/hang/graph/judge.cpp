// SPDX-License-Identifier: Apache-2.0
//
// The two functions of graph.h.

#include "detectors/hang/graph.h"

#include "detectors/hang/graph/story.h"
#include "shim/hash.h"

namespace resil::hang {

namespace {

using namespace graph;

/// Questions, each once.
class Asked {
 public:
  bool open(Arena& arena, Question* questions, uint32_t room) {
    const size_t entries = power_of_two_above(room);
    table_ = arena.take<uint32_t>(entries);
    mask_ = entries - 1;
    questions_ = questions;
    room_ = room;
    return !arena.failed();
  }
  void ask(uint64_t comm, int32_t source, int32_t destination, int32_t tag) {
    uint64_t hash = hash_combine(mix64(comm), uint64_t{static_cast<uint32_t>(source)} << 32 | static_cast<uint32_t>(destination));
    hash = hash_combine(hash, static_cast<uint32_t>(tag));
    for (;; ++hash) {
      uint32_t& entry = table_[hash & mask_];
      if (entry == 0) {
        if (count < room_) {
          questions_[count] = {comm, source, destination, tag, 0};
          entry = ++count;
        }
        return;
      }
      const Question& q = questions_[entry - 1];
      if (q.comm == comm && q.source == source && q.destination == destination && q.tag == tag)
        return;
    }
  }
  uint32_t count = 0;

 private:
  uint32_t* table_ = nullptr;
  size_t mask_ = 0;
  Question* questions_ = nullptr;
  uint32_t room_ = 0;
};

/// Calls `with(rank, part)` for each message that a deadlocked rank waits for, if all that is not known were bad news.
template <class With>
void each_message(const Graph& graph, With with) {
  for (uint32_t rank = 0; rank < graph.ranks(); ++rank) {
    const View& view = graph.view(rank);
    for (uint32_t i = 0; graph.deadlocked(rank) && i < graph.state(rank).part_count; ++i)
      if (view.parts[i].kind <= PartKind::kSend && graph.fact(rank, i) == Fact::kHolds && graph.stuck(graph.target(rank, i)))
        with(rank, i);
  }
}

bool told(Graph& graph, const Names& names, Verdict* verdict) {
  Core core;
  return graph.find_components() && find_core(graph, &core) && Story(graph, core, names, verdict).tell();
}

}  // namespace

uint32_t graph_questions(const GraphInput& input, Question* questions, uint32_t room) {
  Graph graph(input, true, true);
  Asked asked;
  if (room == 0 || !graph.solve(nullptr, 0, nullptr, 0) || !graph.find_components() || !asked.open(graph.arena(), questions, room))
    return 0;
  constexpr uint32_t kHints = 16;
  // First what decides about the places where the trouble may be, then all that waits for these; in each, first what
  // decides, then what helps where an envelope has no counters of its own, or for near misses.
  for (int pass = 0; pass < 4; ++pass) {
    const bool core = pass < 2, exact = pass % 2 == 0;
    each_message(graph, [&](uint32_t rank, uint32_t i) {
      const Part& part = graph.view(rank).parts[i];
      if (graph.terminal(graph.component(graph.target(rank, i))) != core)
        return;
      const int32_t me = static_cast<int32_t>(rank);
      const bool send = part.kind == PartKind::kSend;
      const bool named = part.tag != ring::kAnyTag && part.tag != kOtherTags && (!send || part.ordinal != 0);
      asked.ask(part.comm, send ? me : part.peer, send ? part.peer : me, exact && named ? part.tag : ring::kAnyTag);
    });
    uint32_t hints = 0;
    if (pass == 1)
      each_message(graph, [&](uint32_t rank, uint32_t i) {
        const Part& part = graph.view(rank).parts[i];
        if (part.kind != PartKind::kSend && part.peer != ring::kAnySource && part.tag != ring::kAnyTag && part.tag != kOtherTags &&
            graph.terminal(graph.component(graph.target(rank, i))) && hints++ < kHints)
          asked.ask(0, part.peer, static_cast<int32_t>(rank), part.tag);
      });
  }
  return asked.count;
}

bool graph_judge(const GraphInput& input, const Question* questions, uint32_t question_count, const Answer* answers,
                 uint32_t answer_count, bool lenient, const Names& names, Verdict* verdict) {
  {
    Graph strict(input, false, false);
    if (!strict.solve(questions, question_count, answers, answer_count))
      return false;
    if (told(strict, names, verdict))
      return true;
  }
  if (!lenient)
    return false;
  Graph graph(input, true, false);
  return graph.solve(questions, question_count, answers, answer_count) &&
         (told(graph, names, verdict) || tell_inside_mpi(graph, names, verdict));
}

}  // namespace resil::hang
