// SPDX-License-Identifier: Apache-2.0
//
// What each class of MPI calls is to the state slots, worked out by the compiler from shim/model/calls.h. The writing
// and the reading side share it, so that a slot holds only what does not follow from the call.
#pragma once

#include <cstdint>

#include "detectors/hang/slots/layout.h"
#include "shim/model/calls.h"

namespace resil::hang {

static_assert(kCallCount <= 1024, "call ids in signatures have 10 bits");

enum class Handling : uint8_t {
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
  kSync,  ///< MPI_Win_post, start, complete, wait, lock, unlock, flush and the like; MPI_Comm_create_group
  kSyncPoll,  ///< MPI_Win_test
  kOperate,  ///< MPI_Put and all that moves data to or from a window
};

/// Which ranks a collective call needs before it may return, and what must agree.
enum class Pattern : uint8_t {
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
  kIntercomm,  ///< MPI_Intercomm_create: all, and the other group
  kGroup,  ///< MPI_Comm_create_group: the members of a group
  kRelease,  ///< MPI_Comm_free and disconnect
  kFile,  ///< MPI_File_open, and what is collective over a file
  kOrdered,  ///< of those, transfers in the order of the ranks
  kFinalize,
};

namespace calls_detail {

constexpr Pattern pattern_of(Collective operation, bool uniform) {
  switch (operation) {
    case Collective::kBarrier: return Pattern::kBarrier;
    case Collective::kBcast: return Pattern::kBcast;
    case Collective::kGather: return uniform ? Pattern::kGather : Pattern::kGatherv;
    case Collective::kScatter: return uniform ? Pattern::kScatter : Pattern::kScatterv;
    case Collective::kAllgather: return uniform ? Pattern::kAllgather : Pattern::kVector;
    case Collective::kAlltoall: return uniform ? Pattern::kAlltoall : Pattern::kVector;
    case Collective::kReduce: return Pattern::kReduce;
    case Collective::kAllreduce: return Pattern::kAllreduce;
    case Collective::kReduceScatter: return Pattern::kReduceScatter;
    case Collective::kReduceScatterBlock: return Pattern::kReduceScatterBlock;
    case Collective::kScan:
    case Collective::kExscan: return Pattern::kScan;
    case Collective::kNeighborAllgather:
    case Collective::kNeighborAlltoall: return Pattern::kNeighbor;
    case Collective::kNone: break;
  }
  return Pattern::kNone;
}

constexpr Pattern pattern_of(CommCall call) {
  switch (call) {
    case CommCall::kCreate: return Pattern::kCreate;
    case CommCall::kIntercommCreate: return Pattern::kIntercomm;
    case CommCall::kFree: return Pattern::kRelease;
    case CommCall::kCreateFromGroup: return Pattern::kGroup;
    case CommCall::kConnect:  // with another world,
    case CommCall::kJoin:
    case CommCall::kShrink:  // or over those that are left
    case CommCall::kAgree:
    case CommCall::kRevoke:
    case CommCall::kNone: break;
  }
  return Pattern::kNone;
}

constexpr Pattern pattern_of(const CallInfo& info) {
  switch (info.call_class) {
    case CallClass::kCollective: return pattern_of(info.collective, info.counts == Counts::kUniform);
    case CallClass::kComm: return pattern_of(info.comm);
    case CallClass::kWindow: return info.window == WindowCall::kCreate ? Pattern::kCreate : Pattern::kNone;
    case CallClass::kFile:
      return !info.all ? Pattern::kNone : info.pointer == FilePointer::kShared ? Pattern::kOrdered : Pattern::kFile;
    case CallClass::kLifecycle: return info.lifecycle == LifecycleCall::kFinalize ? Pattern::kFinalize : Pattern::kNone;
    case CallClass::kLocal:
    case CallClass::kSend:
    case CallClass::kReceive:
    case CallClass::kSendReceive:
    case CallClass::kSendReceiveReplace:
    case CallClass::kProbe:
    case CallClass::kMatchedProbe:
    case CallClass::kMatchedReceive:
    case CallClass::kPartitionedSend:
    case CallClass::kPartitionedReceive:
    case CallClass::kPartitionReady:
    case CallClass::kPartitionArrived:
    case CallClass::kBuffer:
    case CallClass::kCompletion:
    case CallClass::kGetStatus:
    case CallClass::kRequestFree:
    case CallClass::kCancel:
    case CallClass::kStart:
    case CallClass::kGeneralizedRequest:
    case CallClass::kRma: break;
  }
  return Pattern::kNone;
}

constexpr Handling handling_of(WindowCall call) {
  switch (call) {
    case WindowCall::kCreate: return Handling::kCollective;
    case WindowCall::kFree:
    case WindowCall::kFence: return Handling::kWindow;
    case WindowCall::kPost:
    case WindowCall::kStart:
    case WindowCall::kComplete:
    case WindowCall::kWait:
    case WindowCall::kLock:
    case WindowCall::kLockAll:
    case WindowCall::kUnlock:
    case WindowCall::kUnlockAll:
    case WindowCall::kFlush:
    case WindowCall::kFlushAll:
    case WindowCall::kFlushLocal:
    case WindowCall::kFlushLocalAll: return Handling::kSync;
    case WindowCall::kTest: return Handling::kSyncPoll;
    case WindowCall::kSync:
    case WindowCall::kNone: break;
  }
  return Handling::kOther;
}

/// Of what may block, start an operation or make a persistent one.
constexpr Handling by_initiation(const CallInfo& info, Handling blocking, Handling nonblocking, Handling persistent) {
  return info.has(kCallPersistent) ? persistent : info.has(kCallStarts) ? nonblocking : blocking;
}

constexpr Handling handling_of(const CallInfo& info) {
  switch (info.call_class) {
    case CallClass::kSend: return by_initiation(info, Handling::kSend, Handling::kPostSend, Handling::kMakeSend);
    case CallClass::kReceive:
      return by_initiation(info, Handling::kReceive, Handling::kPostReceive, Handling::kMakeReceive);
    case CallClass::kSendReceive:
    case CallClass::kSendReceiveReplace:
      return by_initiation(info, Handling::kSendReceive, Handling::kPostBoth, Handling::kOther);
    case CallClass::kProbe:
    case CallClass::kMatchedProbe: return info.has(kCallPoll) ? Handling::kProbePoll : Handling::kProbe;
    case CallClass::kMatchedReceive:
      return by_initiation(info, Handling::kOther, Handling::kPostMatched, Handling::kOther);
    case CallClass::kPartitionedSend:
    case CallClass::kPartitionedReceive: return Handling::kPartitioned;
    case CallClass::kPartitionArrived: return Handling::kOtherPoll;
    case CallClass::kCompletion: return info.has(kCallPoll) ? Handling::kTest : Handling::kWait;
    case CallClass::kGetStatus:  // of several: only while no module follows requests (one_by_one)
      return info.completion == Completion::kOne ? Handling::kTest : Handling::kOtherPoll;
    case CallClass::kRequestFree: return Handling::kFree;
    case CallClass::kCancel: return Handling::kCancel;
    case CallClass::kCollective:
      return by_initiation(info, Handling::kCollective, Handling::kPostCollective, Handling::kMakeCollective);
    case CallClass::kComm:
      if (info.comm == CommCall::kConnect || info.comm == CommCall::kJoin) return Handling::kForeign;
      if (pattern_of(info.comm) == Pattern::kNone) return Handling::kOther;
      if (pattern_of(info.comm) == Pattern::kGroup) return info.has(kCallBlocking) ? Handling::kSync : Handling::kOther;
      return by_initiation(info, Handling::kCollective, Handling::kPostCollective, Handling::kOther);
    case CallClass::kWindow: return handling_of(info.window);
    case CallClass::kRma: return Handling::kOperate;
    case CallClass::kFile:
      return !info.all ? Handling::kOther : info.file == FileCall::kOpen ? Handling::kCollective : Handling::kFile;
    case CallClass::kLifecycle:
      return info.lifecycle == LifecycleCall::kFinalize ? Handling::kFinalize : Handling::kOther;
    case CallClass::kLocal:
    case CallClass::kPartitionReady:
    case CallClass::kBuffer:
    case CallClass::kStart:
    case CallClass::kGeneralizedRequest: break;
  }
  return Handling::kOther;
}

}  // namespace calls_detail

struct CallMeaning {
  Handling handling;
  Pattern pattern;
};

inline constexpr auto kCallMeanings = by_call([](const CallInfo& info) {
  return CallMeaning{calls_detail::handling_of(info), calls_detail::pattern_of(info)};
});

/// Does a call of that kind wait for the ranks that its own counts name?
constexpr bool has_sources(Pattern pattern) {
  return pattern == Pattern::kVector || pattern == Pattern::kGatherv || pattern == Pattern::kNeighbor;
}
constexpr bool is_poll(Handling handling) {
  return handling == Handling::kTest || handling == Handling::kProbePoll || handling == Handling::kOtherPoll ||
         handling == Handling::kSyncPoll;
}
constexpr const CallMeaning& meaning_of(CallId id) { return kCallMeanings[id]; }

}  // namespace resil::hang
