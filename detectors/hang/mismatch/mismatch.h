// SPDX-License-Identifier: Apache-2.0
//
// Collectives that do not match, found while the program runs, whether it hangs or not: every rank's rolling hash over
// the collectives of each communicator, compared at check points that ranks have in common (tree.h).
//
// Three steps, the same on one node and on thousands: every node collects what its ranks show, answers are merged on
// their way up in any order and grouping, the root keeps the history and judges. What is lost on the way (a frame, a
// node) costs time, never a false finding. No MPI; no system call but mmap. Helper thread only.
#pragma once

#include <cstdint>

#include "detectors/hang/reader/snapshot.h"
#include "detectors/hang/verdict/verdict.h"

namespace resil::hang {

constexpr uint32_t kMismatchFrame = 65536;  ///< enough room for any number of ranks; more room tells more at once

struct Mismatch;
/// For a world of that many ranks. Null: no memory.
Mismatch* mismatch_create(uint32_t world);
void mismatch_destroy(Mismatch* mismatch);

/// This node's part of one round, into `room`: bytes, 0: nothing to tell. Of communicators that live on this node alone
/// only disagreements are told. `watched`: this node's ranks.
uint32_t mismatch_collect(Mismatch& mismatch, const Watched* watched, uint32_t count, void* room, uint32_t room_bytes);

/// Adds one answer to another (`*bytes` of `room`, 0: empty). Everything read is checked; false: `from` is no answer.
bool mismatch_merge(Mismatch& mismatch, void* into, uint32_t* bytes, uint32_t room, const void* from,
                    uint32_t from_bytes);

/// At the root, once a round: takes the merged answer (0 bytes: nothing new) into the history. True: `verdict` is
/// filled; several findings come one a call (0 bytes to ask at once). The same finding is made once. Numbers of calls
/// are those of CollectiveHistory::sequence. An answer may come twice or late.
bool mismatch_judge(Mismatch& mismatch, const void* merged, uint32_t bytes, Verdict* verdict);

/// The job is about to be ended: from now on what differs is said at once, and who is wrong only where ranks that have
/// not come to that call cannot change it.
void mismatch_close(Mismatch& mismatch);

/// What cannot be compared is counted, not passed over.
struct MismatchCoverage {
  uint32_t communicators;  ///< on which ranks of this node call collectives, in the last round
  uint32_t deferred;  ///< of these, for which there was no room: next round
  uint32_t marked;  ///< histories not compared: a failed collective, an id that may differ (HistoryMark)
  uint32_t unreadable;  ///< histories that moved too fast, this time
  uint32_t broken;  ///< since the start: communicators given up, a rank's numbers contradict its earlier ones
};
/// Of the last whole round. Any thread.
MismatchCoverage mismatch_coverage(const Mismatch& mismatch);

}  // namespace resil::hang
