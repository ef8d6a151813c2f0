// SPDX-License-Identifier: Apache-2.0
//
// A tiny MPI: ranks with one or two threads run random programs over a network that delays messages, one step of one
// thread or one delivery at a time. It keeps the counters that resil's wrappers keep, and knows the truth.
#pragma once

#include <random>
#include <set>

#include "hang_states.h"

namespace hang_test {

enum class Do : uint8_t {
  kSend,
  kRecv,
  kIsend,
  kIrecv,
  kSendrecv,
  kWaitall,
  kWaitany,
  kProbe,
  kCollective,
  kIcollective,
  kCancel,
  kCompute,
  kDie,
  kFinish,
  kPost,
  kStart,
  kComplete,
  kWinWait,
  kLock,
  kOperate,
  kFlush,
  kUnlock
};
enum class Wave : uint8_t { kBarrier, kBcast, kScan, kReduce };

struct Op {
  Do what;
  uint64_t comm = kWorld;
  int32_t peer = -1, tag = 0;
  int32_t source = -1, receive_tag = 0;  ///< kSendrecv
  bool small = false;
  std::vector<int32_t> group = {};  ///< kPost, kStart
  bool exclusive = false, brings = false;  ///< kLock; kOperate
};

struct SimRequest {
  enum Kind : uint8_t { kSend, kReceive, kCollective } kind;
  int32_t rank;
  uint64_t comm;
  int32_t peer, tag;
  uint64_t ordinal;  ///< collectives: sequence
  bool small = false, done = false, told = false;
  int32_t matched_source = -1, matched_tag = -1;
};

struct SimMessage {
  int32_t from, to, tag;
  uint64_t comm;
  int32_t request;  ///< of the sender
  bool delivered = false, matched = false;
};

struct SimThread {
  int32_t rank;
  std::vector<Op> program;
  size_t at = 0;
  bool inside = false;
  std::vector<int32_t> open;  ///< requests that the program has not waited for
  std::vector<int32_t> waiting;  ///< of the call inside
  int compute = 0;
};

/// One rank's epochs on the one window there is, kWindow, over all ranks; by rank.
struct SimEpochs {
  std::map<int32_t, uint64_t> access, exposure;  ///< partner -> number of the token awaited
  std::set<int32_t> brings;  ///< targets that an operation of this epoch brings data from
  struct Lock {
    bool exclusive, had = false, certain = false, pending = false;
  };
  std::map<int32_t, Lock> locks;
};

/// Where MPI leaves a choice.
struct Library {
  bool early_start, early_complete;  ///< do not wait for the posts unless an operation must
  bool late_tokens;  ///< MPI_Win_wait ends when the others have come back from MPI_Win_complete
  bool lazy_locks;  ///< had only when an operation needs them; on the own window at once
};

struct Sim {
  explicit Sim(uint64_t seed);

  /// One random step; false: nothing can move.
  bool step(std::mt19937_64& random);
  bool stuck() const;
  /// The world as resil would see it now, with the noise of this run.
  World world() const;

  struct Move {
    enum Kind : uint8_t { kDeliver, kStart, kFinishCall } kind;
    int32_t index;
  };
  std::vector<Move> moves() const;
  void apply(const Move& move);
  bool can_return(const SimThread& thread) const;
  bool satisfied(const SimRequest& request) const;
  /// The members that a barrier waits for: all, or those of the other group.
  std::vector<int32_t> awaited(uint64_t comm, int32_t rank) const;
  /// Calls `with(partner)` for each rank that must still act before this call over the window can return.
  template <class With>
  void each_missing(const SimThread& thread, With with) const;
  uint64_t tokens(int32_t from, int32_t to, int32_t token) const;
  bool ended(int32_t rank) const { return finished[static_cast<size_t>(rank)] || gone[static_cast<size_t>(rank)]; }
  bool finalizing(int32_t rank) const;
  bool inside_all(int32_t rank) const;

