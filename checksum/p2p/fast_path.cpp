// SPDX-License-Identifier: Apache-2.0
//
// The usual message, straight: a known communicator of this world, data that may be read, receives without wildcards
// that end in the order in which they were posted, below MPI_THREAD_MULTIPLE, cheap blame. Nothing here is decided
// otherwise than in receives.cpp and sends.cpp: each function either does exactly what they would do, with the same
// tables, or does nothing and says so. Which calls come here: checksum.cpp. Data with holes does not, nor what must be
// asked first (a datatype seen for the first time): such calls made here would cost the usual ones their registers.

// No vector code: a wide load of two fields that were just stored apart waits for both stores to reach the cache.
#pragma GCC optimize("no-tree-slp-vectorize")

#include "checksum/cookie.h"
#include "checksum/ledger/blame.h"
#include "checksum/ledger/blame_history.h"
#include "checksum/ledger/ledger.h"
#include "checksum/ledger/peer.h"
#include "checksum/p2p/candidates.h"
#include "checksum/p2p/p2p.h"
#include "checksum/p2p/receive_queue.h"
#include "shim/abi/backend.h"
#include "shim/base/bit_cast.h"
#include "shim/model/event.h"
#include "shim/runtime/accelerators/host_memory.h"
#include "shim/tables/type_maps.h"

namespace resil::p2p {

namespace {

using ledger::PlainRecord;
using ledger::Reason;
using ledger::Record;

// Eight flags as in Receive, the first one lowest in memory: wild, persistent, partitioned, held, listed, counted,
// done, failed.
static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__);
constexpr uint64_t flag(int number) { return uint64_t{1} << 8 * number; }
constexpr uint64_t kListed = flag(4) | flag(5);
constexpr uint64_t kHeld = flag(3);

/// Is nothing on the communicator pending that could change which receive took a message?
bool is_quiet(const CommReceives& comm) { return comm.order == 0 && !comm.lost; }

/// A datatype whose elements are one piece; null: not known to be.
[[gnu::always_inline]] inline const TypeMap* piece(const Thread& thread, uint64_t type) {
  const TypeMap* map = type_map_cached(thread, type);
  return map != nullptr && map->contiguous ? map : nullptr;
}

inline uint64_t bytes_of(const TypeMap& type, int64_t count) {
  return count > 0 ? static_cast<uint64_t>(count) * type.size : 0;
}

PlainRecord record_of(uint64_t comm, uint64_t digest, const TypeMap& type, uint64_t bytes, uint64_t site, int32_t tag,
                      uint16_t call) {
  const uint32_t signature = type_signature(type, bytes);
  return {comm, digest, ledger::plain_amount(bytes, signature), ledger::plain_place(site, signature),
          ledger::plain_tail(tag, call)};
}

[[gnu::noinline]] uint64_t announce_slowly(Thread& thread, ledger::Peer& peer, const PlainRecord record) {
  return ledger::announce(thread, peer, bit_cast<Record>(record));
}

[[gnu::noinline]] bool hold(const TypeMap* type) {
  type_map_hold(type);
  return true;
}

}  // namespace

bool fast_path_sent(Event& e) {
  if (e.result != 0 || e.peer < 0 || e.comm == nullptr || state_of(e).sent != SendState::kUnread ||
      order_lost.load(std::memory_order_relaxed)) [[unlikely]]
    return false;
  const TypeMap* type = piece(*e.thread, e.send.type);
  if (type == nullptr) [[unlikely]]
    return false;
  const uint64_t bytes = bytes_of(*type, e.send.count);
  if (bytes != 0 && !host_memory(e.send.buffer, bytes)) [[unlikely]]
    return false;
  Reason why;
  ledger::Peer* peer = ledger::fast_path_peer(*e.comm, e.peer, &why);
  if (peer == nullptr) [[unlikely]]
    return false;
  const uint64_t sum = digest(e.send.buffer, bytes);
  const PlainRecord record = record_of(e.comm->ring->id, sum, *type, bytes, e.site, e.tag, static_cast<uint16_t>(e.id));
  uint64_t ordinal = peer->announced;
  const bool plain = ledger::announce_plain(*peer, record);
  if (!plain) [[unlikely]]
    ordinal = announce_slowly(*e.thread, *peer, record);
  const uint64_t handle = blame::sent_plainly(peer->world_rank, ordinal, record);
  if ((e.attributes & kCallStarts) && e.cookies != nullptr) e.cookies[kChecksumWord] = handle << 3 | kCookieSendHandle;
  if (plain) [[likely]]
    ledger::expected_plainly(*e.thread);
  return true;
}

