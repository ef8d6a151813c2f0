// SPDX-License-Identifier: Apache-2.0
//
// What two ranks must agree on besides the data: of a collective call its function, operator, root, amount and types,
// and the calls on the communicator before it; of a message its types. Where they differ, it is the program's mistake,
// whatever became of the data: never corruption.
//
// The history of calls is one number a communicator, rolled over function, operator and root of each collective call,
// so that a call that does not fit is known ever after: what the library then delivers to later ones proves nothing.
#pragma once

#include <cstdint>

#include "checksum/ledger/ledger.h"
#include "shim/abi/backend_types.h"
#include "shim/model/calls.h"

namespace resil {
struct CommInfo;
}

namespace resil::ledger {

/// A collective call of this rank with data. Persistent: of the call that made the request, `tag` 0.
struct Called {
  uint64_t comm;  ///< Record::comm
  uint64_t bytes;
  uint32_t tag;
  int32_t root;  ///< -1: none that all ranks name
  uint16_t call;  ///< CallId
  uint16_t calls;  ///< Record::upper; 0: not known
  uint16_t type;  ///< Record::lower
  OpKind op;
  bool known;  ///< false: this rank has made no such call yet, or forgotten it
};

bool calls_create();
struct Rolling {
  uint64_t comm;  ///< id
  uint64_t hash;
};
constexpr uint32_t kCalled = 1024;
extern Rolling* rolling;  ///< by index of the communicator, whose collective calls have an order; of calls_roll()
extern Called* called;  ///< the last ones; of calls_note()
extern uint64_t called_count;
extern bool calls_concurrent;  ///< several threads may note calls

/// The next collective call of a communicator, data or not, in its order. Returns Record::upper of it.
[[gnu::always_inline]] inline uint16_t calls_roll(uint32_t index, uint64_t comm, uint64_t sequence, uint16_t plain,
                                                  OpKind op, int32_t root) {
  Rolling& one = rolling[index];
  uint64_t hash = one.comm == comm ? one.hash : 0;
  const uint64_t call = plain | uint64_t{static_cast<uint8_t>(op)} << 16 | uint64_t{static_cast<uint32_t>(root)} << 24;
  hash = (hash ^ call) * 0x9e3779b97f4a7c15 + sequence;
  hash ^= hash >> 29;
  one.comm = comm;
  one.hash = hash;
  return static_cast<uint16_t>(hash >> 13) | 1;
}
void calls_note_slowly(const Called& one);
[[gnu::always_inline]] inline void calls_note(const Called& one) {  ///< among the last 1,024
  if (calls_concurrent) [[unlikely]]
    return calls_note_slowly(one);
  Called& to = called[called_count++ % kCalled];
  to.comm = one.comm;
  to.bytes = one.bytes;
  to.tag = one.tag;
  to.root = one.root;
  to.call = one.call;
  to.calls = one.calls;
  to.type = one.type;
  to.op = one.op;
  to.known = true;
}
Called calls_find(uint64_t comm, uint32_t tag);

inline bool same_call(uint16_t a, uint16_t b) {
  return a == b || a >= kCallCount || b >= kCallCount ||
         call_info(static_cast<CallId>(a)).plain == call_info(static_cast<CallId>(b)).plain;
}
inline bool half_matches(uint64_t a, uint64_t b) { return a == b || a == 0 || b == 0; }
inline bool is_collective(const Record& record) { return record.space > static_cast<uint8_t>(Space::kPartitioned); }

/// Do the two sides' calls belong together? Of records that both have a digest.
inline bool calls_agree(const Record& a, const Record& b) {
  const bool nothing = a.bytes == 0 || b.bytes == 0;
  if (!is_collective(a)) return nothing || types_match(a.type(), b.type());
  return same_call(a.call, b.call) && half_matches(a.upper, b.upper) && a.bytes == b.bytes &&
         (nothing || half_matches(a.lower, b.lower));
}
/// The same of two ranks' memories of a collective call. Amounts are not compared: they may be parts.
bool calls_agree(const Called& a, const Called& b);

/// Two calls that do not belong together. `there` is the other rank.
struct CallsDiffer {
  Peer* there;
  Record own, other;
  Called own_called, other_called;  ///< collectives, where known
  const char* own_site;  ///< in words; null: to be worked out
  const char* other_site;  ///< in words; "": not known
  bool confirmed;  ///< the other rank has said so itself, not only its record
  bool absent;  ///< the other rank has told of all its calls, and there is none to `own`
};
/// Says it, once a communicator (messages: a pair of types and call sites), and counts the packet: as checked where the
/// data is right, else as uncovered. Collectives whose data differs, with RESIL_ON_MISMATCH=abort: the job is to end.
void calls_differ(const CallsDiffer& differ);
/// Was the like told already? Then the packet is counted.
bool calls_told(const Record& sent, const Record& received);
/// The job is to end with status 92 (unless it is to end with 90).
bool calls_stop();

}  // namespace resil::ledger
