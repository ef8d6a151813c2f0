// SPDX-License-Identifier: Apache-2.0
//
// Messages whose buffers are on a device and whose data goes through pinned host memory: what the module that stages
// them and those that check, decide or damage messages ask of each other. Each table is null until its module has set
// it, before MPI_Init returns; none knows who is behind the others. Application's threads, inside a call.
#pragma once

#include <cstdint>

#include "shim/model/view.h"

namespace resil {

struct Event;
struct Thread;

/// The data as the host may read it until the call has returned, and its D.
struct StagedView {
  View view;
  uint64_t digest;
};

enum class StagedSend : uint8_t {
  kElsewhere,  ///< the data did not go through pinned memory
  kPosted,  ///< the library has it
  kLater,  ///< it will, in its turn
};

// --- Checksums: they read the pinned copies -----------------------------------------------------------------------
/// Answered by staging.
struct StagedCopies {
  /// Of a receive into `buffer` that this call completed, `bytes` came.
  bool (*received)(Thread& thread, const void* buffer, uint64_t bytes, StagedView* copy);
  /// Of the send of this call, which is about to return. kPosted: `copy` is filled. kLater: `posted` or `dropped` of
  /// StagedChecks will be called with the word that is stored in `*word`, by any thread, inside a call.
  StagedSend (*sent)(const Event& event, StagedView* copy, void*** word);
  /// Of a send from `buffer` whose request this call completed.
  bool (*ended)(Thread& thread, const void* buffer, StagedView* copy);
};
inline constinit const StagedCopies* staged_copies = nullptr;

/// Told by staging.
struct StagedChecks {
  /// `copy` is about to be posted in place of the event's buffer.
  void (*posting)(Event& event, const View& copy);
  /// An exchange that blocks is about to give `copy` to the library: the partner's receive may wait for what is said of
  /// it.
  void (*announcing)(Event& event, const StagedView& copy);
  /// The library has taken the send; sends of one queue in the order of the calls.
  void (*posted)(Thread& thread, void* word, const StagedView& copy);
  /// It never will.
  void (*dropped)(void* word);
  /// Does a wrong message end the job (RESIL_ON_MISMATCH=abort)?
  bool (*ends_job)();
};
inline constinit const StagedChecks* staged_checks = nullptr;

/// The data of a staged receive, if it is one.
inline bool staged_receive(Thread& thread, const View& view, uint64_t bytes, StagedView* copy) {
  return view.reason == Reason::kDeviceBuffer && staged_copies != nullptr &&
         staged_copies->received(thread, view.buffer, bytes, copy);
}

/// The data as a row of bytes.
inline constexpr Run kByteRun = {0, 1, 1, 1};
inline constexpr TypeMap kByteMap = {1, 1, 0, 1, true, false, true, 1, &kByteRun, {}, 0, nullptr, 0};

// --- Verify: the calls that staging carries out decide as in the recorded run, too ---------------------------------
/// Whose message a receive with wildcards gets.
enum class Recorded : uint8_t {
  kFree,  ///< as MPI likes
  kFrom,  ///< that of source and tag
  kNobody  ///< it never got one: the receive is left to the module that verifies
};

struct StagedReplay {
  /// Carries out a call that completes or tests requests as it ended then. False: nothing is to be decided.
  bool (*completion)(Event& event);
  /// For a receive that is about to be posted, once; source and tag are changed with kFrom only.
  Recorded (*receive)(Event& event, int32_t* source, int32_t* tag);
  /// In each round of waiting for it: what does not come within RESIL_VERIFY_SECONDS ends the job. `began`: 0 at first.
  void (*waits)(Event& event, int32_t source, uint32_t round, uint64_t* began);
};
inline constinit const StagedReplay* staged_replay = nullptr;

struct StagedRequests {
  bool (*any)();
  bool (*knows)(uint64_t handle);  ///< is it one of a staged message?
  /// MPI_Test (MPI_Request_get_status, if the event is one) of request `index` of the event, MPI's code in `result`.
  /// False: it is not a staged one.
  bool (*test)(Event& event, int64_t index, int* flag, void* status, int* result);
};
inline constinit const StagedRequests* staged_requests = nullptr;

// --- Faults: data is damaged between the sender's last look and the receiver's first -------------------------------
/// The data of one message as the host may write it.
struct StagedMessage {
  CallId call;  ///< that sent or posted it
  uint64_t comm;  ///< handle
  int32_t peer, tag;  ///< rank of the communicator; as in ring_format.h, where not known
  char* buffer;
  int64_t count;
  const TypeMap* type;
  uint64_t bytes;
};

struct StagedFaults {
  /// May sends be damaged? Then the library is given a copy of the data, for `departing` to damage.
  bool (*sends)();
  void (*departing)(Thread& thread, const StagedMessage& message);
  void (*arrived)(Thread& thread, const StagedMessage& message);
};

inline constinit const StagedFaults* staged_faults = nullptr;

}  // namespace resil
