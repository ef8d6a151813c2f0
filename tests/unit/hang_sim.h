// SPDX-License-Identifier: Apache-2.0
//
// A tiny MPI: ranks with one or two threads run random programs over a network that delays messages, one step of one
// thread or one delivery at a time. It keeps the counters that resil's wrappers keep, and knows the truth.
#pragma once

#include <random>

#include "hang_states.h"

namespace hang_test {

enum class Do : uint8_t { kSend, kRecv, kIsend, kIrecv, kSendrecv, kWaitall, kWaitany, kProbe, kCollective, kIcollective, kCancel, kCompute, kDie, kFinish };
enum class Wave : uint8_t { kBarrier, kBcast, kScan, kReduce };

struct Op {
  Do what;
  uint64_t comm = kWorld;
  int32_t peer = -1, tag = 0;
  int32_t source = -1, receive_tag = 0;  ///< kSendrecv
  bool small = false;
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
  std::vector<int32_t> open;     ///< requests that the program has not waited for
  std::vector<int32_t> waiting;  ///< of the call inside
  int compute = 0;
};

struct Sim {
  explicit Sim(uint64_t seed);

  /// One random step; false: nothing can move.
  bool step(std::mt19937_64& random);
  bool stuck() const;
  /// The world as resil would see it now, with the noise of this run.
  World world() const;

  struct Move { enum Kind : uint8_t { kDeliver, kStart, kFinishCall } kind; int32_t index; };
  std::vector<Move> moves() const;
  void apply(const Move& move);
  bool can_return(const SimThread& thread) const;
  bool satisfied(const SimRequest& request) const;
  bool ended(int32_t rank) const { return finished[static_cast<size_t>(rank)] || gone[static_cast<size_t>(rank)]; }
  bool finalizing(int32_t rank) const;
  bool inside_all(int32_t rank) const;

  int32_t ranks;
  std::vector<SimThread> threads;
  std::vector<SimRequest> requests;
  std::vector<SimMessage> messages;
  std::vector<std::vector<int32_t>> unexpected, posted;  ///< by rank: messages and requests, in order
  std::map<uint64_t, std::vector<int32_t>> comms;
  std::map<uint64_t, std::vector<Wave>> waves;           ///< what the k-th collective on a communicator is; root is member k % size
  std::map<std::pair<uint64_t, int32_t>, uint64_t> entered;
  std::vector<bool> finished, gone;
  bool local_finalize, late_reduce;
  // Counters and noise, as the wrappers would have them.
  std::map<std::tuple<int32_t, uint64_t, int32_t, int32_t>, Count> counts;
  std::vector<uint32_t> irregular;
  std::vector<bool> few_tags, blind;  ///< tags above 0 share one envelope; statuses that cannot be read
  bool wildcards = false;             ///< any in the programs
  bool noisy = false;
  bool cut = false;                   ///< the network delivers nothing any more

 private:
  void start(SimThread& thread);
  void finish_call(SimThread& thread);
  int32_t post_send(int32_t rank, const Op& op);
  int32_t post_receive(int32_t rank, uint64_t comm, int32_t source, int32_t tag);
  int32_t post_collective(int32_t rank, uint64_t comm);
  void deliver(int32_t message);
  void match(int32_t receive, int32_t message);
  void told(SimRequest& request);
  Count& count(int32_t owner, uint64_t comm, int32_t peer, int32_t tag) { return counts[{owner, comm, peer, kept_tag(owner, tag)}]; }
  int32_t kept_tag(int32_t owner, int32_t tag) const { return few_tags[static_cast<size_t>(owner)] && tag > 0 ? kOtherTags : tag; }
  Part part_of(const SimRequest& request) const;
};

/// Ranks that can never leave the calls they are in, whatever all others do: every order of deliveries is tried, and a
/// rank that can still act may send and receive whatever it likes. `lenient`: also calls that MPI lets return.
/// Empty optional: too many orders.
std::optional<std::vector<bool>> doomed(const Sim& sim, const std::vector<bool>& free, bool lenient);

}  // namespace hang_test
