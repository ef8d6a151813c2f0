// SPDX-License-Identifier: Apache-2.0
//
// Tags on the private communicator: who uses which. Only a PrivateTag can be given to the functions of the backend that
// send and receive there, and only the ranges below make one, so that no two users can meet.
#pragma once

#include <cstddef>
#include <cstdint>

namespace resil {

class PrivateTag {
 public:
  constexpr int value() const { return value_; }

 private:
  friend struct TagRange;
  explicit constexpr PrivateTag(int value) : value_(value) {}
  int value_;
};

/// `count` tags from `first` on.
struct TagRange {
  int first, count;
  constexpr PrivateTag operator[](uint32_t index) const {
    return PrivateTag(first + static_cast<int>(index % static_cast<uint32_t>(count)));
  }
  constexpr int end() const { return first + count; }
};

namespace tags {

constexpr TagRange kExample = {0, 1};
constexpr TagRange kLedger = {1, 1};  ///< records of checksums
constexpr TagRange kDoubleRun = {3, 1};  ///< the agreement on a step that ran twice
constexpr TagRange kNobody = {4, 1};  ///< nobody ever sends: receives that must not match in verify
constexpr TagRange kStagingNote = {5, 1};
constexpr TagRange kReplicas = {6, 3};  ///< words that followers send, what the leading part's clocks say, its goodbye
constexpr TagRange kChoices = {9, 1};  ///< what MPI chose in the leading part
constexpr TagRange kPartsEnd = {10, 1};  ///< all ranks of all parts are in MPI_Finalize
constexpr TagRange kFeed = {11, 1};  ///< what a leader's calls have brought, for copies of some ranks only
constexpr TagRange kStagingChunk = {64, 3840};  ///< chunks of large messages: 64 for each of 60 entries of a receiver
constexpr TagRange kSpr = {3904, 192};  ///< particle replication: 48 for each of 4 sets
constexpr TagRange kReduction = {4096, 28000};  ///< reductions by messages, by a hash of which one
constexpr TagRange kCopy = {32096, 512};  ///< a rank's copies by a message to itself, one tag each

/// All of them. A new range is entered here.
constexpr TagRange kAll[] = {kExample,  kLedger, kDoubleRun,    kNobody, kStagingNote, kReplicas, kChoices,
                             kPartsEnd, kFeed,   kStagingChunk, kSpr,    kReduction,   kCopy};

constexpr int kUpperBound = 32767;  ///< the least MPI_TAG_UB that MPI guarantees

constexpr bool disjoint(const TagRange* ranges, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    if (ranges[i].first < 0 || ranges[i].count <= 0 || ranges[i].end() - 1 > kUpperBound) return false;
    for (size_t k = 0; k < i; ++k)
      if (ranges[i].first < ranges[k].end() && ranges[k].first < ranges[i].end()) return false;
  }
  return true;
}
static_assert(disjoint(kAll, sizeof(kAll) / sizeof(kAll[0])), "two users of the private communicator share a tag");

}  // namespace tags
}  // namespace resil