namespace {

/// `asked`: the buffer is host memory.
template <bool asked>
[[gnu::always_inline]] inline bool post(Event& e);

[[gnu::noinline]] bool post_elsewhere(Event& e, uint64_t bytes) {
  return host_memory(e.receive.buffer, bytes) && post<true>(e);
}

template <bool asked>
bool post(Event& e) {
  if (e.result != 0 || e.cookies == nullptr || e.comm == nullptr || e.peer < 0 || e.tag < 0 ||
      (e.attributes & kCallPersistent)) [[unlikely]]
    return false;
  const TypeMap* type = piece(*e.thread, e.receive.type);
  CommReceives* comm = comms[e.comm->index];
  if (type == nullptr || comm == nullptr || comm->id != e.comm->ring->id) [[unlikely]]
    return false;
  const uint64_t bytes = bytes_of(*type, e.receive.count);
  if (!asked && bytes != 0 && !host_memory_known(e.receive.buffer, bytes)) [[unlikely]]
    return post_elsewhere(e, bytes);
  Receive* receive = receive_pool.allocate_ready();
  if (receive == nullptr) [[unlikely]]
    return false;
  receive->view.buffer = e.receive.buffer;
  receive->view.count = e.receive.count;
  receive->view.type = type;
  receive->view.bytes = bytes;
  receive->view.reason = Reason::kNone;
  receive->comm = comm;
  receive->order = ++ledger::life_clock;
  ledger::life_begin(receive->order, e.receive.buffer, bytes);
  receive->site = e.site;
  receive->source = e.peer;
  receive->tag = e.tag;
  receive->call = static_cast<uint16_t>(e.id);
  receive->flags[0] = type->permanent ? kListed : kListed | kHeld;
  receive->flags[1] = 0;
  ++comm->entries;
  ledger::receive_pends(1);
  receive->bucket = bucket_index(comm->id, e.peer, e.tag);
  link(buckets[receive->bucket], receive);
  e.cookies[kChecksumWord] = reinterpret_cast<uint64_t>(receive) | kCookieReceive;
  return type->permanent || hold(type);
}

}  // namespace

bool fast_path_posted(Event& e) { return post<false>(e); }

bool fast_path_completed(Event& e, int64_t place, uint64_t cookie) {
  auto* receive = reinterpret_cast<Receive*>(cookie & ~kCookieMask);
  CommReceives& comm = *receive->comm;
  int32_t source, tag;
  uint64_t bytes;
  if (e.result != 0 || (receive->flags[0] & ~kHeld) != kListed || receive->flags[1] != 0 || !is_quiet(comm) ||
      !status_glance(e.given_statuses, place, &source, &tag, &bytes)) [[unlikely]]
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
  if (!ledger::expect_plain(
          *peer, record_of(comm.id, sum, *receive->view.type, bytes, receive->site, tag, receive->call))) [[unlikely]]
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
  ledger::expected_plainly(*e.thread);
  return true;
}

namespace {

[[gnu::always_inline]] inline bool received(Event& e) {
  if (e.result != 0 || e.comm == nullptr) [[unlikely]]
    return false;
  CommReceives* comm = comms[e.comm->index];
  int32_t source, tag;
  uint64_t bytes;
  if (comm == nullptr || comm->id != e.comm->ring->id || !is_quiet(*comm) ||
      !status_glance(e.given_statuses, 0, &source, &tag, &bytes) ||
      (comm->entries != 0 && bucket_of(comm->id, source, tag).first != nullptr)) [[unlikely]]
    return false;
  const TypeMap* type = piece(*e.thread, e.receive.type);
  if (type == nullptr) [[unlikely]]
    return false;
  const uint64_t room = bytes_of(*type, e.receive.count);
  if (bytes > room || (room != 0 && !host_memory(e.receive.buffer, room))) [[unlikely]]
    return false;
  Reason why;
  ledger::Peer* peer = ledger::fast_path_peer(*e.comm, source, &why);
  if (peer == nullptr) [[unlikely]]
    return false;
  const uint64_t sum = digest(e.receive.buffer, bytes);
  if (!ledger::expect_plain(*peer, record_of(comm->id, sum, *type, bytes, e.site, tag, static_cast<uint16_t>(e.id))))
      [[unlikely]]
    return false;
  if (ledger::others_pend()) [[unlikely]]
    ledger::life_passed(false, e.receive.buffer, bytes, sum);
  ledger::expected_plainly(*e.thread);
  return true;
}

/// From MPI_PROC_NULL, or MPI_ANY_SOURCE.
[[gnu::noinline]] bool received_from_any(Event& e) {
  if (e.peer != ring::kAnySource || !received(e)) return false;
  int32_t source, tag;
  uint64_t bytes;
  if (status_glance(e.given_statuses, 0, &source, &tag, &bytes))
    wild_received(e, {e.comm->ring->id, e.tag, source, tag, comms[e.comm->index]->entries == 0 ? e.record_number : 0});
  return true;
}

}  // namespace

bool fast_path_received(Event& e) {
  if (e.peer < 0) [[unlikely]]
    return received_from_any(e);
  return received(e);
}

}  // namespace resil::p2p
