// SPDX-License-Identifier: Apache-2.0
//
// One judgement: views of the states, communicators, facts about every part, and the network of nodes that "can still
// go on" or cannot.
//
// Nodes, in this order: ranks 0..ranks-1; threads of candidates; links (members of a communicator in the order of their
// sequence: link i can go on when its member and link i-1 can, so that a wave is one link and all waves of a
// communicator together have as many arcs as it has members); groups (all members of a communicator, for wildcards);
// leavers (a rank where it has freed a communicator or window: it does nothing there any more, whatever it does
// elsewhere).
#pragma once

#include "detectors/hang/graph.h"
#include "detectors/hang/graph/arena.h"
#include "detectors/hang/graph/tally.h"

namespace resil::hang::graph {

constexpr uint32_t kNone = ~0u;
constexpr uint32_t kLeaver = 1u << 31;  ///< with a rank, until connect(): its leaver

/// What a rank is to the proof.
enum class RankStatus : uint8_t {
  kRunnable,  ///< may do anything: computing, moving, or not known
  kCandidate,  ///< blocked in calls that are known whole
  kFinalizing,  ///< blocked in MPI_Finalize: neither sends, receives nor calls a collective again
  kFinished,  ///< has left MPI_Finalize
  kGone,  ///< ended without MPI_Finalize
};
inline bool is_sink(RankStatus status) { return status >= RankStatus::kFinalizing; }

/// What is known of one part.
enum class Fact : uint8_t {
  kOpen,  ///< cannot be judged, or may be on its way: no reason to wait for ever
  kDone,  ///< certainly satisfied: sent, posted, all arrived. The call does not return all the same
  kHolds,  ///< not satisfied, and only `target` can do that
  kNever,  ///< nobody can
  kAside,  ///< has come; what counts is the rest of the collective that it is one source of
};

struct View {
  const ThreadWait* threads;
  const Part* parts;
  const Membership* comms;
  uint32_t first_thread, thread_count;  ///< node number less `ranks`; candidates only
  uint32_t first_part;  ///< in facts and targets; candidates only
  RankStatus status;
};

struct Member {
  uint32_t rank;
  int32_t comm_rank;
  uint64_t sequence;  ///< calls that others may wait for: of a communicator that was freed, all but that one
  bool freed;
  bool uncounted;  ///< likewise: nothing is known of its messages
};

struct Comm {
  uint64_t id;
  int32_t size, remote_size;
  uint32_t first, count;  ///< in members (ascending world rank) and order
  uint32_t irregular;  ///< of all members together
  uint32_t link;  ///< node of the first link, kNone: no chain
  uint32_t group;  ///< node, kNone
  uint32_t core_at;  ///< place in order of the first member that belongs to the core; set by find_core()
  bool broken;  ///< states disagree about it: nothing is judged on it
  bool complete;  ///< every member has reported
  bool chained;  ///< somebody waits for a wave
  bool wild;  ///< somebody waits for any source
  bool left;  ///< some member has freed it
};

/// A lock of a window that a rank certainly holds.
struct Held {
  uint64_t window;
  int32_t target;
  bool exclusive;
  uint32_t rank;
};
constexpr uint32_t kMostHolders = 65536;  ///< of locks that several hold, over all that wait for them

/// What is taken for granted beyond what the counters say, after a long timeout.
enum class Assumed : uint8_t {
  kNothing,
  kDoneArrived,  ///< a message that was sent by a rank at rest has come: it is not what the call waits for
  kWildFirst,  ///< receives from any source have taken whatever they can, before those that name theirs
};

class Graph {
 public:
  /// `may_buffer` also counts waits that MPI does not demand; `hopeful`: what was not answered holds (for questions).
  Graph(const GraphInput& input, bool may_buffer, bool hopeful, Assumed assumed = Assumed::kNothing)
      : input_(input), may_buffer_(may_buffer), hopeful_(hopeful), assumed_(assumed) {}

  /// Builds and solves. False: no memory.
  bool solve(const Question* questions, uint32_t question_count, const Answer* answers, uint32_t answer_count);
  /// Strongly connected components of the nodes that cannot go on. False: no memory.
  bool find_components();

