// SPDX-License-Identifier: Apache-2.0
//
// Sunway's probes by the runtime library (docs/SUNWAY.md): each wait has a timer, whose threshold depends on what is
// waited for and how far away it is; when it has expired, the wait is an error ⟨source, destination, time, type,
// status⟩. No timer is on a message: the slots hold since when a call is open. The status probe is in the rounds that
// the root has asked already; ping and vote are probes of their own (ways.h). Helper thread of the root's node.
#pragma once

#include "detectors/hang/root/root.h"
#include "shim/report/json.h"

namespace resil::hang {

enum class WaitType : uint8_t { kReceive, kSend, kCollective, kOneSided };

enum class Distance : uint8_t { kSameNode, kOtherNode, kOtherSwitch };

/// What the probes say of the destination.
enum class WaitStatus : uint8_t {
  kOpen,  ///< any rank may end the wait, or it is not known who
  kUnreachable,  ///< its node gives no answer to anybody: none of the ways in the tree works
  kGone,  ///< ping: ended without MPI_Finalize
  kStopped,  ///< ping: by a signal
  kFinished,
  kComputing,  ///< status: outside MPI
  kNotDelivered,  ///< status, message log: it has done its part, and this rank does not get it
  kPathBroken,  ///< vote: it lives and others reach it, but not from this node
  kWaiting,  ///< status: waits itself
};

/// The error of one wait, or of several that were merged.
struct WaitError {
  int32_t source, destination;  ///< -1: nobody in particular
  double seconds, limit;  ///< open for; threshold
  uint64_t since_ns;  ///< CLOCK_REALTIME
  WaitType type;
  WaitStatus status;
  Distance distance;  ///< of collectives: between the nodes that are farthest apart
  int32_t responsible;  ///< node whose leader answers for the destination; -1: nobody
  Reach reach;  ///< ping, from the source's node to the destination's; kUnknown: same node, or not probed yet
  uint32_t failures;  ///< pings in a row without a reply
  Vote vote;  ///< of others about that way
  int32_t follows;  ///< rank whose own state explains it; -1: it is a cause itself, or one of a cycle
  RankSet sources;
};

constexpr uint32_t kMostErrors = 64;

/// Of a rank, whether or not it answers; -1: not known.
int32_t node_of(const Root& root, int32_t rank);
/// Key of the timer of this wait in Root::timers.
uint64_t timer_of(const Root& root, const RankState& state);
/// Errors of all waits whose timers have expired, merged by destination, type and status; causes first. Returns how
/// many.
uint32_t find_errors(const Root& root, WaitError* errors, uint32_t room);
/// Member `errors`.
void write_errors(JsonWriter& json, const Root& root);

}  // namespace resil::hang