  int32_t ranks;
  std::vector<SimThread> threads;
  std::vector<SimRequest> requests;
  std::vector<SimMessage> messages;
  std::vector<std::vector<int32_t>> unexpected, posted;  ///< by rank: messages and requests, in order
  std::map<uint64_t, std::vector<int32_t>> comms;
  std::vector<int32_t> one, other;  ///< the groups of kInter, if there is one
  std::map<uint64_t, std::vector<Wave>>
      waves;  ///< what the k-th collective on a communicator is; root is member k % size
  std::map<std::pair<uint64_t, int32_t>, uint64_t> entered;
  std::vector<bool> finished, gone;
  bool local_finalize, late_reduce;
  Library library;
  std::vector<SimEpochs> epochs;
  std::map<std::pair<int32_t, int32_t>, uint64_t> completed;  ///< MPI_Win_complete that have returned: (from, to)
  bool active = false, passive = false;  ///< such calls are in the programs
  bool sure_of_waits = true;  ///< processor time shows that calls that need not wait do
  // Counters and noise, as the wrappers would have them.
  std::map<std::tuple<int32_t, uint64_t, int32_t, int32_t>, Count> counts;
  std::vector<uint32_t> irregular;
  std::vector<bool> few_tags, blind;  ///< tags above 0 share one envelope; statuses that cannot be read
  bool wildcards = false;  ///< any in the programs
  bool noisy = false;
  bool cut = false;  ///< the network delivers nothing any more

 private:
  void start(SimThread& thread);
  void finish_call(SimThread& thread);
  int32_t post_send(int32_t rank, const Op& op);
  int32_t post_receive(int32_t rank, uint64_t comm, int32_t source, int32_t tag);
  int32_t post_collective(int32_t rank, uint64_t comm);
  void plan_windows(std::mt19937_64& random);
  void start_window(const SimThread& thread, const Op& op);
  void finish_window(const SimThread& thread, const Op& op);
  void show_window(const SimThread& thread, World& world) const;
  void deliver(int32_t message);
  void match(int32_t receive, int32_t message);
  void told(SimRequest& request);
  Count& count(int32_t owner, uint64_t comm, int32_t peer, int32_t tag) {
    return counts[{owner, comm, peer, kept_tag(owner, tag)}];
  }
  int32_t kept_tag(int32_t owner, int32_t tag) const {
    return few_tags[static_cast<size_t>(owner)] && tag > 0 ? kOtherTags : tag;
  }
  Part part_of(const SimRequest& request) const;
};

template <class With>
void Sim::each_missing(const SimThread& thread, With with) const {
  const Op& op = thread.program[thread.at];
  const SimEpochs& own = epochs[static_cast<size_t>(thread.rank)];
  const bool starts = op.what == Do::kStart, completes = op.what == Do::kComplete;
  if ((starts && !library.early_start) || completes)
    for (const auto& [peer, number] : own.access)
      if ((starts || !library.early_complete || own.brings.contains(peer)) &&
          tokens(peer, thread.rank, kPostToken) < number)
        with(peer);
  if (op.what == Do::kWinWait)
    for (const auto& [peer, number] : own.exposure)
      if (tokens(peer, thread.rank, kCompleteToken) < number) with(peer);
  const auto place = own.locks.find(op.peer);
  const bool wants = op.what == Do::kLock ? place == own.locks.end() && (!library.lazy_locks || op.peer == thread.rank)
                                          : (op.what == Do::kFlush || op.what == Do::kUnlock) &&
                                                place != own.locks.end() && place->second.pending && !place->second.had;
  if (!wants) return;
  const bool exclusive = op.what == Do::kLock ? op.exclusive : place->second.exclusive;
  for (int32_t rank = 0; rank < ranks; ++rank) {
    const auto& locks = epochs[static_cast<size_t>(rank)].locks;
    const auto its = locks.find(op.peer);
    if (rank != thread.rank && its != locks.end() && its->second.had && (exclusive || its->second.exclusive))
      with(rank);
  }
}

/// Ranks that can never leave the calls they are in, whatever all others do: every order of deliveries is tried, and a
/// rank that can still act may send and receive whatever it likes. `may_buffer`: also calls that MPI lets return.
/// Empty optional: too many orders.
std::optional<std::vector<bool>> doomed(const Sim& sim, const std::vector<bool>& free, bool may_buffer);

}  // namespace hang_test
