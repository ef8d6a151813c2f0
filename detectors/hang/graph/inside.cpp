// SPDX-License-Identifier: Apache-2.0
//
// No deadlock, and nothing moves: calls that have got all they wait for and do not return. Only when everybody they
// deal with is inside MPI or done: a rank that computes lets its messages wait, and is right to.

#include "detectors/hang/graph/explain.h"
#include "shim/base/hash.h"

namespace resil::hang::graph {

namespace {

bool at_rest(const Graph& graph, uint32_t rank) {
  return graph.status(rank) != RankStatus::kRunnable && graph.status(rank) != RankStatus::kGone;
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

/// Have the others who have left this collective made so many calls since that the comparison of calls (mismatch/) may
/// not know any more which one they made in its place?
bool far_ahead(const Graph& graph, const Part& part) {
  const Comm& comm = *graph.comm(part.comm);
  return graph.late(comm, part.sequence + ring::kRecent) < comm.count;
}

}  // namespace

bool find_inside_mpi(Graph& graph, Verdict* verdict) {
  uint8_t* stuck = graph.arena().allocate<uint8_t>(graph.ranks());
  if (graph.arena().failed()) return false;
  Wait first;
  for (uint32_t rank = 0; rank < graph.ranks(); ++rank) {
    if (graph.status(rank) != RankStatus::kCandidate || graph.state(rank).activity != RankActivity::kBlocked) continue;
    Wait all_threads = {rank, 0, 0};
    for (uint32_t t = graph.view(rank).thread_count; t-- > 0 && all_threads.valid();)
      all_threads = satisfied(graph, rank, t);
    if (!all_threads.valid()) continue;
    const Part& part = part_of(graph, all_threads);
    if (first.valid()) {  // one verdict: the same call of the same collective, or only the first message
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
  if (verdict == nullptr) return true;
  const Part& part = part_of(graph, first);
  const ThreadWait& thread = thread_of(graph, first);
  const bool collective = part.kind == PartKind::kCollective;
  verdict->begin(HangClass::kInsideMpi, Confidence::kVerified);
  verdict->comm = part.comm;
  verdict->call = collective ? part.call : thread.call;
  verdict->sequence = collective ? part.sequence : 0;
  RankSet waiting = {};
  uint32_t still_in = 0;
  for (uint32_t rank = 0; rank < graph.ranks(); ++rank) still_in += stuck[rank];
  // Half of them or more have left it: look at those who have not.
  const bool few = collective && 2 * still_in <= graph.comm(part.comm)->count;
  for (uint32_t rank = 0; rank < graph.ranks(); ++rank)
    if (stuck[rank] != 0) {
      if (few) verdict->add_culprit(static_cast<int32_t>(rank));
      else verdict->add_victim(static_cast<int32_t>(rank));
      waiting.add(static_cast<int32_t>(rank));
    }
  verdict->signature =
      hash_combine(hash_combine(static_cast<uint64_t>(HangClass::kInsideMpi), first.rank), thread.instance);
  const CallWait wait = call_wait(graph, first);
  const bool mismatch_possible = few && far_ahead(graph, part);
  if (mismatch_possible) {
    verdict->add(Message::kStaysIn, wait).ranks = waiting;
    verdict->add(Message::kWentOn).n[0] = graph.comm(part.comm)->count - still_in;
  } else if (collective) {
    verdict->add(Message::kAllEntered, wait).n[0] = graph.comm(part.comm)->count;
    verdict->add(Message::kNotReturned, wait).ranks = waiting;
  } else {
    verdict->add(Message::kWaits, wait);
    verdict->add(part.kind == PartKind::kSend ? Message::kReceivePosted : Message::kSentNotDelivered, wait);
  }
  if (mismatch_possible) {
    verdict->add(Message::kMismatchOrLibrary);
    verdict->add(Message::kDoSamePath).ranks = waiting;
  } else {
    verdict->add(Message::kLibraryOrNetwork);
    verdict->add(Message::kDoTransport);
  }
  verdict->add(Message::kReasonDone);
  verdict->add(Message::kWaitingRanks, waiting);
  return true;
}

}  // namespace resil::hang::graph
