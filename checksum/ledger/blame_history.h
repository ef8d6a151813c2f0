// SPDX-License-Identifier: Apache-2.0
//
// The history of announced packets: where it is kept, and the usual way into it, inline.
#pragma once

#include <cstddef>
#include <cstdint>

#include "checksum/ledger/blame_evidence.h"
#include "checksum/ledger/record.h"
#include "shim/model/view.h"

namespace resil::blame {

using ledger::Record;

constexpr uint32_t kHistory = 8192;  ///< announced packets that are remembered

/// Where a Content lies in a Store.
struct Kept {
  uint64_t at;
  uint16_t bytes, leaves;  ///< both 0: nothing kept
};

/// A ring of bytes; an entry notices that it has been overwritten. Its owner locks.
class Store {
 public:
  bool create();
  Kept put(const Content& content);
  bool get(const Kept& kept, Content* content) const;  ///< false: nothing kept, or overwritten

 private:
  char* memory_;
  uint64_t head_;
};

// --- blame_rest.cpp ----------------------------------------------------------------------------------------------

/// Where the bytes of a packet behind its first kKeptBytes lie in a RestStore.
struct Rest {
  uint64_t at;
  uint32_t bytes;  ///< 0: nothing kept
};

/// A larger ring, for what is asked of a packet that differs behind its start: the piece, byte by byte. Locks by
/// itself.
class RestStore {
 public:
  bool create();
  /// Copies what lies behind the start of the view's stream.
  Rest put(const View& view, uint64_t bytes);
  /// Of the packet from byte `from` (kKeptBytes or later) on; how many bytes there were: 0 when they are overwritten.
  uint32_t get(const Rest& rest, uint64_t from, uint32_t bytes, char* to);

 private:
  char* memory_;
  uint64_t head_;
};

// --- blame_history.cpp -------------------------------------------------------------------------------------------

enum EntryFlag : uint32_t {
  kVoid = 1,  ///< withdrawn
  kComplete = 2,  ///< full: the send is complete
  kRead = 4,  ///< full: and its buffer was read again
};

/// One announced packet. One cache line: writing it is all that `cheap` costs.
struct alignas(64) Entry {
  Record record;
  uint64_t ordinal;
  uint64_t serial;  ///< counts all packets of this process, from 1; 0: never used
  int32_t peer;  ///< world rank
  uint32_t flags;
};
static_assert(sizeof(Entry) == 64);

/// What only `full` writes, apart from the entries.
struct Extra {
  uint64_t at_end;
  Kept kept;
  Rest rest;
};

struct Known {
  bool found;  ///< false: overwritten, or never noted; then only the two numbers below hold
  Entry entry;
  uint64_t at_end;  ///< digest at completion, with kRead
  Content content;  ///< bytes == 0: no copy
  Rest rest;
  uint64_t oldest;  ///< serial of the oldest packet still known
};
/// All state of the history.
struct History {
  Entry* entries;
  Extra* extras;  ///< full; else null
  Store store;
  RestStore rest;
  uint64_t made;  ///< serial of the newest packet
};
extern History history;

template <class AnyRecord>
inline void history_write(const AnyRecord& record, uint64_t ordinal, uint64_t serial, int32_t peer) {
  Entry& entry = history.entries[serial % kHistory];
  ledger::record_store(entry.record, record);
  entry.ordinal = ordinal;
  entry.serial = serial;
  entry.peer = peer;
  entry.flags = 0;
}
/// sent() with cheap blame, below MPI_THREAD_MULTIPLE.
template <class AnyRecord>
inline uint64_t sent_plainly(int32_t peer, uint64_t ordinal, const AnyRecord& record) {
  const uint64_t serial = ++history.made;
  history_write(record, ordinal, serial, peer);
  return serial;
}

}  // namespace resil::blame
