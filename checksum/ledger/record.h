// SPDX-License-Identifier: Apache-2.0
//
// What one side notes of a packet. Shared by everything under checksum/.
#pragma once

#include <cstdint>
#include <cstring>

#include "shim/model/reason.h"

namespace resil::ledger {

using resil::Reason;
const char* reason_name(Reason reason);  ///< "device_buffer"

/// Matching queues of different spaces never mix.
enum class Space : uint8_t {
  kMessage,  ///< point-to-point; tag is MPI's
  kPartitioned,  ///< tag is MPI's; `comm` is mixed with the ordinal of the request among its equals
  kBlock,  ///< one block of a collective (gather, scatter, alltoall, neighbours): tag is the collective's number
  kAgreement,  ///< result of a "same everywhere" collective: "sent" by the child, "received" by the parent
  kSum,  ///< linear digests summed up a tree; handled by its own handler
  kCount
};

enum RecordFlag : uint8_t {
  kUnchecked = 1,  ///< no digest: the low byte of `digest` is the Reason
  kUnordered = 2,  ///< more than one thread uses the lane: compare as a multiset
  kWithdraw = 4,  ///< takes back the announced record whose stream ordinal is in `digest` (a cancelled send)
  kNotMatchQueues = 8,  ///< space-specific, not for the matching queues
  kPadded = 16,  ///< long doubles: their padding was taken as zero, so that only like can be compared with like
};

/// One packet as one side saw it. 40 bytes: what travels. Matching queue = (peer, space, comm, tag).
struct Record {
  uint64_t comm;  ///< job-wide communicator id
  uint64_t digest;  ///< raw content digest D of the packed bytes
  uint64_t bytes;
  uint64_t site;  ///< the application's call site in the noting process
  uint32_t tag;
  uint16_t call;  ///< CallId
  uint8_t space;  ///< Space
  uint8_t flags;  ///< RecordFlag
};
static_assert(sizeof(Record) == 40);

/// A Record of a message, with a digest and without flags, as words: it is made in registers and stored without being
/// put together in memory first. Same bytes (little-endian).
struct PlainRecord {
  uint64_t comm, digest, bytes, site;
  uint64_t tail;  ///< tag, call, Space::kMessage, no flags
};
static_assert(sizeof(PlainRecord) == sizeof(Record) && static_cast<unsigned>(Space::kMessage) == 0);
inline uint64_t plain_tail(int32_t tag, uint16_t call) { return static_cast<uint32_t>(tag) | uint64_t{call} << 32; }
/// All of the tail but the call, in which the two sides differ.
constexpr uint64_t kPlainMatchQueue = 0xffff0000ffffffff;

/// The value, by way of a register of its size.
template <class Value>
[[gnu::always_inline]] inline Value apart(Value value) {
  asm("" : "+r"(value));
  return value;
}

/// Field by field: where one was put together just now, a wider load would wait until all of it is in the cache.
inline void record_store(Record& to, const Record& record) {
  to.comm = apart(record.comm);
  to.digest = apart(record.digest);
  to.bytes = apart(record.bytes);
  to.site = apart(record.site);
  to.tag = apart(record.tag);
  to.call = apart(record.call);
  to.space = apart(record.space);
  to.flags = apart(record.flags);
}
inline void record_store(Record& to, const PlainRecord& record) { memcpy(&to, &record, sizeof(to)); }

}  // namespace resil::ledger
