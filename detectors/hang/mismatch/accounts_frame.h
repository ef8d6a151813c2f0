// SPDX-License-Identifier: Apache-2.0
//
// The answer that accounts travel in. Little-endian, fixed-size. Shared by accounts*.cpp only.
#pragma once

#include <cstdint>
#include <cstring>

#include "detectors/hang/mismatch/accounts.h"

namespace resil::hang {

constexpr uint32_t kAccountsMagic = 0x43434852;  // "RHCC"
constexpr int32_t kMarkTag = -100;  ///< Account::tag of an entry that marks rank `source`: `difference` is a sum, not 0
constexpr int32_t kForgotTag = -101;  ///< likewise: it has forgotten envelopes of communicators that are gone
constexpr int32_t kMixedTag =
    -102;  ///< likewise of a pair: tags are not told apart on one side, all are to be added up

/// Sent minus received of one envelope, not 0. Sorted by communicator, source, destination, tag.
struct Account {
  uint64_t comm;  ///< 0: a mark
  int32_t source, destination;  ///< world ranks
  int32_t tag;  ///< also kOtherTags, and the marks
  uint32_t reserved;
  int64_t difference;
};
static_assert(sizeof(Account) == 32);

/// Collectives of one communicator, of those of its members that are in.
struct Count {
  uint64_t comm;
  uint64_t least, most;
  int32_t least_rank, most_rank;  ///< one that made so many
  uint32_t members, present;
  uint32_t at_least, at_most;  ///< how many made just so many
  uint32_t marked;  ///< members whose number proves nothing
  uint32_t reserved;
};
static_assert(sizeof(Count) == 56);

/// What a communicator is called, for those that are left: whoever has freed it may be the only one to know.
struct CommName {
  uint64_t comm;
  char text[88];
};
static_assert(sizeof(CommName) == 96);

struct AccountsHeader {
  uint32_t magic, bytes;
  uint32_t world;
  uint32_t ranks;  ///< that are in
  uint64_t rank_sum;  ///< of mix64(rank + 1): each once
  uint64_t world_comm;  ///< id of MPI_COMM_WORLD
  uint64_t limit;  ///< pairs whose hash is above have been folded
  uint64_t folded;  ///< envelopes
  uint64_t folded_sum;  ///< of hash(envelope) * difference: 0 when they balance
  uint32_t accounts, counts;
  uint32_t counts_lost;  ///< communicators for which there was no room
  uint32_t names;  ///< as many as there was room for
};
static_assert(sizeof(AccountsHeader) == 72);

/// Of damaged counters, too: sums go round instead of beyond what a number can hold.
inline int64_t sum_of(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
}
inline uint64_t size_of(int64_t difference) {
  return difference < 0 ? 0 - static_cast<uint64_t>(difference) : static_cast<uint64_t>(difference);
}

inline Account account_at(const void* frame, uint32_t index) {
  Account account;
  memcpy(&account, static_cast<const char*>(frame) + sizeof(AccountsHeader) + size_t{index} * sizeof(Account),
         sizeof(account));
  return account;
}
inline Count count_at(const void* frame, const AccountsHeader& header, uint32_t index) {
  Count count;
  memcpy(&count,
         static_cast<const char*>(frame) + sizeof(AccountsHeader) + size_t{header.accounts} * sizeof(Account) +
             size_t{index} * sizeof(Count),
         sizeof(count));
  return count;
}

inline CommName name_at(const void* frame, const AccountsHeader& header, uint32_t index) {
  CommName name;
  memcpy(&name,
         static_cast<const char*>(frame) + sizeof(AccountsHeader) + size_t{header.accounts} * sizeof(Account) +
             size_t{header.counts} * sizeof(Count) + size_t{index} * sizeof(CommName),
         sizeof(name));
  return name;
}

/// Is that an answer, whole and consistent? Then `header` is its own.
bool accounts_check(const void* frame, uint32_t bytes, AccountsHeader* header);

}  // namespace resil::hang