  // What follows is read by those who make verdicts and questions of it.
  const GraphInput& input() const { return input_; }
  bool may_buffer() const { return may_buffer_; }
  Assumed assumed() const { return assumed_; }
  bool wild_first() const { return assumed_ == Assumed::kWildFirst; }
  uint32_t ranks() const { return input_.count; }
  const RankState& state(uint32_t rank) const { return *input_.states[rank]; }
  const View& view(uint32_t rank) const { return views_[rank]; }
  RankStatus status(uint32_t rank) const { return views_[rank].status; }
  bool stuck(uint32_t node) const { return node != kNone && free_[node] == 0; }
  bool deadlocked(uint32_t rank) const { return status(rank) == RankStatus::kCandidate && free_[rank] == 0; }
  Fact fact(uint32_t rank, uint32_t part) const { return facts_[views_[rank].first_part + part]; }
  uint32_t target(uint32_t rank, uint32_t part) const { return targets_[views_[rank].first_part + part]; }
  uint32_t thread_node(uint32_t rank, uint32_t thread) const { return ranks() + views_[rank].first_thread + thread; }
  uint32_t component(uint32_t node) const { return component_[node]; }
  bool terminal(uint32_t component) const { return component != kNone && leaves_[component] == 0; }
  uint32_t component_count() const { return component_count_; }
  const Comm* comm(uint64_t id) const;
  Comm* comms() { return comms_; }
  uint32_t comm_count() const { return comm_count_; }
  const Member* member(const Comm& comm, uint32_t rank) const;
  /// Ascending world ranks.
  const Member* members_of(const Comm& comm) const { return members_ + comm.first; }
  /// The node that stands for this member: once it has freed the communicator, one that never goes on.
  uint32_t actor(const Member& of) const { return of.freed ? of.rank | kLeaver : of.rank; }
  bool is_leaver(uint32_t node) const { return node != kNone && node >= first_leaver_; }
  /// Of a leaver.
  uint32_t leaver_rank(uint32_t node) const { return node - first_leaver_; }
  uint32_t leaver(uint32_t rank) const { return left_ ? first_leaver_ + rank : kNone; }
  /// Does this node never do anything again?
  bool has_ended(uint32_t node) const { return is_leaver(node) || (node < ranks() && is_sink(status(node))); }
  /// The part by which a rank says that it has freed it; null: it has not.
  const Part* freed(uint64_t id, uint32_t rank) const;
  /// Members in the order of their sequence.
  const Member& in_order(const Comm& comm, uint32_t i) const { return members_[order_[comm.first + i]]; }
  /// How many members have not entered collective `sequence`: the first ones in order.
  uint32_t late(const Comm& comm, uint64_t sequence) const;
  const Tallies& tallies() const { return tallies_; }
  /// The call that waits for all of its parts, this one among them; null: for any, or none.
  const ThreadWait* call_of(uint32_t rank, const Part& part) const;
  /// How many receives the call waits for, all of them, that each take one of the messages that this receive from any
  /// source could: itself, and others of its communicator and tag.
  uint32_t receives_together(uint32_t rank, const Part& part) const;
  /// Calls `with(rank)` for each other rank that certainly holds what this wait for a lock needs. True: so does `me`.
  template <class With>
  bool each_holder(uint32_t me, const Part& part, With with) const;
  Arena& arena() { return arena_; }

  /// Calls `with(node or kNone)` for each arc of this stuck node from number `from` on, until it returns false: what it
  /// waits for and that is stuck as well. Ranks that have ended are left out where others could also end the wait: that
  /// they are gone is then not the reason.
  template <class With>
  void waits_for(uint32_t node, uint32_t from, With with) const;
  /// Rank of a node, kNone for links and groups.
  uint32_t rank_of(uint32_t node) const {
    return node < ranks() ? node : node < first_link_ ? thread_rank_[node - ranks()] : kNone;
  }

 private:
  friend class Judge;
  struct Edge {
    uint32_t from, to;
  };
  bool read_states();
  bool read_comms();
  template <class With>
  void each_membership(uint32_t rank, With with) const;
  uint64_t calls_made(uint32_t rank, const Membership& membership) const;
  bool order_members();
  bool read_holds();
  bool judge_parts();
  bool may_return(const Part& part) const;
  void settle_may_buffer();
  bool delivers(const Part& part) const;
  bool make_links();
  bool link_lower();
  void link_holders();
  void mark_skips();
  bool connect();
  bool propagate();
  uint32_t new_link(uint32_t rank, uint32_t before);

