// SPDX-License-Identifier: Apache-2.0
//
// The usual message, straight: a known communicator of this world, data that may be read, receives without wildcards
// that end in the order in which they were posted, below MPI_THREAD_MULTIPLE, cheap blame. Nothing here is decided
// otherwise than in receives.cpp and sends.cpp: each function either does exactly what they would do, with the same
// tables, or does nothing and says so. Which calls come here: checksum.cpp.

// No vector code: a wide load of two fields that were just stored apart waits for both stores to reach the cache.
#pragma GCC optimize("no-tree-slp-vectorize")

#include <bit>

#include "checksum/ledger/blame_internal.h"
#include "checksum/ledger/ledger.h"
#include "checksum/ledger/ledger_internal.h"
#include "checksum/p2p/p2p.h"
#include "checksum/p2p/receive_queue.h"
#include "shim/backend.h"
#include "shim/event.h"

namespace resil::p2p {

namespace {

using ledger::Reason;
using ledger::Record;
using ledger::Space;

struct FlagBytes {  // as in Receive
  bool wild, persistent, partitioned, held, listed, counted, done, failed;
};
constexpr uint64_t kListed = std::bit_cast<uint64_t>(FlagBytes{false, false, false, false, true, true, false, false});
constexpr uint64_t kHeld = std::bit_cast<uint64_t>(FlagBytes{false, false, false, true, false, false, false, false});

/// Is nothing on the communicator pending that could change which receive took a message?
bool is_quiet(const CommReceives& comm) {
  return comm.patterns == 0 && comm.waiting == 0 && !comm.lost;
}

Record record_of(uint64_t comm, const View& view, uint64_t bytes, uint64_t site, int32_t tag, uint16_t call) {
  return {comm, view_digest(view, bytes), bytes, site, static_cast<uint32_t>(tag), call, static_cast<uint8_t>(Space::kMessage),
          static_cast<uint8_t>(view.type->padded ? ledger::kPadded : 0)};
}

}  // namespace

[[gnu::flatten]] bool quick_sent(Event& e) {
  if (e.result != 0 || e.peer < 0 || e.comm == nullptr || e.check != nullptr || order_lost.load(std::memory_order_relaxed)) [[unlikely]]
    return false;
  Reason why;
  ledger::Peer* peer = ledger::peer_quickly(*e.comm, e.peer, &why);
  const View view = make_view(*e.thread, e.send.buffer, e.send.count, e.send.type);
  if (peer == nullptr || view.reason != Reason::kNone) [[unlikely]]
    return false;
  const Record record = record_of(e.comm->ring->id, view, view.bytes, e.site, e.tag, static_cast<uint16_t>(e.id));
  uint64_t ordinal = peer->announced;
  const bool plain = ledger::announce_plain(*peer, record);
  if (!plain) [[unlikely]]
    ordinal = ledger::announce(*e.thread, *peer, record);
  const uint64_t handle = blame::sent_plainly(peer->world_rank, ordinal, record);
  if ((e.attributes & kCallStarts) && e.cookies != nullptr)
    e.cookies[0] = handle << 3 | kCookieSendHandle;
  if (plain) [[likely]]
    ledger::expected_plainly(*e.thread);
  return true;
}

bool quick_posted(Event& e) {
  if (e.result != 0 || e.cookies == nullptr || e.comm == nullptr || e.peer < 0 || e.tag < 0 || (e.attributes & kCallPersistent)) [[unlikely]]
    return false;
  const TypeMap* type = type_map(*e.thread, e.receive.type);
  CommReceives* comm = comms[e.comm->index];
  if (type == nullptr || comm == nullptr || comm->id != e.comm->ring->id) [[unlikely]]
    return false;
  const View view = make_view(type, e.receive.buffer, e.receive.count);
  Receive* receive = receive_pool.take();
  if (receive == nullptr) [[unlikely]]
    return false;
  receive->view.buffer = view.buffer;
  receive->view.count = view.count;
  receive->view.type = type;
  receive->view.bytes = view.bytes;
  receive->view.reason = view.reason;
  receive->comm = comm;
  receive->order = ++posted;
  receive->site = e.site;
  receive->source = e.peer;
  receive->tag = e.tag;
  receive->call = static_cast<uint16_t>(e.id);
  receive->flags[0] = kListed;
  receive->flags[1] = 0;
  if (!type->permanent) {
    type_map_hold(type);
    receive->flags[0] = kListed | kHeld;
  }
  ++comm->entries;
  receive->bucket = bucket_index(comm->id, e.peer, e.tag);
  link(buckets[receive->bucket], receive);
  e.cookies[0] = reinterpret_cast<uint64_t>(receive) | kCookieReceive;
  return true;
}

[[gnu::flatten]] bool quick_completed(Event& e, int64_t place, uint64_t cookie) {
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
      receive->view.reason != Reason::kNone || list.first != receive || info.ring->id != comm.id) [[unlikely]]
    return false;
  Reason why;
  ledger::Peer* peer = ledger::peer_quickly(info, source, &why);
  if (peer == nullptr) [[unlikely]]
    return false;
  const View& view = receive->view;
  if (!ledger::expect_plain(*peer, record_of(comm.id, view, bytes, receive->site, tag, receive->call))) [[unlikely]]
    return false;
  Receive* next = receive->next;
  list.first = next;
  (next != nullptr ? next->previous : list.last) = nullptr;
  --comm.entries;
  if (receive->flags[0] != kListed) [[unlikely]]
    type_map_release(view.type);
  receive_pool.give(receive);
  ledger::expected_plainly(*e.thread);
  return true;
}

[[gnu::flatten]] bool quick_received(Event& e) {
  if (e.result != 0 || e.comm == nullptr || e.peer == ring::kProcNull) [[unlikely]]
    return false;
  CommReceives* comm = comms[e.comm->index];
  int32_t source, tag;
  uint64_t bytes;
  if (comm == nullptr || comm->id != e.comm->ring->id || !is_quiet(*comm) ||
      !status_glance(e.given_statuses, 0, &source, &tag, &bytes) ||
      (comm->entries != 0 && bucket_of(comm->id, source, tag).first != nullptr)) [[unlikely]]
    return false;
  const View view = make_view(*e.thread, e.receive.buffer, e.receive.count, e.receive.type);
  Reason why;
  ledger::Peer* peer = ledger::peer_quickly(*e.comm, source, &why);
  if (view.reason != Reason::kNone || bytes > view.bytes || peer == nullptr) [[unlikely]]
    return false;
  if (!ledger::expect_plain(*peer, record_of(comm->id, view, bytes, e.site, tag, static_cast<uint16_t>(e.id)))) [[unlikely]]
    return false;
  ledger::expected_plainly(*e.thread);
  return true;
}

}  // namespace resil::p2p
