// SPDX-License-Identifier: Apache-2.0
//
// Reading another process's CollectiveHistory while that process writes it.
//
// What is promised: every point that read_history returns is true - `rolling` is the hash over exactly the signatures
// 1..n of that rank, `signature` is that of its call n - whatever the writer did meanwhile.
//
// Why. The writer (collective_history.h) only makes release stores, in this order for call n: recent[n % 16], the check
// points of which n is a multiple, early, rolling, sequence = n. The reader only makes acquire loads, in this order:
// shape (e1), comm, sequence (s1), the data, sequence (s2), shape (e2).
//  1. A datum that the reader sees was stored for a call of number at most s2 + 1. Else a store of call m >= s2 + 2 was
//     seen; the store sequence = m - 1 stands before it in the writer's order, the load that saw it was an acquire of a
//     release, so the later load of sequence gives m - 1 > s2 at least. Contradiction.
//  2. A datum that belongs to call m <= s1 was stored before sequence = s1, which the first load of sequence has seen:
//     the reader sees it, or what replaced it.
//  3. recent[m % 16] is next replaced by call m + 16, the slot of a multiple v of 2^k by call v + 2^(k+1). So where
//     m <= s1 and m + 16 > s2 + 1, or v <= s1 and v + 2^(k+1) > s2 + 1, the reader sees m's and v's own. The two words
//     of a check point are each judged this way; neither needs the other. early[k] with 2^k <= s1 is never replaced.
//  4. history_begin stores comm = 0, a new epoch in shape, sequence = 0, the new comm. If e1 is the epoch of an earlier
//     life, a datum of a later one would make e2 another (as in 1). If e1 is the new epoch, comm is 0 or the new id,
//     and with the new id sequence is that of the new life. So e1 == e2 and comm != 0 make all data those of one life.
// The rest is arithmetic: a hash is carried up and down from a check point along signatures that are valid themselves.
#pragma once

#include <cstdint>

#include "detectors/hang/slots/layout.h"

namespace resil::hang {

/// One fact about a rank: after its n-th collective the hash was `rolling`.
struct PathPoint {
  uint64_t n;
  uint64_t rolling;
  uint64_t signature;  ///< of call n; 0: no longer known
  uint32_t type = 0;  ///< of its data; 0: goes with any, or no longer known
};

constexpr uint32_t kMaxPath = kRecent + 2 + 2 * kLevels + kEarly;  ///< one more: see collect.cpp, end_path

struct HistoryRead {
  uint64_t comm;
  uint64_t shape;  ///< see HistoryMark
  uint64_t sequence;  ///< of the last call when the reading began
  uint32_t count;
  PathPoint points[kMaxPath];  ///< ascending
};

enum class ReadResult : uint8_t {
  kRead,
  kEmpty,  ///< no communicator, or no collective yet
  kMoving,  ///< begun anew meanwhile, or so fast that no check point stayed: next time
  kBroken,  ///< contradicts itself: no writer of ours leaves it so
};

/// `history` may be written by another process or thread meanwhile.
ReadResult read_history(const CollectiveHistory& history, HistoryRead* out);

}  // namespace resil::hang
