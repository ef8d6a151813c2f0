// SPDX-License-Identifier: Apache-2.0
//
// What the detectors of hangs find, as ids: ranks, calls, communicators, tags, addresses, numbers. A verdict holds no
// sentence and needs no name: format.h makes the sentences of it, once it stands. Classes are a closed list
// (docs/HANGS.md).
#pragma once

#include <cstdint>

#include "detectors/hang/reader/rank_state.h"
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
  kMessageMismatch,  ///< messages sent as one basic type and received as another, likewise
  kNodeSilent,  ///< ... for one whose node gives no answer: stopped, gone or cut off
  kUnknown,  ///< no progress, reason not known
  kMoving,  ///< no hang: the job moves, or pauses as it has before
};

const char* class_name(HangClass of);  ///< "deadlock", "collective_mismatch", "missing_rank", …

/// Ids of the catalogue.
enum class Message : uint16_t {
#define MESSAGE(id, where, text) id,
#include "detectors/hang/verdict/messages.inc"
#undef MESSAGE
};

/// Ranks (or nodes), added in ascending order, as ranges. Of more ranges than are kept, the ranks are counted.
struct RankSet {
  static constexpr uint32_t kMaxRanges = 12;
  uint32_t total, named, count;
  struct {
    int32_t first, last;
  } ranges[kMaxRanges];

  void add(int32_t rank) { add(rank, rank); }
  void add(int32_t first, int32_t last) {
    const auto more = static_cast<uint32_t>(last - first) + 1;
    if (named == total && count != 0 && ranges[count - 1].last + 1 == first) {
      ranges[count - 1].last = last;
      named += more;
    } else if (named == total && count < kMaxRanges) {
      ranges[count++] = {first, last};
      named += more;
    }
    total += more;
  }
};

/// A call that waits, and one of the things that it waits for.
struct CallWait {
  Part part;
  uint64_t site;  ///< address, 0: not known
  double seconds;  ///< since it was entered; negative: not known
  int32_t rank;
  uint16_t call;  ///< that the thread is in; part.call: that posted what it waits for
};

/// One row of the catalogue and what is to stand in its placeholders. Which fields count, the row says.
struct Statement {
  Message id;
  uint16_t call;
  int32_t rank;
  uint64_t comm, n[4];
  double seconds[4];
  RankSet ranks, others;
  union {
    CallWait wait;
    DeviceSeen device;
  };
};

constexpr uint32_t kMaxCulprits = 64, kMaxVictims = 256, kMaxStatements = 64;

struct Verdict {
  HangClass type;
  Confidence confidence;
  bool notice;  ///< no verdict at all: a line that says what is seen
  uint32_t culprit_count, victim_count;  ///< may exceed what is kept
  int32_t culprits[kMaxCulprits], victims[kMaxVictims];  ///< world ranks, ascending
  uint64_t comm;  ///< job-wide id, 0 none
  uint16_t call;  ///< id, ~0 none
  uint64_t sequence;  ///< collective's, 0 none
  uint64_t signature;  ///< equal for equal findings: what has been reported once is not reported again
  uint32_t statement_count;
  Statement statements[kMaxStatements];  ///< in the order in which they are to be read

  /// Empty, of that class.
  void begin(HangClass of, Confidence how_sure) {
    __builtin_memset(static_cast<void*>(this), 0, sizeof(*this));
    type = of;
    confidence = how_sure;
    call = static_cast<uint16_t>(~0u);
  }
  /// One more statement, its arguments empty. Beyond the last one the last is made anew.
  Statement& add(Message id) {
    if (statement_count < kMaxStatements) ++statement_count;
    Statement& made = statements[statement_count - 1];
    made = {};
    made.id = id;
    return made;
  }
  Statement& add(Message id, const CallWait& wait) {
    Statement& made = add(id);
    made.rank = wait.rank;
    made.wait = wait;
    return made;
  }
  Statement& add(Message id, const RankSet& ranks) {
    Statement& made = add(id);
    made.ranks = ranks;
    return made;
  }
  void add_culprit(int32_t rank) {
    if (culprit_count < kMaxCulprits) culprits[culprit_count] = rank;
    ++culprit_count;
  }
  void add_victim(int32_t rank) {
    if (victim_count < kMaxVictims) victims[victim_count] = rank;
    ++victim_count;
  }
  /// Culprits as a set; those that are not kept are counted.
  RankSet culprit_set() const {
    RankSet set = {};
    for (uint32_t i = 0; i < culprit_count && i < kMaxCulprits; ++i) set.add(culprits[i]);
    set.total = culprit_count;
    return set;
  }
};

/// A statement outside a verdict: a line of hang.log.
inline Statement statement_of(Message id, int32_t rank = -1) {
  Statement made = {};
  made.id = id;
  made.rank = rank;
  return made;
}

}  // namespace resil::hang
