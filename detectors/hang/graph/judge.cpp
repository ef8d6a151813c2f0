// SPDX-License-Identifier: Apache-2.0
//
// The two functions of graph.h.

#include "detectors/hang/graph.h"

#include "detectors/hang/graph/explain.h"
#include "shim/base/hash.h"

namespace resil::hang {

namespace {

using namespace graph;

/// Questions, each once.
class Asked {
 public:
  bool open(Arena& arena, Question* questions, uint32_t room) {
    const size_t entries = power_of_two_above(room);
    table_ = arena.allocate<uint32_t>(entries);
    mask_ = entries - 1;
    questions_ = questions;
    room_ = room;
    return !arena.failed();
  }
  void ask(uint64_t comm, int32_t source, int32_t destination, int32_t tag) {
    uint64_t hash =
        hash_combine(mix64(comm), uint64_t{static_cast<uint32_t>(source)} << 32 | static_cast<uint32_t>(destination));
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
      if (q.comm == comm && q.source == source && q.destination == destination && q.tag == tag) return;
    }
  }
  uint32_t count = 0;

 private:
  uint32_t* table_ = nullptr;
  size_t mask_ = 0;
  Question* questions_ = nullptr;
  uint32_t room_ = 0;
};

/// Calls `with(rank, part, first)` for each message that a deadlocked rank waits for, if all that is not known were bad
/// news. `first`: of several that a call waits for together, the first one that MPI demands; else each. One that never
/// comes is enough.
template <class With>
void each_message(const Graph& graph, With with) {
  for (uint32_t rank = 0; rank < graph.ranks(); ++rank) {
    const View& view = graph.view(rank);
    for (uint32_t t = 0; graph.deadlocked(rank) && t < view.thread_count; ++t) {
      const ThreadWait& wait = view.threads[t];
      auto awaited = [&](uint32_t i) {
        return (view.parts[i].kind <= PartKind::kSend || view.parts[i].kind == PartKind::kToken) &&
               graph.fact(rank, i) == Fact::kHolds && graph.stuck(graph.target(rank, i));
      };
      const uint32_t end = wait.first_part + wait.part_count;
      bool demanded = false, first = true;
      for (uint32_t i = wait.first_part; i < end; ++i)
        demanded |= awaited(i) && (view.parts[i].flags & kMayBuffer) == 0;
      for (uint32_t i = wait.first_part; i < end; ++i)
        if (awaited(i)) {
          const bool aside = demanded && wait.kind == WaitKind::kAll && (view.parts[i].flags & kMayBuffer) != 0;
          with(rank, i, first && !aside);
          first &= aside || wait.kind == WaitKind::kAny;
        }
    }
  }
}

/// The core of the graph, explained unless nobody asks.
bool find_deadlock(Graph& graph, Verdict* verdict) {
  Core core;
  return graph.find_components() && find_core(graph, &core) &&
         (verdict == nullptr || Explainer(graph, core, *verdict).explain());
}

}  // namespace

uint32_t graph_questions(const GraphInput& input, Question* questions, uint32_t room) {
  Graph graph(input, true, true);
  Asked asked;
  if (room == 0 || !graph.solve(nullptr, 0, nullptr, 0) || !graph.find_components() ||
      !asked.open(graph.arena(), questions, room))
    return 0;
  constexpr uint32_t kHints = 16;
  // First what decides about the places where the trouble may be, then all that waits for these; in each, first one
  // message of every call, then hints for near misses, then the other messages, then what helps where an envelope has
  // no counters of its own.
  enum Stage { kOne, kHint, kOthers, kAllTags, kStages };
  for (int step = 0; step < 2 * kStages; ++step) {
    const bool core = step < kStages;
    const int stage = step % kStages;
    uint32_t hints = 0;
    each_message(graph, [&](uint32_t rank, uint32_t i, bool first) {
      if (graph.terminal(graph.component(graph.target(rank, i))) != core || (stage == kOne && !first)) return;
      const Part& part = graph.view(rank).parts[i];
      const int32_t me = static_cast<int32_t>(rank);
      if (part.kind == PartKind::kToken) {
        if (stage == kOne || stage == kOthers) asked.ask(token_comm(part.comm), part.peer, me, part.tag);
        return;
      }
      const bool send = part.kind == PartKind::kSend;
      const bool named = part.tag != ring::kAnyTag && part.tag != kOtherTags;
      const int32_t source = send ? me : part.peer, destination = send ? part.peer : me;
      if (stage == kHint) {
        if (!core || send || !named || source == ring::kAnySource || hints++ >= kHints) return;
        asked.ask(part.comm, source, destination, ring::kAnyTag);
        asked.ask(0, source, destination, part.tag);
        return;
      }
      const bool exact = stage != kAllTags && named && (!send || part.ordinal != 0);
      asked.ask(part.comm, source, destination, exact ? part.tag : ring::kAnyTag);
    });
  }
  return asked.count;
}

Judgement graph_judge(const GraphInput& input, const Question* questions, uint32_t question_count,
                      const Answer* answers, uint32_t answer_count, bool may_buffer, Verdict* verdict) {
  {
    Graph strict(input, false, false);
    if (!strict.solve(questions, question_count, answers, answer_count)) return Judgement::kNothing;
    if (find_deadlock(strict, verdict)) return Judgement::kProved;
  }
  if (!may_buffer) return Judgement::kNothing;
  Graph graph(input, true, false);
  if (!graph.solve(questions, question_count, answers, answer_count)) return Judgement::kNothing;
  if (find_deadlock(graph, verdict)) return Judgement::kInferred;
  if (find_inside_mpi(graph, verdict)) return Judgement::kInsideMpi;
  // A Sendrecv that has got its message waits in its send, though MPI could have copied that; or its message has not
  // come although its sender is inside MPI, too. The longer it lasts, the less anything speaks for the latter.
  Graph arrived(input, true, false, Assumed::kDoneArrived);
  if (arrived.solve(questions, question_count, answers, answer_count) && find_deadlock(arrived, verdict))
    return Judgement::kInsideMpi;
  // Which of two receives took a message is told when both are complete, or never. That the wrong one did is as likely
  // now as that the message is still on its way.
  Graph ordered(input, true, false, Assumed::kWildFirst);
  return ordered.solve(questions, question_count, answers, answer_count) && find_deadlock(ordered, verdict)
             ? Judgement::kInsideMpi
             : Judgement::kNothing;
}

}  // namespace resil::hang
