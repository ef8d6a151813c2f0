// SPDX-License-Identifier: Apache-2.0
//
// What every MPI function means, from its row in shim/api/mpi.txt alone: the one description, in the terms of the
// standard (MPI 4.1), that all modules share. No arguments, no state, nothing of an ABI. A module that treats classes
// differently does so by a switch without a default, so that the compiler names whoever has not heard of a new one.
#pragma once

#include <cstdint>

#include "call_ids.h"  // generated: enum class CallId, kCallCount
#include "shim/model/mpi_objects.h"

namespace resil {

/// Attributes of the table, see the head of shim/api/mpi.txt.
enum CallAttribute : uint32_t {
  kCallBlocking = 1u << 0,
  kCallLocal = 1u << 1,
  kCallPoll = 1u << 2,
  kCallStarts = 1u << 3,
  kCallActivates = 1u << 4,  ///< starts a request: MPI_Start, MPI_Pready and the like
  kCallCompletes = 1u << 5,  ///< completes or frees requests
  kCallCollective = 1u << 6,  ///< over all ranks of its communicator: has a sequence number
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
  kCallHasBlocks = 1u << 21,  ///< one (count, type) on each side, of which the calling rank's or all are significant
  kCallBothWays = 1u << 20,  ///< sends and receives: MPI_Sendrecv and the like
  kCallReceives = 1u << 17,  ///< point-to-point, one-sided or I/O: the data comes in
};

/// What a call is about. Whether it blocks, starts or is persistent: Initiation.
enum class CallClass : uint8_t {
  kLocal,  ///< never communicates, and no module sees it
  kLifecycle,  ///< begins or ends MPI: LifecycleCall
  kSend,
  kReceive,
  kSendReceive,
  kSendReceiveReplace,
  kProbe,
  kMatchedProbe,
  kMatchedReceive,
  kPartitionedSend,
  kPartitionedReceive,
  kPartitionReady,  ///< MPI_Pready and the like
  kPartitionArrived,  ///< MPI_Parrived
  kBuffer,  ///< of buffered sends: detach and flush
  kCompletion,  ///< MPI_Wait, MPI_Test and the like
  kGetStatus,  ///< MPI_Request_get_status and the like: the requests stay
  kRequestFree,
  kCancel,
  kStart,  ///< of persistent requests: MPI_Start, MPI_Startall
  kGeneralizedRequest,
  kCollective,  ///< with data, or MPI_Barrier
  kComm,  ///< makes, frees or repairs communicators: CommCall
  kWindow,  ///< makes, frees or synchronises a window: WindowCall
  kRma,  ///< one-sided communication: RmaOperation
  kFile,  ///< FileCall
};

/// How the call relates to the operation that it is about.
enum class Initiation : uint8_t { kBlocking, kNonblocking, kPersistent, kSplitBegin, kSplitEnd };

enum class LifecycleCall : uint8_t { kNone, kInit, kSessionInit, kFinalize, kSessionFinalize, kAbort };

/// Operation of a kCollective, whatever its variant.
enum class Collective : uint8_t {
  kNone,
  kBarrier,
  kBcast,
  kGather,
  kScatter,
  kAllgather,
  kAlltoall,
  kReduce,
  kAllreduce,
  kReduceScatter,
  kReduceScatterBlock,
  kScan,
  kExscan,
  kNeighborAllgather,
  kNeighborAlltoall,
};

/// Variant of a collective: one count for all ranks; v, a count for each; w, a datatype for each too.
enum class Counts : uint8_t { kUniform, kVector, kTyped };

/// How many of its requests a kCompletion or kGetStatus is about. It waits if it is `blocking`, else it tests.
enum class Completion : uint8_t { kNone, kOne, kAll, kAny, kSome };

/// How a send can end before it is received (MPI 4.0, 3.4). Stored in rings (detectors/hang/slots/layout.h): add at the
/// end.
enum class SendMode : uint8_t { kStandard, kSynchronous, kBuffered, kReady };

enum class CommCall : uint8_t {
  kNone,
  kCreate,  ///< collective over the communicator that it begins with
  kCreateFromGroup,  ///< over the members of a group only
  kIntercommCreate,  ///< over two communicators
  kConnect,  ///< with another world: spawn, accept, connect
  kJoin,  ///< likewise, over a socket of the program
  kFree,  ///< MPI_Comm_disconnect too
  kRevoke,
  kShrink,  ///< over those that are left
  kAgree,  ///< likewise
};

/// MPI 4.1, 12.2 and 12.5.
enum class WindowCall : uint8_t {
  kNone,
  kCreate,  ///< with memory of the program, of MPI, or none yet
  kFree,
  kFence,
  kPost,
  kStart,
  kComplete,
  kWait,
  kTest,
  kLock,
  kLockAll,
  kUnlock,
  kUnlockAll,
  kFlush,
  kFlushAll,
  kFlushLocal,
  kFlushLocalAll,
  kSync,
};

enum class RmaOperation : uint8_t { kNone, kPut, kGet, kAccumulate, kGetAccumulate, kFetchAndOp, kCompareAndSwap };

enum class FileCall : uint8_t {
  kNone,
  kOpen,
  kClose,
  kDelete,
  kSetSize,
  kPreallocate,
  kSetView,
  kSetAtomicity,
  kSeekShared,
  kSync,
  kRead,
  kWrite,
};

/// Where a kRead or kWrite begins. Shared and collective: in the order of the ranks.
enum class FilePointer : uint8_t { kNone, kExplicit, kIndividual, kShared };

struct CallInfo {
  const char* name;  ///< "MPI_Send_c"
  uint32_t attributes;
  CallId plain;  ///< of a `_c` twin the call without, else the call itself
  CallClass call_class;
  Initiation initiation;
  LifecycleCall lifecycle = LifecycleCall::kNone;
  Collective collective = Collective::kNone;
  Counts counts = Counts::kUniform;
  Completion completion = Completion::kNone;
  SendMode mode = SendMode::kStandard;  ///< of a kSend
  CommCall comm = CommCall::kNone;
  WindowCall window = WindowCall::kNone;
  RmaOperation rma = RmaOperation::kNone;
  FileCall file = FileCall::kNone;
  FilePointer pointer = FilePointer::kNone;
  bool all = false;  ///< of a kFile: collective over the file's ranks
  MpiObject makes = MpiObject::kNone;  ///< what it hands out, for the program to free
  MpiObject frees = MpiObject::kNone;

