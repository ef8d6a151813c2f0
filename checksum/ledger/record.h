// SPDX-License-Identifier: Apache-2.0
//
// What one side notes of a packet. Shared by everything under checksum/.
#pragma once

#include <cstdint>
#include <cstring>
#include <initializer_list>

#include "shim/model/reason.h"

namespace resil {
class JsonWriter;
}

namespace resil::ledger {

using resil::Reason;
/// Member `name` of a report: how much was not checked, by its reason, where that is not 0. Returns the sum.
uint64_t report_reasons(JsonWriter& json, const char* name,
                        const uint64_t (&counts)[static_cast<size_t>(Reason::kCount)]);

/// Matching queues of different spaces never mix.
enum class Space : uint8_t {
  kMessage,  ///< point-to-point; tag is MPI's
  kPartitioned,  ///< tag is MPI's; `comm` is mixed with the ordinal of the request among its equals
  kBlock,  ///< one block of a collective (gather, scatter, alltoall, neighbours): tag is the collective's number
  kAgreement,  ///< result of a "same everywhere" collective: "sent" by the child, "received" by the parent
  kSum,  ///< linear digests summed up a tree; handled by its own handler
  kSeen,  ///< full blame: the result of a "same everywhere" collective, told to all neighbours in the tree (seen.h)
  kBye,  ///< no packet: the last record of a rank in MPI_Finalize
  kCount
};

enum RecordFlag : uint8_t {
  kUnchecked = 1,  ///< no digest: the low byte of `digest` is the Reason
  kUnordered = 2,  ///< more than one thread uses the lane: compare as a multiset
  kWithdraw = 4,  ///< takes back the announced record whose stream ordinal is in `digest` (a cancelled send)
  kNotMatchQueues = 8,  ///< space-specific, not for the matching queues
  kPadded = 16,  ///< long doubles: their padding was taken as zero, so that only like can be compared with like
};

/// Amounts and addresses of programs have 48 bits; the 16 above carry the halves of what the two calls must agree on
/// besides.
constexpr int kLowBits = 48;
constexpr uint64_t kLowMask = (uint64_t{1} << kLowBits) - 1;

/// One packet as one side saw it. 40 bytes: what travels. Matching queue = (peer, space, comm, tag).
struct Record {
  uint64_t comm;  ///< job-wide communicator id
  uint64_t digest;  ///< raw content digest D of the packed bytes
  uint64_t bytes : kLowBits;
  /// Messages: upper half of the type signature. Collectives: the calls on the communicator so far (calls.h).
  uint64_t upper : 64 - kLowBits;
  uint64_t site : kLowBits;  ///< the application's call site in the noting process
  uint64_t lower : 64 - kLowBits;  ///< lower half of the type signature; collectives: the signature, folded
  uint32_t tag;
  uint16_t call;  ///< CallId
  uint8_t space;  ///< Space
  uint8_t flags;  ///< RecordFlag

  Record() = default;
  Record(uint64_t in_comm, uint64_t in_digest, uint64_t in_bytes, uint64_t in_site, uint32_t in_tag, uint16_t in_call,
         uint8_t in_space, uint8_t in_flags, uint64_t in_upper = 0, uint64_t in_lower = 0)
      : comm(in_comm), digest(in_digest), tag(in_tag), call(in_call), space(in_space), flags(in_flags) {
    // As words: fields of bits would be put in one by one.
    set_word(2, (in_bytes & kLowMask) | in_upper << kLowBits);
    set_word(3, (in_site & kLowMask) | in_lower << kLowBits);
  }

  /// Type signature of a message (shim/model/datatype/signature.h); 0: goes with any.
  uint32_t type() const { return static_cast<uint32_t>(upper << 16 | lower); }
  void set_type(uint32_t type) {
    upper = type >> 16;
    lower = type & 0xffff;
  }

 private:
  void set_word(int word, uint64_t value) { memcpy(reinterpret_cast<char*>(this) + 8 * word, &value, sizeof(value)); }
};
static_assert(sizeof(Record) == 40);

/// A Record of a message, a block or a result, with a digest and without flags, as words: it is made in registers and
/// stored without being put together in memory first. Same bytes (little-endian).
struct PlainRecord {
  uint64_t comm, digest;
  uint64_t amount;  ///< bytes, upper
  uint64_t place;  ///< site, lower
  uint64_t tail;  ///< tag, call, space, no flags
  uint64_t bytes() const { return amount & kLowMask; }
  uint32_t type() const { return static_cast<uint32_t>(amount >> kLowBits << 16 | place >> kLowBits); }
};
static_assert(sizeof(PlainRecord) == sizeof(Record) && static_cast<unsigned>(Space::kMessage) == 0);
inline uint64_t plain_amount(uint64_t bytes, uint32_t type) { return bytes | uint64_t{type >> 16} << kLowBits; }
inline uint64_t plain_place(uint64_t site, uint32_t type) { return site | uint64_t{type} << kLowBits; }
/// The same, of a record in memory.
inline uint64_t record_word(const Record& record, int word) {
  uint64_t value;
  memcpy(&value, reinterpret_cast<const char*>(&record) + 8 * word, sizeof(value));
  return value;
}
constexpr int kAmountWord = 2, kPlaceWord = 3;

/// May two sides with these type signatures exchange data?
inline bool types_match(uint32_t a, uint32_t b) { return a == b || a == 0 || b == 0; }
inline uint64_t plain_tail(int32_t tag, uint16_t call) { return static_cast<uint32_t>(tag) | uint64_t{call} << 32; }
inline uint64_t plain_tail(uint32_t tag, uint16_t call, Space space) {
  return tag | uint64_t{call} << 32 | uint64_t{static_cast<uint8_t>(space)} << 48;
}
/// All of the tail but the call, in which the two sides differ.
constexpr uint64_t kPlainMatchQueue = 0xffff0000ffffffff;
/// The tail of a Record.
inline uint64_t record_tail(const Record& record) {
  uint64_t tail;
  memcpy(&tail, &record.tag, sizeof(tail));
  return tail;
}
/// Of collectives: equal amounts, types and calls so far, all of which the other side may also leave open.
inline bool same_collective(const Record& record, uint64_t amount, uint64_t place, uint64_t tail) {
  return record_word(record, kAmountWord) == amount && (record_word(record, kPlaceWord) ^ place) >> kLowBits == 0 &&
         record_tail(record) == tail;
}

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
  char* words = reinterpret_cast<char*>(&to);
  for (const int word : {kAmountWord, kPlaceWord}) {
    const uint64_t value = apart(record_word(record, word));
    memcpy(words + 8 * word, &value, sizeof(value));
  }
  to.tag = apart(record.tag);
  to.call = apart(record.call);
  to.space = apart(record.space);
  to.flags = apart(record.flags);
}
/// Word by word: the record then need not be in memory first, from which wider loads would wait for its stores.
inline void record_store(Record& to, const PlainRecord& record) {
  const auto put = [&](int word, uint64_t value) {
    value = apart(value);
    memcpy(reinterpret_cast<char*>(&to) + 8 * word, &value, sizeof(value));
  };
  put(0, record.comm);
  put(1, record.digest);
  put(kAmountWord, record.amount);
  put(kPlaceWord, record.place);
  put(4, record.tail);
}

}  // namespace resil::ledger
