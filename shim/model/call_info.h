// SPDX-License-Identifier: Apache-2.0
//
// What is known of every MPI function before it is called, from the table shim/api/mpi.txt alone.
#pragma once

#include <cstdint>

#include "calls.h"  // generated: enum class CallId, kCallCount

namespace resil {

/// Attributes of the table, see the head of shim/api/mpi.txt.
enum CallAttribute : uint32_t {
  kCallBlocking = 1u << 0,
  kCallLocal = 1u << 1,
  kCallPoll = 1u << 2,
  kCallStarts = 1u << 3,
  kCallActivates = 1u << 4,
  kCallCompletes = 1u << 5,
  kCallCollective = 1u << 6,
  kCallCreatesComm = 1u << 7,
  kCallPersistent = 1u << 8,
  kCallPartitioned = 1u << 9,
  kCallP2P = 1u << 10,
  kCallRma = 1u << 11,
  kCallIo = 1u << 12,
  kCallTool = 1u << 13,
  kCallLifecycle = 1u << 14,
  kCallMpi4 = 1u << 15,
  kCallLarge = 1u << 16,
  kCallLargeCount = 1u << 18,  ///< the `_c` twin itself
  kCallHasData = 1u << 19,  ///< one significant (count, type)
  kCallBothWays = 1u << 20,  ///< sends and receives: MPI_Sendrecv and its kin
  kCallReceives = 1u << 17,  ///< point-to-point, one-sided or I/O: the data comes in
};

/// Which arguments are significant on this rank and say how many bytes the call moves (MPI 4.0, chapters 3 and 6).
enum class Shape : uint8_t {
  kNone,
  kPlain,
  kPartitioned,
  kRooted,
  kGather,
  kScatter,
  kAllGather,
  kAllToAll,
  kAllToAllV,
  kAllToAllW,
  kReduceScatter,
  kReduceScatterBlock,
  kNeighborAllToAll,
  kNeighborV,
  kNeighborW,
};

struct CallInfo {
  const char* name;  ///< "MPI_Send_c"
  uint32_t attributes;
  Shape shape;
};

inline constexpr CallInfo kCallInfo[kCallCount] = {
#include "calls.inc"
};

constexpr const CallInfo& call_info(CallId id) { return kCallInfo[static_cast<unsigned>(id)]; }

}  // namespace resil
