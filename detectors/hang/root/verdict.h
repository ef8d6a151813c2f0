// SPDX-License-Identifier: Apache-2.0
//
// What the detectors of hangs say, and the one form in which they say it. Classes are a closed list (docs/HANGS.md).
#pragma once

#include <cstdint>

#include "shim/report/finding.h"

namespace resil::hang {

enum class HangClass : uint8_t {
  kNone = 0,
  kDeadlock,  ///< a set of calls that wait for each other
  kCollectiveMismatch,  ///< different collectives, operators or roots at one sequence number
  kMissingRank,  ///< a rank waits for ever for one that has finished, or that never called the collective
  kRankGone,  ///< ... for one that ended without MPI_Finalize
  kRankStopped,  ///< ... for one that is stopped
  kUnmatchedMessage,  ///< a receive for which nobody sent, or a send that nobody receives
  kInsideMpi,  ///< all arrived or all sent, nobody leaves: library or network
  kComputation,  ///< a rank does not come back from its own code
  kUnreceived,  ///< messages sent and never received, found at MPI_Finalize
  kUnequalCollectives,  ///< different numbers of collectives at MPI_Finalize
  kNodeSilent,  ///< ... for one whose node gives no answer: stopped, gone or cut off
  kUnknown,  ///< no progress, reason not known
};

const char* class_name(HangClass of);  ///< "deadlock", "collective_mismatch", "missing_rank", …

constexpr uint32_t kMaxCulprits = 64, kMaxVictims = 256;

struct Verdict {
  HangClass type;
  Confidence confidence;
  uint32_t culprit_count, victim_count;  ///< may exceed what is kept
  int32_t culprits[kMaxCulprits], victims[kMaxVictims];  ///< world ranks, ascending
  uint64_t comm;  ///< job-wide id, 0 none
  uint16_t call;  ///< id, ~0 none
  uint64_t sequence;  ///< collective's, 0 none
  uint64_t signature;  ///< equal for equal findings: what has been reported once is not reported again
  char message[1200];  ///< whole sentences, for a user
  char evidence[4096];  ///< lines "key: value", counters and call sites
};

}  // namespace resil::hang
