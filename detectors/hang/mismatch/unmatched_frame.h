// SPDX-License-Identifier: Apache-2.0
//
// The answer that balances travel in. Little-endian, fixed-size. Shared by balances*.cpp only.
#pragma once

#include <cstdint>
#include <cstring>

#include "detectors/hang/mismatch/unmatched.h"

namespace resil::hang {

constexpr uint32_t kUnmatchedMagic = 0x43434852;  // "RHCC"
constexpr int32_t kMarkTag = -100;  ///< Balance::tag of an entry that marks rank `source`: `difference` is a sum, not 0
constexpr int32_t kForgotTag = -101;  ///< likewise: it has forgotten envelopes of communicators that are gone
constexpr int32_t kMixedTag =
    -102;  ///< likewise of a pair: tags are not told apart on one side, all are to be added up

/// Sent minus received of one envelope, not 0 unless types differ. Sorted by communicator, source, destination, tag.
struct Balance {
  uint64_t comm;  ///< 0: a mark
  int32_t source, destination;  ///< world ranks
  int32_t tag;  ///< also kOtherTags, and the marks
  uint16_t sent_type, received_type;  ///< type signature of all of them, folded; 0: not told yet
  int64_t difference;
};
static_assert(sizeof(Balance) == 32);
constexpr uint16_t kNoComparison = 0xffff;  ///< in place of a type: of several, or of one that goes with any

/// Does each side have one type, and another?
inline bool types_differ(const Balance& balance) {
  const auto one = [](uint16_t type) { return type != 0 && type != kNoComparison; };
  return one(balance.sent_type) && one(balance.received_type) && balance.sent_type != balance.received_type;
}

/// What a communicator is called, for those that are left: whoever has freed it may be the only one to know.
struct CommName {
  uint64_t comm;
  char text[88];
};
static_assert(sizeof(CommName) == 96);

struct UnmatchedHeader {
  uint32_t magic, bytes;
  uint32_t world;
  uint32_t ranks;  ///< that are in
  uint64_t rank_sum;  ///< of mix64(rank + 1): each once
  uint64_t world_comm;  ///< id of MPI_COMM_WORLD
  uint64_t limit;  ///< pairs whose hash is above have been folded
  uint64_t folded;  ///< envelopes
  uint64_t folded_sum;  ///< of hash(envelope) * difference: 0 when they balance
  uint32_t balances;
  uint32_t names;  ///< as many as there was room for
};
static_assert(sizeof(UnmatchedHeader) == 64);

/// Of damaged counters, too: sums go round instead of beyond what a number can hold.
inline int64_t sum_of(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
}
inline uint64_t size_of(int64_t difference) {
  return difference < 0 ? 0 - static_cast<uint64_t>(difference) : static_cast<uint64_t>(difference);
}

inline Balance balance_at(const void* frame, uint32_t index) {
  Balance balance;
  memcpy(&balance, static_cast<const char*>(frame) + sizeof(UnmatchedHeader) + size_t{index} * sizeof(Balance),
         sizeof(balance));
  return balance;
}
inline CommName name_at(const void* frame, const UnmatchedHeader& header, uint32_t index) {
  CommName name;
  memcpy(&name,
         static_cast<const char*>(frame) + sizeof(UnmatchedHeader) + size_t{header.balances} * sizeof(Balance) +
             size_t{index} * sizeof(CommName),
         sizeof(name));
  return name;
}

/// Is that an answer, whole and consistent? Then `header` is its own.
bool unmatched_check(const void* frame, uint32_t bytes, UnmatchedHeader* header);

}  // namespace resil::hang