  const GraphInput& input_;
  const bool may_buffer_, hopeful_;
  const Assumed assumed_;
  Arena arena_;
  Tallies tallies_;
  View* views_ = nullptr;
  uint32_t threads_ = 0, parts_ = 0;
  uint32_t* thread_rank_ = nullptr;
  Held* holds_ = nullptr;
  uint32_t hold_count_ = 0, shared_locks_ = 0;
  bool lower_ = false;  ///< somebody waits for lower ranks only
  uint8_t* any_ = nullptr;  ///< by thread: one part ends the wait
  Fact* facts_ = nullptr;
  uint32_t* targets_ = nullptr;
  Comm* comms_ = nullptr;
  uint32_t comm_count_ = 0;
  uint32_t* comm_table_ = nullptr;
  size_t comm_mask_ = 0;
  Member* members_ = nullptr;
  uint32_t* order_ = nullptr;
  uint32_t member_count_ = 0;
  uint32_t first_link_ = 0, links_ = 0, link_room_ = 0, first_group_ = 0, nodes_ = 0;
  uint32_t first_leaver_ = kNone;
  bool left_ = false;  ///< there are leavers
  uint32_t* link_rank_ = nullptr;
  uint32_t* link_before_ = nullptr;  ///< node
  uint32_t* group_comm_ = nullptr;
  size_t arc_room_ = 0;
  uint8_t* free_ = nullptr;
  uint32_t* component_ = nullptr;
  uint8_t* leaves_ = nullptr;
  uint32_t component_count_ = 0;
  uint8_t* skip_sinks_ = nullptr;  ///< by thread
};

template <class With>
bool Graph::each_holder(uint32_t me, const Part& part, With with) const {
  uint32_t low = 0, high = hold_count_;
  while (low < high) {
    const uint32_t middle = (low + high) / 2;
    const Held& held = holds_[middle];
    if (held.window != part.comm ? held.window < part.comm : held.target < part.peer) low = middle + 1;
    else high = middle;
  }
  bool mine = false;
  for (; low < hold_count_ && holds_[low].window == part.comm && holds_[low].target == part.peer; ++low) {
    mine |= holds_[low].rank == me;
    if (holds_[low].rank != me && (holds_[low].exclusive || part.tag != 0)) with(holds_[low].rank);
  }
  return mine;
}

template <class With>
void Graph::waits_for(uint32_t node, uint32_t from, With with) const {
  if (node < ranks()) {
    const View& v = views_[node];
    if (v.status != RankStatus::kCandidate) return;
    for (uint32_t i = from; i < v.thread_count; ++i)
      if (!with(ranks() + v.first_thread + i)) return;
  } else if (node < first_link_) {
    const uint32_t rank = thread_rank_[node - ranks()];
    const View& v = views_[rank];
    const ThreadWait& wait = v.threads[node - ranks() - v.first_thread];
    const bool skip = skip_sinks_[node - ranks()] != 0;
    for (uint32_t i = from; i < wait.part_count; ++i) {
      const uint32_t at = v.first_part + wait.first_part + i;
      const bool follow = facts_[at] == Fact::kHolds && stuck(targets_[at]) && !(skip && has_ended(targets_[at]));
      if (!with(follow ? targets_[at] : kNone)) return;
    }
  } else if (node < first_group_) {
    const uint32_t arcs[2] = {link_rank_[node - first_link_], link_before_[node - first_link_]};
    for (uint32_t i = from; i < 2; ++i)
      if (!with(stuck(arcs[i]) ? arcs[i] : kNone)) return;
  } else if (!is_leaver(node)) {
    const Comm& c = comms_[group_comm_[node - first_group_]];
    for (uint32_t i = from; i < c.count; ++i)
      if (const Member& m = members_[c.first + i]; !with(m.freed || is_sink(status(m.rank)) ? kNone : m.rank)) return;
  }
}

}  // namespace resil::hang::graph
