// SPDX-License-Identifier: Apache-2.0
//
// The truth about a stopped world, by trying everything: an oracle that shares nothing with the wait-for graph but MPI.

#include <algorithm>
#include <set>
#include <string>

#include "hang_sim.h"

namespace hang_test {

namespace {

using Flags = std::vector<bool>;
size_t at(int32_t rank) { return static_cast<size_t>(rank); }

/// May this request ever be satisfied, if the ranks in `can` do whatever helps?
bool may_be(const Sim& sim, const SimRequest& request, const Flags& can, bool may_buffer) {
  if (sim.satisfied(request)) return true;
  const auto& members = sim.comms.at(request.comm);
  if (request.kind == SimRequest::kSend) return (request.small && !may_buffer) || can[at(request.peer)];
  if (request.kind == SimRequest::kReceive)
    return request.peer == ring::kAnySource
               ? std::any_of(members.begin(), members.end(), [&](int32_t m) { return can[at(m)]; })
               : bool{can[at(request.peer)]};
  const Wave wave = sim.waves.at(request.comm)[request.ordinal % 40];
  const int32_t root = members[request.ordinal % members.size()];
  if (wave == Wave::kReduce && request.rank != root && !may_buffer) return true;
  const auto comes = [&](int32_t m) {
    const auto found = sim.entered.find({request.comm, m});
    return (found != sim.entered.end() && found->second >= request.ordinal) || can[at(m)];
  };
  if (wave == Wave::kBcast) return comes(root);
  if (request.comm == kInter) {
    const auto needed = sim.awaited(kInter, request.rank);
    return std::all_of(needed.begin(), needed.end(), comes);
  }
  return std::all_of(members.begin(),
                     wave == Wave::kScan ? std::find(members.begin(), members.end(), request.rank) : members.end(),
                     comes);
}

bool may_return(const Sim& sim, const SimThread& thread, const Flags& can, bool may_buffer) {
  const Op& op = thread.program[thread.at];
  if (sim.can_return(thread)) return true;
  if (op.what == Do::kProbe) {
    const auto& members = sim.comms.at(op.comm);
    return op.peer == ring::kAnySource
               ? std::any_of(members.begin(), members.end(), [&](int32_t m) { return can[at(m)]; })
               : bool{can[at(op.peer)]};
  }
  if (op.what >= Do::kPost) {
    bool all = true;
    sim.each_missing(thread, [&](int32_t rank) { all = all && can[at(rank)]; });
    return all;
  }
  const auto may = [&](int32_t r) { return may_be(sim, sim.requests[static_cast<size_t>(r)], can, may_buffer); };
  return op.what == Do::kWaitany ? std::any_of(thread.waiting.begin(), thread.waiting.end(), may)
                                 : std::all_of(thread.waiting.begin(), thread.waiting.end(), may);
}

/// Who may act now or later, without a delivery. The threads of `free` ranks do anything.
Flags movable(const Sim& sim, const Flags& free, bool may_buffer) {
  Flags can = free;
  for (bool more = true; more;) {
    more = false;
    for (const SimThread& thread : sim.threads)
      if (!can[at(thread.rank)] && !sim.ended(thread.rank) && !sim.finalizing(thread.rank) &&
          may_return(sim, thread, can, may_buffer))
        can[at(thread.rank)] = more = true;
  }
  return can;
}

std::string key(const Sim& sim) {
  std::string text;
  for (const SimMessage& message : sim.messages) text += message.delivered ? message.matched ? 'm' : 'd' : '.';
  for (const SimRequest& request : sim.requests) text += request.done ? '1' : '0';
  for (int32_t rank = 0; rank < sim.ranks; ++rank) {
    for (int32_t m : sim.unexpected[at(rank)]) text += std::to_string(m) + ',';
    text += ';';
  }
  return text;
}

}  // namespace

std::optional<std::vector<bool>> doomed(const Sim& start, const std::vector<bool>& free, bool may_buffer) {
  constexpr size_t kMost = 3000;
  Flags ever = free;
  std::set<std::string> seen = {key(start)};
  std::vector<Sim> open = {start};
  open[0].cut = false;
  while (!open.empty()) {
    const Sim sim = std::move(open.back());
    open.pop_back();
    const Flags can = movable(sim, free, may_buffer);
    for (size_t rank = 0; rank < can.size(); ++rank) ever[rank] = ever[rank] || can[rank];
    auto go_on = [&](Sim&& next) {
      if (seen.insert(key(next)).second) open.push_back(std::move(next));
    };
    for (const Sim::Move& move : sim.moves())
      if (move.kind == Sim::Move::kDeliver) {
        Sim next = sim;
        next.apply(move);
        go_on(std::move(next));
      }
    // Whoever can act may send first to a receive from anybody (or of any tag), so that an older message meets another
    // receive.
    for (int32_t rank = 0; rank < sim.ranks; ++rank)
      for (size_t i = 0; i < sim.posted[at(rank)].size(); ++i) {
        const SimRequest& request = sim.requests[static_cast<size_t>(sim.posted[at(rank)][i])];
        if ((request.peer != ring::kAnySource && request.tag != ring::kAnyTag) ||
            !may_be(sim, request, can, may_buffer))
          continue;
        Sim next = sim;
        next.requests[static_cast<size_t>(sim.posted[at(rank)][i])].done = true;
        next.posted[at(rank)].erase(next.posted[at(rank)].begin() + static_cast<long>(i));
        go_on(std::move(next));
      }
    if (seen.size() > kMost) return {};
  }
  Flags never(ever.size());
  for (int32_t rank = 0; rank < start.ranks; ++rank)
    never[at(rank)] = !ever[at(rank)] && !start.ended(rank) && !start.finalizing(rank);
  return never;
}

}  // namespace hang_test