  constexpr bool has(uint32_t attribute) const { return (attributes & attribute) != 0; }
};

inline constexpr CallInfo kCallInfo[kCallCount] = {
#include "calls.inc"
};

constexpr const CallInfo& call_info(CallId id) { return kCallInfo[static_cast<unsigned>(id)]; }

/// Something of each call that follows from its row, worked out by the compiler: one load when it is asked for.
template <class T>
struct ByCall {
  T of[kCallCount];
  constexpr const T& operator[](CallId id) const { return of[static_cast<unsigned>(id)]; }
};

template <class Make>
consteval auto by_call(Make make) {
  ByCall<decltype(make(kCallInfo[0]))> made = {};
  for (unsigned id = 0; id < kCallCount; ++id) made.of[id] = make(kCallInfo[id]);
  return made;
}

inline constexpr auto kClasses = by_call([](const CallInfo& info) { return info.call_class; });
inline constexpr auto kCollectives = by_call([](const CallInfo& info) { return info.collective; });

constexpr CallClass class_of(CallId id) { return kClasses[id]; }
constexpr Collective collective_of(CallId id) { return kCollectives[id]; }

/// Does it move data that could be compared: is it a kCollective other than MPI_Barrier?
constexpr bool moves_data(Collective operation) { return operation > Collective::kBarrier; }

constexpr bool is_reduction(Collective operation) {
  return operation >= Collective::kReduce && operation <= Collective::kExscan;
}
constexpr bool is_reduce_scatter(Collective operation) {
  return operation == Collective::kReduceScatter || operation == Collective::kReduceScatterBlock;
}
constexpr bool is_neighborhood(Collective operation) { return operation >= Collective::kNeighborAllgather; }

/// Has the operation a root (MPI 4.1, 6.2.2: all-to-one and one-to-all)?
constexpr bool has_root(Collective operation) {
  return operation == Collective::kBcast || operation == Collective::kGather || operation == Collective::kScatter ||
         operation == Collective::kReduce;
}

/// Are its bytes counted (compute_bytes)? By one argument alone if it is kCallHasData.
constexpr bool has_bytes(const CallInfo& info) {
  return info.has(kCallHasData | kCallPartitioned) || moves_data(info.collective);
}

/// Both counts of a call that is kCallHasBlocks as one number.
constexpr int64_t both_counts(int64_t send, int64_t receive) {
  return static_cast<int64_t>(static_cast<uint64_t>(receive) << 32 | static_cast<uint32_t>(send));
}

/// Brings data from the target to the origin.
constexpr bool fetches(RmaOperation operation) {
  return operation == RmaOperation::kGet || operation >= RmaOperation::kGetAccumulate;
}

}  // namespace resil
