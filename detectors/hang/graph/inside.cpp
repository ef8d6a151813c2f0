// SPDX-License-Identifier: Apache-2.0
//
// No deadlock, and nothing moves: calls that have got all they wait for and do not return. Only when everybody they
// deal with is inside MPI or done: a rank that computes lets its messages wait, and is right to.

#include <string.h>

#include "detectors/hang/graph/story.h"
#include "shim/base/hash.h"

namespace resil::hang::graph {

namespace {

bool at_rest(const Graph& graph, uint32_t rank) {
  return graph.role(rank) != Role::kRunnable && graph.role(rank) != Role::kGone;
}

bool others_at_rest(const Graph& graph, const Part& part) {
  if (part.kind != PartKind::kCollective && part.peer != ring::kAnySource)
    return at_rest(graph, static_cast<uint32_t>(part.peer));
  const Comm& comm = *graph.comm(part.comm);
  for (uint32_t i = 0; i < comm.count; ++i)
    if (!at_rest(graph, graph.in_order(comm, i).rank)) return false;
  return true;
}

/// First part of this thread that shows that it should return; invalid: it need not.
Wait satisfied(const Graph& graph, uint32_t rank, uint32_t thread) {
  const ThreadWait& wait = graph.view(rank).threads[thread];
  const bool all = wait.kind == WaitKind::kAll;
  Wait found;
  for (uint32_t i = wait.first_part; i < wait.first_part + wait.part_count; ++i) {
    const bool done = graph.fact(rank, i) == Fact::kDone && others_at_rest(graph, graph.view(rank).parts[i]);
    if (all && (!done || wait.truncated != 0)) return {};
    if (done && !found.valid()) found = {rank, thread, i};
  }
  return found;
}

}  // namespace

bool tell_inside_mpi(Graph& graph, const Names& names, Verdict* verdict) {
  uint8_t* stuck = graph.arena().take<uint8_t>(graph.ranks());
  if (graph.arena().failed()) return false;
  Wait first;
  for (uint32_t rank = 0; rank < graph.ranks(); ++rank) {
    if (graph.role(rank) != Role::kCandidate || graph.state(rank).activity != RankActivity::kBlocked) continue;
    Wait all_threads = {rank, 0, 0};
    for (uint32_t t = graph.view(rank).thread_count; t-- > 0 && all_threads.valid();)
      all_threads = satisfied(graph, rank, t);
    if (!all_threads.valid()) continue;
    const Part& part = part_of(graph, all_threads);
    if (first.valid()) {  // one story: the same call of the same collective, or only the first message
      const Part& told = part_of(graph, first);
      if (told.kind != PartKind::kCollective || part.kind != told.kind || part.comm != told.comm ||
          part.sequence != told.sequence)
        continue;
      if (part.call != told.call) return false;  // different collectives under one number: a mismatch, and told as such
    } else {
      first = all_threads;
    }
    stuck[rank] = 1;
  }
  if (!first.valid()) return false;
  *verdict = {};
  const Part& part = part_of(graph, first);
  const ThreadWait& thread = thread_of(graph, first);
  verdict->type = HangClass::kInsideMpi;
  verdict->confidence = Confidence::kVerified;
  verdict->comm = part.comm;
  verdict->call = part.kind == PartKind::kCollective ? part.call : thread.call;
  verdict->sequence = part.kind == PartKind::kCollective ? part.sequence : 0;
  set_ranks(stuck, graph.ranks(), verdict->victims, kMaxVictims, &verdict->victim_count);
  verdict->signature =
      hash_combine(hash_combine(static_cast<uint64_t>(HangClass::kInsideMpi), first.rank), thread.instance);
  Words message(graph, names, verdict->message, sizeof(verdict->message));
  Words evidence(graph, names, verdict->evidence, sizeof(verdict->evidence));
  if (part.kind == PartKind::kCollective) {
    const Comm& comm = *graph.comm(part.comm);
    message.text.str("All ").u64(comm.count).str(" ranks have entered ");
    message.wait(first);
    message.text.str(", and ");
    message.ranks(stuck);
    message.text.str(verdict->victim_count == 1 ? " does" : " do").str(" not come back from it");
  } else {
    message.rank(first.rank);
    message.text.str(" waits in ");
    message.wait(first);
    message.site(first.rank, thread);
    message.text.str(part.kind == PartKind::kSend ? "; a receive for it was posted, but the call does not return"
                                                  : "; that message was sent, but is not delivered");
  }
  message.text.str(", for ");
  message.age(thread);
  message.text.str(
      ": the MPI library or the network. To do: see the stacks of these ranks and the "
      "counters of the network; try another transport of the MPI library.");
  message.done();
  capital(verdict->message);
  evidence.text.str(
      "reason: inferred, all that these calls wait for has happened by the counters of both sides\nwaiting: ");
  evidence.ranks(stuck);
  evidence.text.chr('\n');
  evidence.done();
  return true;
}

}  // namespace resil::hang::graph
