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
  kSync,  ///< MPI_Win_post, start, complete, wait, lock, unlock, flush and the like; MPI_Comm_create_group
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
  kGroup,  ///< MPI_Comm_create_group: the members of a group
  kRelease,  ///< MPI_Comm_free and disconnect
  kFile,  ///< MPI_File_open, and what is collective over a file
  kOrdered,  ///< of those, transfers in the order of the ranks
  kFinalize,
};

namespace calls_detail {

constexpr Kind kind_of(Collective operation, bool uniform) {
  switch (operation) {
    case Collective::kBarrier: return Kind::kBarrier;
    case Collective::kBcast: return Kind::kBcast;
    case Collective::kGather: return uniform ? Kind::kGather : Kind::kGatherv;
    case Collective::kScatter: return uniform ? Kind::kScatter : Kind::kScatterv;
    case Collective::kAllgather: return uniform ? Kind::kAllgather : Kind::kVector;
    case Collective::kAlltoall: return uniform ? Kind::kAlltoall : Kind::kVector;
    case Collective::kReduce: return Kind::kReduce;
    case Collective::kAllreduce: return Kind::kAllreduce;
    case Collective::kReduceScatter: return Kind::kReduceScatter;
    case Collective::kReduceScatterBlock: return Kind::kReduceScatterBlock;
    case Collective::kScan:
    case Collective::kExscan: return Kind::kScan;
    case Collective::kNeighborAllgather:
    case Collective::kNeighborAlltoall: return Kind::kNeighbor;
    case Collective::kNone: break;
  }
  return Kind::kNone;
}

constexpr Kind kind_of(CommCall call) {
  switch (call) {
    case CommCall::kCreate: return Kind::kCreate;
    case CommCall::kIntercommCreate: return Kind::kBetween;
    case CommCall::kFree: return Kind::kRelease;
    case CommCall::kCreateFromGroup: return Kind::kGroup;
    case CommCall::kConnect:  // with another world,
    case CommCall::kJoin:
    case CommCall::kShrink:  // or over those that are left
    case CommCall::kAgree:
    case CommCall::kRevoke:
    case CommCall::kNone: break;
  }
  return Kind::kNone;
}

constexpr Kind kind_of(const CallInfo& info) {
  switch (info.call_class) {
    case CallClass::kCollective: return kind_of(info.collective, info.counts == Counts::kUniform);
    case CallClass::kComm: return kind_of(info.comm);
    case CallClass::kWindow: return info.window == WindowCall::kCreate ? Kind::kCreate : Kind::kNone;
    case CallClass::kFile:
      return !info.all ? Kind::kNone : info.pointer == FilePointer::kShared ? Kind::kOrdered : Kind::kFile;
    case CallClass::kLifecycle: return info.lifecycle == LifecycleCall::kFinalize ? Kind::kFinalize : Kind::kNone;
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
  return Kind::kNone;
}

constexpr Role role_of(WindowCall call) {
  switch (call) {
    case WindowCall::kCreate: return Role::kCollective;
    case WindowCall::kFree:
    case WindowCall::kFence: return Role::kWindow;
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
    case WindowCall::kFlushLocalAll: return Role::kSync;
    case WindowCall::kTest: return Role::kSyncPoll;
    case WindowCall::kSync:
    case WindowCall::kNone: break;
  }
  return Role::kOther;
}

/// Of what may block, start an operation or make a persistent one.
constexpr Role by_initiation(const CallInfo& info, Role blocking, Role nonblocking, Role persistent) {
  return info.has(kCallPersistent) ? persistent : info.has(kCallStarts) ? nonblocking : blocking;
}

constexpr Role role_of(const CallInfo& info) {
  switch (info.call_class) {
    case CallClass::kSend: return by_initiation(info, Role::kSend, Role::kPostSend, Role::kMakeSend);
    case CallClass::kReceive: return by_initiation(info, Role::kReceive, Role::kPostReceive, Role::kMakeReceive);
    case CallClass::kSendReceive:
    case CallClass::kSendReceiveReplace: return by_initiation(info, Role::kSendReceive, Role::kPostBoth, Role::kOther);
    case CallClass::kProbe:
    case CallClass::kMatchedProbe: return info.has(kCallPoll) ? Role::kProbePoll : Role::kProbe;
    case CallClass::kMatchedReceive: return by_initiation(info, Role::kOther, Role::kPostMatched, Role::kOther);
    case CallClass::kPartitionedSend:
    case CallClass::kPartitionedReceive: return Role::kPartitioned;
    case CallClass::kPartitionArrived: return Role::kOtherPoll;
    case CallClass::kCompletion: return info.has(kCallPoll) ? Role::kTest : Role::kWait;
    case CallClass::kGetStatus:  // of several: only while no module follows requests (one_by_one)
      return info.completion == Completion::kOne ? Role::kTest : Role::kOtherPoll;
    case CallClass::kRequestFree: return Role::kFree;
    case CallClass::kCancel: return Role::kCancel;
    case CallClass::kCollective:
      return by_initiation(info, Role::kCollective, Role::kPostCollective, Role::kMakeCollective);
    case CallClass::kComm:
      if (info.comm == CommCall::kConnect || info.comm == CommCall::kJoin) return Role::kForeign;
      if (kind_of(info.comm) == Kind::kNone) return Role::kOther;
      if (kind_of(info.comm) == Kind::kGroup) return info.has(kCallBlocking) ? Role::kSync : Role::kOther;
      return by_initiation(info, Role::kCollective, Role::kPostCollective, Role::kOther);
    case CallClass::kWindow: return role_of(info.window);
    case CallClass::kRma: return Role::kOperate;
    case CallClass::kFile:
      return !info.all ? Role::kOther : info.file == FileCall::kOpen ? Role::kCollective : Role::kFile;
    case CallClass::kLifecycle: return info.lifecycle == LifecycleCall::kFinalize ? Role::kFinalize : Role::kOther;
    case CallClass::kLocal:
    case CallClass::kPartitionReady:
    case CallClass::kBuffer:
    case CallClass::kStart:
    case CallClass::kGeneralizedRequest: break;
  }
  return Role::kOther;
}

}  // namespace calls_detail

struct CallMeaning {
  Role role;
  Kind kind;
};

inline constexpr auto kCallMeanings = by_call([](const CallInfo& info) {
  return CallMeaning{calls_detail::role_of(info), calls_detail::kind_of(info)};
});

/// Does a call of that kind wait for the ranks that its own counts name?
constexpr bool has_sources(Kind kind) {
  return kind == Kind::kVector || kind == Kind::kGatherv || kind == Kind::kNeighbor;
}
constexpr bool is_poll(Role role) {
  return role == Role::kTest || role == Role::kProbePoll || role == Role::kOtherPoll || role == Role::kSyncPoll;
}
constexpr const CallMeaning& meaning_of(CallId id) { return kCallMeanings[id]; }

}  // namespace resil::hang
