// SPDX-License-Identifier: Apache-2.0
//
// The usual message, straight: a known communicator of this world, data that may be read, receives without wildcards
// that end in the order in which they were posted, below MPI_THREAD_MULTIPLE, cheap blame. Nothing here is decided
// otherwise than in receives.cpp and sends.cpp: each function either does exactly what they would do, with the same
// tables, or does nothing and says so. Data with holes does not go this way, nor what must be asked first (a datatype
// seen for the first time): such calls made here would cost the usual ones their registers.
//
// Inline, for fast_path.cpp, whose calls have Events, and fast_calls.cpp, whose have none.
#pragma once

// No vector code: a wide load of two fields that were just stored apart waits for both stores to reach the cache.
#pragma GCC optimize("no-tree-slp-vectorize")

#include "checksum/cookie.h"
#include "checksum/ledger/blame_history.h"
#include "checksum/ledger/ledger.h"
#include "checksum/ledger/peer.h"
#include "checksum/p2p/p2p.h"
#include "checksum/p2p/receive_queue.h"
#include "shim/abi/backend.h"
#include "shim/base/bit_cast.h"
#include "shim/runtime/accelerators/host_memory.h"
#include "shim/tables/type_maps.h"

namespace resil::p2p::straight {

using ledger::PlainRecord;
using ledger::Reason;
using ledger::Record;

// Eight flags as in Receive, the first one lowest in memory: wild, persistent, partitioned, held, listed, counted,
// done, failed.
static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__);
constexpr uint64_t flag(int number) { return uint64_t{1} << 8 * number; }
constexpr uint64_t kListed = flag(4) | flag(5);
constexpr uint64_t kHeld = flag(3);

/// Where a message was given, and by which call.
struct From {
  uint64_t site;
  uint16_t call;
};

/// Is nothing on the communicator pending that could change which receive took a message?
inline bool is_quiet(const CommReceives& comm) { return comm.order == 0 && !comm.lost; }

/// A datatype whose elements are one piece; null: not known to be.
[[gnu::always_inline]] inline const TypeMap* piece(const Thread& thread, uint64_t type) {
  const TypeMap* map = type_map_cached(thread, type);
  return map != nullptr && map->contiguous ? map : nullptr;
}

inline uint64_t bytes_of(const TypeMap& type, int64_t count) {
  return count > 0 ? static_cast<uint64_t>(count) * type.size : 0;
}

[[gnu::always_inline]] inline PlainRecord record_of(uint64_t comm, uint64_t digest, const TypeMap& type, uint64_t bytes,
                                                    uint64_t site, int32_t tag, uint16_t call) {
  const uint32_t signature = type_signature(type, bytes);
  return {comm, digest, ledger::plain_amount(bytes, signature), ledger::plain_place(site, signature),
          ledger::plain_tail(tag, call)};
}

/// Strict: the record was sent with the packet, so that mostly it is here, or about to be. `looks`: how often that is
/// hoped for; what is not here is waited for at the end of the call.
[[gnu::noinline]] inline bool expect_strictly(ledger::Peer& peer, const PlainRecord& record, unsigned looks) {
  if (!peer.in.is_open()) return false;
  for (; looks != 0 && peer.own_pending == 0; --looks) {
    if (ledger::expect_at_once(peer, record)) return true;
    if (peer.in.next() != nullptr) break;
  }
  if (!ledger::expect_plain(peer, record)) return false;
  if (peer.own_pending != 0) ledger::owe(peer);
  return true;
}
constexpr unsigned kLooks = 64;  ///< of a blocking receive: some 0.3 us
/// `strict`: the mode may be strict.
template <bool strict>
[[gnu::always_inline]] inline bool expect(ledger::Peer& peer, const PlainRecord& record, unsigned looks) {
  if constexpr (strict)
    if (ledger::is_strict) return expect_strictly(peer, record, looks);
  return ledger::expect_plain(peer, record);
}

[[gnu::noinline]] inline uint64_t announce_slowly(Thread& thread, ledger::Peer& peer, const PlainRecord record) {
  return ledger::announce(thread, peer, bit_cast<Record>(record));
}

[[gnu::noinline]] inline bool hold(const TypeMap* type) {
  type_map_hold(type);
  return true;
}

/// `word`: beside the request; null: there is none.
[[gnu::always_inline]] inline bool send(Thread& thread, const GivenMessage& given, From from, uint64_t* word) {
  if (order_lost.load(std::memory_order_relaxed)) [[unlikely]]
    return false;
  const TypeMap* type = piece(thread, given.type);
  if (type == nullptr) [[unlikely]]
    return false;
  const uint64_t bytes = bytes_of(*type, given.count);
  if (bytes != 0 && !host_memory(given.buffer, bytes)) [[unlikely]]
    return false;
  Reason why;
  ledger::Peer* peer = ledger::fast_path_peer(*given.comm, given.peer, &why);
  if (peer == nullptr) [[unlikely]]
    return false;
  const uint64_t sum = digest(given.buffer, bytes);
  const PlainRecord record = record_of(given.comm->ring->id, sum, *type, bytes, from.site, given.tag, from.call);
  uint64_t ordinal = peer->announced;
  const bool plain = ledger::announce_plain(*peer, record);
  if (!plain) [[unlikely]]
    ordinal = announce_slowly(thread, *peer, record);
  const uint64_t handle = blame::sent_plainly(peer->world_rank, ordinal, record);
  if (word != nullptr) *word = handle << 3 | kCookieSendHandle;
  else thread.announced = handle;
  if (plain) [[likely]]
    ledger::expected_plainly(thread);
  return true;
}

