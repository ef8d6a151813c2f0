// SPDX-License-Identifier: Apache-2.0
//
// Pending receives in posting order: buckets by matching queue, lists of wildcards by pattern (patterns.h). For
// receives.cpp only, and inline, because every receive passes through it. "Under the lock" means a Guard.
#pragma once

#include "checksum/ledger/lives.h"
#include "checksum/ledger/peer.h"
#include "checksum/p2p/receive_entry.h"
#include "shim/base/spinlock.h"
#include "shim/runtime/pool.h"
#include "shim/tables/tables.h"
#include "shim/tables/type_maps.h"

namespace resil::p2p {

constexpr uint32_t kBuckets = 1u << 16;

inline SpinLock queue_lock;  // only under MPI_THREAD_MULTIPLE
inline List* buckets;
inline CommReceives** comms;  // by index of the communicator table
inline memory::Pool<CommReceives, &CommReceives::next_free, 64, 1u << 16> comm_pool;
inline memory::Pool<Receive, &Receive::next, 256, 1u << 20> receive_pool;

struct Guard : OptionalGuard {
  Guard() : OptionalGuard(queue_lock, ledger::is_concurrent) {}
};

inline uint32_t bucket_index(uint64_t comm, int32_t source, int32_t tag) {
  const uint64_t match_queue = static_cast<uint64_t>(static_cast<uint32_t>(source)) << 32 | static_cast<uint32_t>(tag);
  return static_cast<uint32_t>((comm ^ match_queue * 0x9e3779b97f4a7c15) * 0xbf58476d1ce4e5b9 >> 40) & (kBuckets - 1);
}

inline List& bucket_of(uint64_t comm, int32_t source, int32_t tag) { return buckets[bucket_index(comm, source, tag)]; }

inline void link(List& list, Receive* receive) {
  receive->previous = list.last;
  receive->next = nullptr;
  (list.last != nullptr ? list.last->next : list.first) = receive;
  list.last = receive;
}

inline void unlink(List& list, Receive* receive) {
  (receive->previous != nullptr ? receive->previous->next : list.first) = receive->next;
  (receive->next != nullptr ? receive->next->previous : list.last) = receive->previous;
}

/// What is known of the receives of a communicator; null: no memory.
inline CommReceives* receives_of(const CommInfo& comm) {
  CommReceives* found = comms[comm.index];
  if (found != nullptr && found->id == comm.ring->id) [[likely]]
    return found;
  if (found == nullptr || found->entries != 0) {  // the old ones' entries keep the old state
    found = comm_pool.allocate();
    if (found == nullptr) return nullptr;
    comms[comm.index] = found;
  }
  *found = {};
  found->id = comm.ring->id;
  found->comm = const_cast<CommInfo*>(&comm);
  return found;
}

/// Under the lock. A wildcard joins the pending ones of its pattern. False: no memory.
bool pattern_enter(Receive& receive);
void pattern_leave(Receive& receive);  ///< it is complete, or has gone

inline void note_life(const Receive& receive) {
  uint64_t bytes = receive.view.bytes;
  const char* at = ledger::life_memory(receive.view, &bytes);
  ledger::life_begin(receive.order, at, bytes);
}

/// Under the lock. Its matching queue is that of `source` and `tag` as posted; a matched probe's as it ended.
inline void enqueue(Receive& receive) {
  receive.order = ledger::life_next(ledger::is_concurrent);
  note_life(receive);
  receive.done = receive.waits = false;
  receive.listed = receive.counted = true;
  ++receive.comm->entries;
  ledger::receive_pends(1);
  if (!receive.wild) [[likely]] {
    receive.bucket = bucket_index(receive.comm->id, receive.source, receive.tag);
    link(buckets[receive.bucket], &receive);
  } else if (!pattern_enter(receive)) {
    receive.comm->lost = true;
    receive.listed = false;
  }
}

/// Under the lock.
inline void dequeue(Receive& receive) {
  if (receive.listed || receive.counted) [[likely]] {  // listed ones are counted
    --receive.comm->entries;
    ledger::receive_pends(~uint64_t{0});
  }
  receive.counted = false;
  if (!receive.listed) return;
  if (receive.wild) return pattern_leave(receive);
  receive.listed = false;
  receive.comm->waiting -= receive.waits;
  unlink(buckets[receive.bucket], &receive);
}

/// Under the lock: gives the entry back, or keeps it as the template of its persistent request.
inline void retire(Receive& receive, bool for_good) {
  dequeue(receive);
  if (receive.persistent && !for_good) return;
  if (receive.held && !receive.view.type->permanent) type_map_release(receive.view.type);
  receive_pool.release(&receive);
}

}  // namespace resil::p2p
