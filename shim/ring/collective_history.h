// SPDX-License-Identifier: Apache-2.0
//
// The rolling hash over a communicator's collectives, and how a CollectiveHistory is written so that another process
// may read it at any instant (mismatch/read.h has the proof).
//
// Two hashes in one word, so that amounts that differ hide nothing else: the upper half is over call, operator and
// root, the lower one over the bytes. Each is a polynomial modulo 2^32 with an odd base: equal sequences never differ,
// one call that differs changes it (unless its mixed value collides: 2^-32), and the last call can be taken off again.
#pragma once

#include <cstdint>

namespace resil::ring {

constexpr uint32_t kHistories =
    128;  ///< communicators whose collectives are compared: indices below in section "comms"
constexpr uint32_t kRecent = 16;  ///< signatures kept for each
constexpr uint32_t kEarly = 32;
/// Check points: level k holds multiples of 2^k. The calls between two of the lowest level are found by `recent`.
constexpr uint32_t kLowestLevel = 3, kLevels = 16;
static_assert(2u << kLowestLevel <= kRecent);

struct CheckPoint {
  uint64_t sequence;  ///< 0: none yet
  uint64_t rolling;  ///< hash of the signatures 1..sequence
};

/// One communicator's collectives, in their order: blocking and nonblocking ones when they are called, persistent ones
/// when they are made, never when they are started; and whatever else is collective over it (communicators, windows and
/// files made from it, MPI_Comm_free; MPI_Finalize on MPI_COMM_WORLD). Their number is ring::Comm::ordered, also for
/// communicators without a history. In use when `comm` equals the id in section "comms" at the same index. `recent` and
/// `points` hold signatures, see signature.h.
struct CollectiveHistory {
  uint64_t comm;
  uint64_t sequence;  ///< of the last signature; stored after it
  uint64_t rolling;
  uint64_t shape;  ///< bits 0-23 members of the communicator, 24-31 marks, 32-63 how often the history was begun:
                   ///< collective_history.h
  uint64_t recent[kRecent];  ///< signature of collective n at n % kRecent
  uint32_t types[kRecent];  ///< type signature of its data where all ranks must have the same; 0: goes with any
  CheckPoint points[kLevels - kLowestLevel][2];  ///< the last two multiples of 2^level: n at (n >> level) & 1
  uint64_t early[kEarly];  ///< hash of the signatures 1..2^k: never overwritten, so that what happened before
                           ///< anybody looked is known to a factor of two
};

namespace history_detail {

constexpr uint32_t mix32(uint64_t value) {
  value = (value + 1) * 0x9e3779b97f4a7c15;
  value ^= value >> 29;
  return static_cast<uint32_t>((value * 0xbf58476d1ce4e5b9) >> 32);
}

constexpr uint32_t inverse(uint32_t odd) {
  uint32_t x = odd;  // Newton: right modulo 2^3, then 6, 12, 24, 48
  for (int i = 0; i < 5; ++i) x *= 2 - odd * x;
  return x;
}

constexpr uint32_t kBaseWhat = 0x8664f205, kBaseBytes = 0x9e3779ed;  // 5 modulo 8: greatest period
constexpr uint64_t kWhatMask = (uint64_t{1} << 36) - 1;

}  // namespace history_detail

/// What of a signature (detectors/hang/slots/signature.h) is kept beside a nonblocking call's request: the bytes and
/// the operator.
constexpr uint32_t bytes_in(uint64_t signature) { return static_cast<uint32_t>(signature >> 36); }
constexpr uint8_t operator_in(uint64_t signature) { return signature >> 10 & 0x3f; }

/// What a call adds to either half: follows from its signature alone.
struct MixedSignature {
  uint32_t what, bytes;
};
constexpr MixedSignature mixed_signature(uint64_t signature) {
  using namespace history_detail;
  return {mix32(signature & kWhatMask), mix32(signature >> 36)};
}

/// Hash of one more call: two multiplications, no branch.
constexpr uint64_t roll_mixed(uint64_t rolling, MixedSignature mixed) {
  using namespace history_detail;
  const uint32_t what = static_cast<uint32_t>(rolling >> 32) * kBaseWhat + mixed.what;
  const uint32_t bytes = static_cast<uint32_t>(rolling) * kBaseBytes + mixed.bytes;
  return static_cast<uint64_t>(what) << 32 | bytes;
}
constexpr uint64_t roll(uint64_t rolling, uint64_t signature) {
  return roll_mixed(rolling, mixed_signature(signature));
}

/// The hash before that call.
constexpr uint64_t unroll(uint64_t rolling, uint64_t signature) {
  using namespace history_detail;
  const uint32_t what = (static_cast<uint32_t>(rolling >> 32) - mix32(signature & kWhatMask)) * inverse(kBaseWhat);
  const uint32_t bytes = (static_cast<uint32_t>(rolling) - mix32(signature >> 36)) * inverse(kBaseBytes);
  return static_cast<uint64_t>(what) << 32 | bytes;
}
static_assert(unroll(roll(0x123456789abcdef0, 0xfedcba9876543210), 0xfedcba9876543210) == 0x123456789abcdef0);

/// Bits of CollectiveHistory::shape beside the members (0-23) and the epoch (32-63: how often this history has been
/// begun). A history with any of them is not compared, and counted as uncovered.
enum HistoryMark : uint32_t {
  kHistoryFailed = 1u << 24,  ///< a collective failed on this rank: MPI does not say whether it counts
  kHistoryGap = 1u << 25,  ///< a call was not seen in its place
  kHistoryOneSided =
      1u << 26,  ///< ring::Comm::flags: the id may differ between members, or be another communicator's elsewhere
  kHistoryLate = 1u << 27,  ///< resil came after the first calls
};
constexpr uint32_t kHistoryMarks = kHistoryFailed | kHistoryGap | kHistoryOneSided | kHistoryLate;
constexpr uint32_t kHistoryMembers = (1u << 24) - 1;  ///< of both groups of an intercommunicator; saturates

/// Of call `sequence`, a multiple of 2^level.
template <class History>
constexpr auto& point_of(History& history, uint32_t level, uint64_t sequence) {
  return history.points[level - kLowestLevel][(sequence >> level) & 1];
}

/// Begins anew, for a communicator whose collective number 1 is about to be added. One writer: see history_add.
inline void history_begin(CollectiveHistory& history, uint64_t comm, uint32_t members, uint32_t marks) {
  __atomic_store_n(&history.comm, 0, __ATOMIC_RELEASE);
  const uint64_t epoch = (history.shape >> 32) + 1;
  __atomic_store_n(&history.shape, epoch << 32 | marks | (members < kHistoryMembers ? members : kHistoryMembers),
                   __ATOMIC_RELEASE);
  __atomic_store_n(&history.sequence, 0, __ATOMIC_RELEASE);
  __atomic_store_n(&history.rolling, 0, __ATOMIC_RELEASE);
  __atomic_store_n(&history.comm, comm, __ATOMIC_RELEASE);
}

/// Something happened after which the history's numbers prove nothing.
inline void history_mark(CollectiveHistory& history, uint32_t mark) {
  __atomic_fetch_or(&history.shape, mark, __ATOMIC_RELEASE);
}

/// Collective number `sequence` of the communicator, on entry to the call. One writer at a time: MPI forbids that two
/// threads call collectives on one communicator without an order of their own. Every store is a release one, in this
/// order: who sees any store of call n sees CollectiveHistory::sequence at n - 1 or later.
[[gnu::always_inline]] inline void history_add_mixed(CollectiveHistory& history, uint64_t sequence, uint64_t signature,
                                                     MixedSignature mixed, uint32_t type) {
  if (sequence != history.sequence + 1) [[unlikely]] {
    history_mark(history, kHistoryGap);
    return;
  }
  const uint64_t rolling = roll_mixed(history.rolling, mixed);
  __atomic_store_n(&history.recent[sequence % kRecent], signature, __ATOMIC_RELEASE);
  __atomic_store_n(&history.types[sequence % kRecent], type, __ATOMIC_RELEASE);
  constexpr uint64_t kOften = uint64_t{1} << kLowestLevel;
  if (sequence % kOften == 0 || sequence < kOften) [[unlikely]] {
    const auto zeros = static_cast<uint32_t>(__builtin_ctzll(sequence));
    for (uint32_t level = kLowestLevel; level < kLevels && level <= zeros; ++level) {
      CheckPoint& point = point_of(history, level, sequence);
      __atomic_store_n(&point.sequence, sequence, __ATOMIC_RELEASE);
      __atomic_store_n(&point.rolling, rolling, __ATOMIC_RELEASE);
    }
    if (sequence >> zeros == 1 && zeros < kEarly) __atomic_store_n(&history.early[zeros], rolling, __ATOMIC_RELEASE);
  }
  __atomic_store_n(&history.rolling, rolling, __ATOMIC_RELEASE);
  __atomic_store_n(&history.sequence, sequence, __ATOMIC_RELEASE);
}
inline void history_add(CollectiveHistory& history, uint64_t sequence, uint64_t signature, uint32_t type = 0) {
  history_add_mixed(history, sequence, signature, mixed_signature(signature), type);
}

}  // namespace resil::ring