[[gnu::always_inline]] inline bool post(Thread& thread, const GivenMessage& given, From from, uint64_t* word) {
  const TypeMap* type = piece(thread, given.type);
  CommReceives* comm = comms[given.comm->index];
  if (type == nullptr || comm == nullptr || comm->id != given.comm->ring->id) [[unlikely]]
    return false;
  const uint64_t bytes = bytes_of(*type, given.count);
  if (bytes != 0 && !host_memory(given.buffer, bytes)) [[unlikely]]
    return false;
  Receive* receive = receive_pool.allocate_ready();
  if (receive == nullptr) [[unlikely]]
    return false;
  receive->view.buffer = given.buffer;
  receive->view.count = given.count;
  receive->view.type = type;
  receive->view.bytes = bytes;
  receive->view.reason = Reason::kNone;
  receive->comm = comm;
  receive->order = ++ledger::life_clock;
  ledger::life_begin(receive->order, given.buffer, bytes);
  receive->site = from.site;
  receive->source = given.peer;
  receive->tag = given.tag;
  receive->call = from.call;
  receive->flags[0] = type->permanent ? kListed : kListed | kHeld;
  receive->flags[1] = 0;
  ++comm->entries;
  ledger::receive_pends(1);
  receive->bucket = bucket_index(comm->id, given.peer, given.tag);
  link(buckets[receive->bucket], receive);
  *word = reinterpret_cast<uint64_t>(receive) | kCookieReceive;
  return type->permanent || hold(type);
}

template <bool strict>
[[gnu::always_inline]] inline bool complete(Thread& thread, const void* statuses, int64_t place, uint64_t cookie) {
  auto* receive = reinterpret_cast<Receive*>(cookie & ~kCookieMask);
  CommReceives& comm = *receive->comm;
  int32_t source, tag;
  uint64_t bytes;
  if ((receive->flags[0] & ~kHeld) != kListed || receive->flags[1] != 0 || !is_quiet(comm) ||
      !status_glance(statuses, place, &source, &tag, &bytes)) [[unlikely]]
    return false;
  CommInfo& info = *comm.comm;
  List& list = buckets[receive->bucket];
  if (source != receive->source || tag != receive->tag || bytes > receive->view.bytes ||
      receive->view.reason != Reason::kNone || !receive->view.type->contiguous || list.first != receive ||
      info.ring->id != comm.id) [[unlikely]]
    return false;
  Reason why;
  ledger::Peer* peer = ledger::fast_path_peer(info, source, &why);
  if (peer == nullptr) [[unlikely]]
    return false;
  const uint64_t sum = digest(receive->view.buffer, bytes);
  if (!expect<strict>(*peer, record_of(comm.id, sum, *receive->view.type, bytes, receive->site, tag, receive->call), 1))
      [[unlikely]]
    return false;
  ledger::life_end(receive->order, sum);
  Receive* next = receive->next;
  list.first = next;
  (next != nullptr ? next->previous : list.last) = nullptr;
  --comm.entries;
  ledger::receive_pends(~uint64_t{0});
  if (receive->flags[0] != kListed) [[unlikely]]
    type_map_release(receive->view.type);
  receive_pool.release(receive);
  ledger::expected_plainly(thread);
  return true;
}

template <bool strict>
[[gnu::always_inline]] inline bool receive(Thread& thread, const GivenMessage& given, From from, const void* status) {
  CommReceives* comm = comms[given.comm->index];
  int32_t source, tag;
  uint64_t bytes;
  if (comm == nullptr || comm->id != given.comm->ring->id || !is_quiet(*comm) ||
      !status_glance(status, 0, &source, &tag, &bytes) ||
      (comm->entries != 0 && bucket_of(comm->id, source, tag).first != nullptr)) [[unlikely]]
    return false;
  const TypeMap* type = piece(thread, given.type);
  if (type == nullptr) [[unlikely]]
    return false;
  const uint64_t room = bytes_of(*type, given.count);
  if (bytes > room || (room != 0 && !host_memory(given.buffer, room))) [[unlikely]]
    return false;
  Reason why;
  ledger::Peer* peer = ledger::fast_path_peer(*given.comm, source, &why);
  if (peer == nullptr) [[unlikely]]
    return false;
  if constexpr (strict) ledger::foresee(*peer);
  const uint64_t sum = digest(given.buffer, bytes);
  if (!expect<strict>(*peer, record_of(comm->id, sum, *type, bytes, from.site, tag, from.call), kLooks)) [[unlikely]]
    return false;
  if (ledger::others_pend()) [[unlikely]]
    ledger::life_passed(false, given.buffer, bytes, sum);
  ledger::expected_plainly(thread);
  return true;
}

}  // namespace resil::p2p::straight
