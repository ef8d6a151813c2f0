// SPDX-License-Identifier: Apache-2.0
//
// A world in the words of the wait-for graph: states of ranks and the counters behind them, and what the nodes would
// answer. Used by the tables of hang_graph_test.cpp and filled by the simulator of hang_graph_random_test.cpp.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "detectors/hang/graph.h"
#include "detectors/hang/verdict/format.h"

namespace hang_test {

using namespace resil::hang;
namespace ring = resil::ring;

enum Call : uint16_t {
  kSendCall = 1,
  kRecvCall,
  kWaitCall,
  kWaitallCall,
  kWaitanyCall,
  kIrecvCall,
  kIsendCall,
  kSendrecvCall,
  kBarrierCall,
  kAllreduceCall,
  kBcastCall,
  kScanCall,
  kReduceCall,
  kIbarrierCall,
  kFinalizeCall,
  kProbeCall,
  kSsendCall,
  kStartCall,
  kCompleteCall,
  kPostCall,
  kWinWaitCall,
  kLockCall,
  kUnlockCall,
  kCallCount
};
const char* call_text(uint16_t id);

constexpr uint64_t kWorld = 100, kOther = 200, kWindow = 300, kInter = 400;  // communicators, a window, two groups

struct Rank {
  RankActivity activity = RankActivity::kComputing;
  bool stable = true, provable = true, in_finalize = false, unknown = false;
  uint32_t irregular = 0;
  std::vector<ThreadWait> threads;
  std::vector<Part> parts;
  std::vector<Membership> comms;
};

struct Count {
  uint64_t sent = 0, posted = 0, taken = 0, pending = 0;
};

struct Wild {
  uint64_t comm;
  int32_t owner, source, tag;
};

Part receive(int32_t peer, int32_t tag, uint64_t needed = 1, uint64_t comm = kWorld);
Part probe(int32_t peer, int32_t tag, uint64_t needed = 1, uint64_t comm = kWorld);
Part send(int32_t peer, int32_t tag, uint32_t ordinal = 1, uint8_t flags = 0, uint64_t comm = kWorld);
Part collective(uint16_t call, uint64_t sequence, uint64_t comm = kWorld, uint8_t flags = 0,
                int32_t root = ring::kNoPeer);
Part token(int32_t peer, int32_t tag, uint32_t number = 1, uint8_t flags = 0, uint64_t window = kWindow);
Part lock(int32_t target, bool exclusive, uint8_t flags = 0);
Part sink();
Part other();

struct World {
  /// All ranks compute, and are members of kWorld.
  explicit World(int32_t count);

  /// One more thread of `rank` blocks in `call`, and counts what its parts say: their sends and receives.
  ThreadWait& block(int32_t rank, uint16_t call, const std::vector<Part>& parts, WaitKind kind = WaitKind::kAll);
  void holds(int32_t rank, int32_t target, bool exclusive);
  void finish(int32_t rank);
  void die(int32_t rank);
  void finalize(int32_t rank);
  /// A communicator of these ranks, in their order.
  void comm(uint64_t id, const std::vector<int32_t>& members);
  void intercomm(uint64_t id, const std::vector<int32_t>& one, const std::vector<int32_t>& other);
  Membership& membership(int32_t rank, uint64_t comm);
  /// The rank frees it, by its next call there.
  Part& frees(int32_t rank, uint64_t comm, uint8_t flags = 0);
  Count& count(uint64_t comm, int32_t owner, int32_t peer, int32_t tag) { return counts[{owner, comm, peer, tag}]; }
  void sent(int32_t from, int32_t to, int32_t tag, uint64_t messages = 1, uint64_t comm = kWorld) {
    count(comm, from, to, tag).sent += messages;
  }

  std::vector<Question> questions();
  std::vector<Answer> answers(const std::vector<Question>& questions) const;
  std::optional<Verdict> judge(bool may_buffer = false);
  std::vector<const RankState*> states();

  std::vector<Rank> ranks;
  std::map<std::tuple<int32_t, uint64_t, int32_t, int32_t>, Count> counts;  ///< owner, communicator, peer, tag
  std::vector<Wild> wilds;
  int32_t node_ranks = 2;
  std::vector<int32_t> silent;  ///< ranks whose node does not count them
  uint32_t question_room = 1 << 16;
  uint32_t asked = 0;  ///< by the last judge()

 private:
  std::vector<std::vector<uint64_t>> records_;
};

/// In the names of this world.
std::string message_of(const Verdict& verdict);
std::string evidence_of(const Verdict& verdict);
std::vector<int32_t> culprits(const Verdict& verdict);
std::vector<int32_t> victims(const Verdict& verdict);

}  // namespace hang_test
