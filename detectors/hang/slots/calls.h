// SPDX-License-Identifier: Apache-2.0
//
// What each MPI call means to the state slots, worked out from the API table by the compiler. The writing and the
// reading side share it, so that a slot holds only what does not follow from the call.
#pragma once

#include <cstdint>

#include "detectors/hang/slots/layout.h"
#include "shim/model/call_info.h"

namespace resil::hang {

enum class Role : uint8_t {
  kOther,  ///< cannot be judged: RMA, I/O, partitioned, MPI_Init, ...
  kSend,  ///< blocking
  kReceive,  ///< blocking; MPI_Mrecv is kOther: its message is there
  kSendReceive,  ///< blocking
  kProbe,  ///< blocking, MPI_Mprobe too
  kPostSend,
  kPostReceive,
  kPostBoth,  ///< nonblocking
  kPostMatched,  ///< MPI_Imrecv
  kMakeSend,
  kMakeReceive,  ///< persistent
  kWait,  ///< completes requests, blocking
  kFree,  ///< MPI_Request_free
  kTest,  ///< completes requests, returns at once; MPI_Request_get_status too
  kProbePoll,  ///< MPI_Iprobe, MPI_Improbe
  kOtherPoll,  ///< MPI_Parrived
  kCollective,  ///< blocking, and whatever else is collective over its communicator
  kPostCollective,
  kMakeCollective,
  kCancel,
  kPartitioned,
  kForeign,  ///< MPI_Comm_spawn, accept, connect, join: waits for another world
  kFinalize,
  kWindow,  ///< MPI_Win_fence, MPI_Win_free: collective over a window
  kFile,  ///< collective over a file
  kSync,  ///< MPI_Win_post, start, complete, wait, lock, unlock, flush and their kin
  kSyncPoll,  ///< MPI_Win_test
  kOperate,  ///< MPI_Put and all that moves data to or from a window
};

/// Which ranks a collective call needs before it may return, and what must agree.
enum class Kind : uint8_t {
  kNone,
  kBarrier,
  kBcast,
  kReduce,
  kAllreduce,
  kGather,
  kGatherv,
  kScatter,
  kScatterv,
  kAllgather,
  kAlltoall,
  kVector,
  kReduceScatter,
  kReduceScatterBlock,
  kScan,
  kNeighbor,
  kCreate,  ///< makes a communicator or a window: all
  kBetween,  ///< MPI_Intercomm_create: all, and the other group
  kRelease,  ///< MPI_Comm_free and disconnect
  kFile,  ///< MPI_File_open, and what is collective over a file
  kOrdered,  ///< of those, transfers in the order of the ranks
  kFinalize,
};

struct CallMeaning {
  Role role;
  Kind kind;
  SendMode mode;
};

struct CallMeanings {
  CallMeaning of[kCallCount];
  uint16_t plain[kCallCount];  ///< the plain call of a `_c` twin, else the call itself
};
extern const CallMeanings kCallMeanings;

constexpr bool is_poll(Role role) {
  return role == Role::kTest || role == Role::kProbePoll || role == Role::kOtherPoll || role == Role::kSyncPoll;
}
inline const CallMeaning& meaning_of(CallId id) { return kCallMeanings.of[static_cast<unsigned>(id)]; }

}  // namespace resil::hang
