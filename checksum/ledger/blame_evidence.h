// SPDX-License-Identifier: Apache-2.0
//
// What is known of a receive (RESIL_BLAME=full), and the verdicts, in their words: for whoever finds that data is
// wrong.
#pragma once

#include <cstddef>
#include <cstdint>

#include "checksum/ledger/touch.h"
#include "shim/base/digest/digest.h"

namespace resil::blame {

constexpr uint32_t kKeptBytes = 4096;  ///< of each packet, from its start
constexpr uint32_t kLeafBytes = kDigestLeaf;
constexpr uint32_t kKeptLeaves = 64;  ///< digests of pieces: of single leaves, in longer packets of as many together

/// The pieces of a packet of that length: one leaf each, or as many as make kKeptLeaves pieces of it.
constexpr uint64_t piece_bytes(uint64_t bytes) {
  const uint64_t leaves = (bytes + kLeafBytes - 1) / kLeafBytes;
  return (leaves + kKeptLeaves - 1) / kKeptLeaves * kLeafBytes;
}

/// The start of a packet and what its pieces add to its digest, as they were when they were read.
struct Content {
  uint32_t bytes;  ///< in `data`
  uint32_t leaves;  ///< in `leaf`: pieces; 0 for packets of one leaf
  uint64_t leaf[kKeptLeaves];
  char data[kKeptBytes];
};
/// What is known of a receive.
struct Evidence {
  uint64_t before;  ///< digest of the whole buffer before the receive
  uint64_t first;  ///< digest of what was received, when the receive completed
  uint64_t last;  ///< the same, when it was looked at last
  uint64_t address;  ///< of the first byte, when the bytes lie together; else 0
  uint64_t bytes, capacity;
  double looked;  ///< seconds from the first to the last look
  uint32_t looks;  ///< after the first
  bool complete, has_before;
  bool changed;  ///< what was received did not stay the same
  bool untouched;  ///< the whole buffer is still what it was before the receive
  bool touched;  ///< `touch` holds
  uint64_t watched;  ///< touch.h; while it is pending
  touch::Touch touch;
};
/// False: that handle holds nothing. `content` (bytes == 0: none) is what the receive completed with.
bool receive_evidence(uint64_t handle, Evidence* evidence, Content* content);
/// Likewise, of what lies behind the start: RestStore::get().
uint32_t receive_rest(uint64_t handle, uint64_t from, uint32_t bytes, char* to);

enum class Verdict : uint8_t {
  kModified,
  kEarly,
  kOtherSlot,
  kNothing,
  kTransit,
  kUndetermined,
  kReceiveModified,
  kCount
};
const char* verdict_text(Verdict verdict);  ///< "packet of another slot"
const char* verdict_key(Verdict verdict);  ///< "packet_of_another_slot"

}  // namespace resil::blame
