// SPDX-License-Identifier: Apache-2.0
//
// One reduction as the program called it, and the decision which way it goes. The decision must be the same on all
// ranks: it depends on the number of ranks, the operator and the number and size of the elements, and on nothing that
// one rank alone knows, but for calls that the library refuses before it communicates.
#pragma once

#include <cstdint>

#include "pipeline/reduction/operand.h"
#include "shim/model/calls.h"
#include "shim/model/transfers.h"

namespace resil {
struct CommInfo;
struct Event;
struct Thread;
}  // namespace resil

namespace resil::reduction {

/// By which algorithm calls went; the last ones are the library's own, with the reason.
enum class Algorithm : uint8_t {
  kNativeSafe,  ///< the result does not depend on the order: integers, one rank, no data
  kOrder,
  kExact,
  kP2p,
  kNativeRanks,  ///< some rank of the job runs without resil
  kNativeWorld,  ///< members of another world
  kNativeArguments,  ///< the library will refuse it
  kNativeSize,  ///< nonblocking or persistent, over nodes, and too large to be gathered
  kNativePersistent,  ///< the library has no persistent collective to build on
  kCount,
};
const char* algorithm_name(Algorithm algorithm);

/// This thread's last operands.
struct OperandCache {
  struct Entry {
    Operand operand;
    uint32_t generation;
    bool used;
    Verdict verdict;
  };
  Entry entries[16];
};

constexpr unsigned kAlgorithms = static_cast<unsigned>(Algorithm::kCount);
/// One writer; others read them for the report.
struct WayCounts {
  uint64_t calls[kAlgorithms], bytes[kAlgorithms];
  uint64_t by_node;  ///< of the calls: through node-local memory
  uint64_t by_groups;  ///< of these: by groups of ranks (groups.h)
};
inline void count_more(uint64_t& counter, uint64_t more) {
  __atomic_store_n(&counter, counter + more, __ATOMIC_RELAXED);
}

struct Pending;
struct Repeated;

struct PerThread {
  Scratch scratch;
  OperandCache cache;
  Repeated* repeated;  ///< see repeated.h
  WayCounts counts;
  PerThread* next;
};
/// Makes it on a thread's first reduction; ends the job when there is no memory.
PerThread& per_thread(Thread& thread);

struct Call {
  Collective operation;
  Initiation initiation;
  bool in_place, large;
  uint64_t comm;
  CommInfo* info;
  int32_t size, rank;  ///< of the local group
  int32_t remote;  ///< -1: intracommunicator
  int32_t root;  ///< as in ring_format.h
  const void* input;  ///< this rank's contribution
  void* output;
  int64_t count;  ///< elements of the whole vector
  int64_t block;  ///< kReduceScatterBlock: elements of each block
  const void* counts;  ///< kReduceScatter: int[], MPI_Count[] when large
  Operand operand;

  Members members() const { return {rank, size, remote, 0, 0}; }
  bool inter() const { return members().inter(); }
  /// Ranks whose contributions are folded.
  int64_t contributors() const { return members().partners(); }
  int64_t block_of(int64_t rank) const;
  bool is_root() const { return resil::is_root(root, members()); }
};

/// Bytes of all contributions together that one collective moves at most, where they cannot be divided further.
constexpr int64_t kLargestPiece = int64_t{1} << 30;

/// Fills `call` and decides. kOrder and kExact: resil carries it out.
Algorithm decide(Event& event, PerThread& mine, bool exact, Call* call);

}  // namespace resil::reduction
