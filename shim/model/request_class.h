// SPDX-License-Identifier: Apache-2.0
//
// Which requests may be completed in another way than the program asks for. Tests in place of a wait mean the same in
// the standard, not in every library: kTestable is the one place that says for which requests this was measured to be
// harmless. Whoever carries out a wait by tests (checksum/p2p/intercept.cpp, checksum/record/replay.cpp,
// pipeline/staging/wait.cpp) asks here; for all other requests MPI's own call is made.
#pragma once

#include <cstdint>

#include "shim/model/calls.h"

namespace resil {

struct Event;
struct Thread;

enum class RequestClass : uint8_t {
  kNothing,  ///< a null request, or an operation that was complete at once
  kMessage,  ///< MPI_Isend and the like, MPI_Irecv, MPI_Imrecv
  kPersistentMessage,
  kExchange,  ///< MPI_Isendrecv, MPI_Isendrecv_replace
  kCollective,
  kPersistentCollective,
  kCommunicator,  ///< MPI_Comm_idup and the like
  kRma,  ///< MPI_Rput and the like
  kFile,
  kPartitioned,
  kGeneralized,
  kUnknown,  ///< not in the request table: made by a call that this library does not see
  kCount
};

/// May a wait for such requests be carried out by repeated tests: MPI_Wait by MPI_Test, and MPI_Waitall of several,
/// each of which may be, by MPI_Testall? Measured on Open MPI 4.1.4, 5.0.7 and 6.0.0rc2, MPICH 4.0.2, 4.2.1 and 5.0.2
/// by tests/mpi/awkward.c (`awkward CASE FILE polls`); a class is in the list only if it went well on all of them.
inline constexpr bool kTestable[] = {
    true,  // kNothing
    true,  // kMessage
    true,  // kPersistentMessage
    true,  // kExchange
    true,  // kCollective
    false,  // kPersistentCollective: MPICH, MPI_Testall fails while they are active
    false,  // kCommunicator: not often enough to matter
    false,  // kRma: likewise
    false,  // kFile: MPICH 4.0.2, MPI_Testall gives references back twice (abort, wrong data in the file, no end)
    false,  // kPartitioned: MPICH 4.0.2 to 5.0.2, MPI_Testall fails
    false,  // kGeneralized: their functions are the program's
    false,  // kUnknown
};
static_assert(sizeof(kTestable) == static_cast<unsigned>(RequestClass::kCount));

constexpr bool may_be_tested(RequestClass of) { return kTestable[static_cast<unsigned>(of)]; }

/// Of the request that a call makes.
constexpr RequestClass request_class_of(const CallInfo& info) {
  const bool persistent = info.initiation == Initiation::kPersistent;
  switch (info.call_class) {
    case CallClass::kSend:
    case CallClass::kReceive:
    case CallClass::kMatchedReceive: return persistent ? RequestClass::kPersistentMessage : RequestClass::kMessage;
    case CallClass::kSendReceive:
    case CallClass::kSendReceiveReplace: return RequestClass::kExchange;
    case CallClass::kPartitionedSend:
    case CallClass::kPartitionedReceive: return RequestClass::kPartitioned;
    case CallClass::kCollective: return persistent ? RequestClass::kPersistentCollective : RequestClass::kCollective;
    case CallClass::kComm:  // but for MPIX_Comm_iagree
      return info.has(kCallCreatesComm) ? RequestClass::kCommunicator : RequestClass::kGeneralized;
    case CallClass::kRma: return RequestClass::kRma;
    case CallClass::kFile: return RequestClass::kFile;
    case CallClass::kGeneralizedRequest:
    case CallClass::kBuffer:  // MPI_Buffer_iflush: complete when MPI's own sends are
    case CallClass::kLocal:  // none of these makes one
    case CallClass::kLifecycle:
    case CallClass::kProbe:
    case CallClass::kMatchedProbe:
    case CallClass::kPartitionReady:
    case CallClass::kPartitionArrived:
    case CallClass::kCompletion:
    case CallClass::kGetStatus:
    case CallClass::kRequestFree:
    case CallClass::kCancel:
    case CallClass::kStart:
    case CallClass::kWindow: break;
  }
  return RequestClass::kGeneralized;
}

/// Of a request of the program, by its handle. Any thread; no lock, no MPI call.
RequestClass request_class(const Thread& thread, uint64_t key);

/// May all requests of this completing call be carried out? Before the real call.
bool requests_may_be_tested(const Event& event);
bool requests_may_be_tested(const Thread& thread, const void* requests, int64_t count);  ///< these handles

}  // namespace resil
