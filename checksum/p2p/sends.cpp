// SPDX-License-Identifier: Apache-2.0
//
// Sends: the digest is taken after the message has been given to MPI (reading a pending send buffer is legal, MPI 4.0
// section 3.7.2), so that it is hidden behind the transfer, and announced in the order of the calls.

#include "checksum/cookie.h"
#include "checksum/ledger/blame.h"
#include "checksum/ledger/ledger.h"
#include "checksum/p2p/p2p.h"
#include "shim/abi/backend.h"
#include "shim/base/hash.h"
#include "shim/base/spinlock.h"
#include "shim/model/event.h"
#include "shim/runtime/pool.h"
#include "shim/runtime/staged.h"
#include "shim/tables/buffer_view.h"
#include "shim/tables/tables.h"

namespace resil::p2p {

std::atomic<bool> order_lost;

namespace {

using ledger::Reason;
using ledger::Record;
using ledger::Space;

/// A send that is followed beyond its call: persistent, partitioned, or with RESIL_BLAME=full.
struct SendEntry {
  View view;
  Record record;  // all but the digest
  ledger::Peer* peer;  // null: not reachable, `why`
  uint64_t handle;  // blame's, of the last packet
  SendEntry* next_free;
  int32_t rank;  // communicator rank
  Reason why;
  bool persistent, partitioned, shared;
  bool later;  // staged: not announced yet
  bool alone;  // and then nobody needs the entry any more
};

memory::Pool<SendEntry, &SendEntry::next_free, 512, 1u << 17> entries;  // 17 MiB at most
SpinLock entries_lock;
std::atomic<bool> cancels_seen;

SendEntry* take_entry() {
  SpinGuard guard(entries_lock);
  return entries.allocate();
}

void release(SendEntry* entry) {
  if (entry->view.type != nullptr) type_map_release(entry->view.type);
  SpinGuard guard(entries_lock);
  entries.release(entry);
}

Record make_record(const Event& e, Space space) {
  return {e.comm->ring->id,
          0,
          0,
          e.site,
          static_cast<uint32_t>(e.tag),
          static_cast<uint16_t>(e.id),
          static_cast<uint8_t>(space),
          0};
}

/// Digest into the record, or why there is none.
void fill(Record& record, const View& view, bool shared) {
  record.bytes = view.bytes;
  record.flags = shared ? ledger::kUnordered : 0;
  if (view.reason == Reason::kNone) [[likely]] {
    record.digest = view_digest(view, view.bytes);
    record.flags |= view.type->padded ? ledger::kPadded : 0;
  } else {
    record.digest = static_cast<uint64_t>(view.reason);
    record.flags |= ledger::kUnchecked;
  }
}

bool replaces(CallId id) { return class_of(id) == CallClass::kSendReceiveReplace; }

uint64_t announce(Thread& thread, ledger::Peer& peer, Record& record, const View& view) {
  if (view.type != nullptr) record.set_type(type_signature(*view.type, record.bytes));
  if (order_lost.load(std::memory_order_relaxed)) [[unlikely]] {
    record.flags |= ledger::kUnchecked;
    record.digest = static_cast<uint64_t>(Reason::kOrderLost);
  }
  const uint64_t ordinal = ledger::announce(thread, peer, record);
  return blame::sent(ledger::world_rank_of(peer), ordinal, record, view);
}

View view_of(const Event& e) {
  const TypeMap* held =
      ledger::is_concurrent && !(e.attributes & (kCallBothWays | kCallPersistent)) ? state_of(e).held_type : nullptr;
  View view = held != nullptr ? make_view(held, e.send.buffer, e.send.count)
                              : make_view(*e.thread, e.send.buffer, e.send.count, e.send.type);
  if ((e.attributes & kCallPartitioned) && view.reason != Reason::kDatatype) {
    view.count *= e.partitions;
    view.bytes *= static_cast<uint64_t>(e.partitions);
  }
  return view;
}

SendEntry* follow(const Event& e, const View& view, const Record& record, ledger::Peer* peer, Reason why) {
  SendEntry* entry = take_entry();
  if (entry == nullptr) return nullptr;
  if (view.type != nullptr) type_map_hold(view.type);
  *entry = {view,
            record,
            peer,
            0,
            nullptr,
            e.peer,
            why,
            (e.attributes & kCallPersistent) != 0,
            (e.attributes & kCallPartitioned) != 0,
            false,
            false,
            false};
  return entry;
}

}  // namespace

void send_enter_slow(Event& e) {
  CallState& state = state_of(e);
  state.held_type = nullptr;
  if (e.peer < 0 || e.comm == nullptr) return;
  match_queue_is_shared(e.comm->ring->id, e.peer, e.tag, true);
  if (ledger::is_concurrent && !(e.attributes & kCallBothWays)) {
    // Another thread may free the datatype while this one is inside.
    state.held_type = type_map(*e.thread, e.send.type);
    if (state.held_type != nullptr) type_map_hold(state.held_type);
  }
  // The buffer is about to be overwritten by the receive, or must be known before and after (full blame).
  const bool both = (e.attributes & kCallBothWays) && (e.attributes & kCallBlocking);
  const bool early = both && ledger::strict() && !ledger::is_concurrent;
  if (!replaces(e.id) && !early && !(ledger::full_blame() && (e.attributes & kCallBlocking))) return;
  const View view = view_of(e);
  if (view.reason == Reason::kNone) {
    state.digest = view_digest(view, view.bytes);
    state.sent = SendState::kDigested;
  }
  if (early &&
      (view.reason != Reason::kDeviceBuffer ||
       staged_copies ==
           nullptr))  // MPI_Sendrecv may wait for a message that the partner sends only once this one is verified
    send_announce(e, view);
}

void send_announce(Event& e, const View& view) {
  Reason why = Reason::kNone;
  ledger::Peer* peer = e.comm != nullptr ? ledger::fast_path_peer(*e.comm, e.peer, &why) : nullptr;
  if (peer == nullptr) return;
  CallState& state = state_of(e);
  Record record = make_record(e, Space::kMessage);
  if (state.sent == SendState::kDigested) {
    record.bytes = view.bytes;
    record.digest = state.digest;
    record.flags = view.type->padded ? ledger::kPadded : 0;
  } else {
    fill(record, view, false);
  }
  state.packet = announce(*e.thread, *peer, record, view);
  state.sent = SendState::kAnnounced;
}

void send_early(Event& e) { send_announce(e, view_of(e)); }

void send_announcing(Event& e, const StagedView& copy) {
  CallState& state = state_of(e);
  if (!ledger::strict() || ledger::is_concurrent || state.sent != SendState::kUnread) return;
  state.sent = SendState::kDigested;
  state.digest = copy.digest;
  send_announce(e, copy.view);
}

namespace {

void begin_cancel(uint64_t handle) {
  if (!blame::cancel_begin(handle))
    order_lost.store(true, std::memory_order_relaxed);  // which matching queue is ahead by one now is not known
}

void end_cancel(uint64_t handle, blame::CancelEnd end) {
  Record record;
  if (const int32_t rank = blame::cancel_end(handle, end, &record); rank >= 0)
    if (ledger::Peer* peer = ledger::peer_find(rank); peer != nullptr) ledger::take_back(*peer, record);
}

/// The call says that it failed. Was the message sent all the same?
bool was_sent(const Event& e) {
  return (e.attributes & kCallBothWays) && backend->messages->error_kind(e.result) == ErrorKind::kTruncated;
}

/// A buffer on a device, whose data is sent from pinned memory: that is announced, in a row with the other sends of the
/// matching queue. False: it is sent some other way.
bool announce_staged(Event& e, const View& view, ledger::Peer& peer) {
  StagedView copy;
  void** word = nullptr;
  const StagedSend sent = staged_copies->sent(e, &copy, &word);
  if (sent == StagedSend::kElsewhere) return false;
  const bool follows = (e.attributes & kCallStarts) && e.cookies != nullptr && !(e.attributes & kCallBothWays);
  Record record = make_record(e, Space::kMessage);
  const bool shared = match_queue_is_shared(record.comm, e.peer, e.tag, true, true);
  record.bytes = view.bytes;
  record.flags = shared ? ledger::kUnordered : 0;
  if (sent == StagedSend::kPosted) {
    record.digest = copy.digest;
    const uint64_t handle = announce(*e.thread, peer, record, copy.view);
    SendEntry* entry = follows && ledger::full_blame() ? follow(e, view, record, &peer, Reason::kNone) : nullptr;
    if (entry != nullptr) {
      entry->handle = handle;
      e.cookies[kChecksumWord] = reinterpret_cast<uint64_t>(entry) | kCookieSend;
    } else if (follows) e.cookies[kChecksumWord] = handle << 3 | kCookieSendHandle;
    else if ((!(e.attributes & kCallStarts) || e.cookies == nullptr) && ledger::full_blame() && handle != 0 &&
             !replaces(e.id))
      blame::sent_complete(handle, copy.view);
    return true;
  }
  SendEntry* entry = follow(e, view, record, &peer, Reason::kNone);
  if (entry == nullptr) {
    order_lost.store(true, std::memory_order_relaxed);
    return true;
  }
  entry->later = true;
  entry->alone = !follows;
  *word = entry;
  if (follows) e.cookies[kChecksumWord] = reinterpret_cast<uint64_t>(entry) | kCookieSend;
  return true;
}

void announce_send(Event& e) {
  if (e.peer < 0 || e.comm == nullptr) return;
  const bool failed = e.result != 0 && !was_sent(e);
  const CallState& state = state_of(e);
  if (state.sent == SendState::kAnnounced) {
    if (failed) {
      begin_cancel(state.packet);
      end_cancel(state.packet, blame::CancelEnd::kWithdrawn);
    } else if (ledger::full_blame() && !replaces(e.id)) {
      StagedView copy;
      copy.view = view_of(e);
      if (copy.view.reason != Reason::kDeviceBuffer ||
          (staged_copies != nullptr && staged_copies->ended(*e.thread, e.send.buffer, &copy)))
        blame::sent_complete(state.packet, copy.view);
    }
    return;
  }
  if (failed) return;
  Reason why = Reason::kNone;
  ledger::Peer* peer = ledger::fast_path_peer(*e.comm, e.peer, &why);
  if (peer == nullptr) return;  // counted where the message is received
  const View view = view_of(e);
  if (view.reason == Reason::kDeviceBuffer && staged_copies != nullptr && announce_staged(e, view, *peer)) [[unlikely]]
    return;
  Record record = make_record(e, Space::kMessage);
  const bool shared = match_queue_is_shared(record.comm, e.peer, e.tag, true, true);
  if (state.sent == SendState::kDigested) {
    record.bytes = view.bytes;
    record.digest = state.digest;
    record.flags = static_cast<uint8_t>((shared ? ledger::kUnordered : 0) | (view.type->padded ? ledger::kPadded : 0));
  } else {
    fill(record, view, shared);
  }
  const uint64_t handle = announce(*e.thread, *peer, record, view);
  if (!(e.attributes & kCallStarts) || e.cookies == nullptr) {  // blocking, or complete at once
    if (ledger::full_blame() && handle != 0 && !replaces(e.id)) blame::sent_complete(handle, view);
    return;
  }
  if (e.attributes & kCallBothWays) return;  // the cookie is the receive's
  if (!ledger::full_blame()) {
    e.cookies[kChecksumWord] = handle << 3 | kCookieSendHandle;
  } else if (SendEntry* entry = follow(e, view, record, peer, why); entry != nullptr) {
    entry->handle = handle;
    e.cookies[kChecksumWord] = reinterpret_cast<uint64_t>(entry) | kCookieSend;
  }
}

}  // namespace

[[gnu::flatten]] void send_leave(Event& e) {
  announce_send(e);
  if (ledger::is_concurrent && !(e.attributes & kCallBothWays) && state_of(e).held_type != nullptr) [[unlikely]]
    type_map_release(state_of(e).held_type);
}

void send_init_leave(Event& e) {
  if (e.result != 0 || e.peer < 0 || e.comm == nullptr) return;
  if (e.cookies == nullptr)  // untracked: its starts will not be seen
    return order_lost.store(true, std::memory_order_relaxed);
  Reason why = Reason::kNone;
  ledger::Peer* peer = ledger::peer_of(*e.comm, e.peer, &why);
  if (peer == nullptr) return;
  Record record = make_record(e, e.attributes & kCallPartitioned ? Space::kPartitioned : Space::kMessage);
  View view = view_of(e);
  if (e.attributes & kCallPartitioned) {
    const int64_t ordinal = partitioned_ordinal(record.comm, e.peer, e.tag, true);
    record.comm = hash_combine(record.comm, static_cast<uint64_t>(ordinal));
    if (ordinal < 0 && view.reason == Reason::kNone) view.reason = Reason::kMemory;  // too many kinds to be told apart
  }
  SendEntry* entry = follow(e, view, record, peer, why);
  if (entry == nullptr) return order_lost.store(true, std::memory_order_relaxed);
  e.cookies[kChecksumWord] = reinterpret_cast<uint64_t>(entry) | kCookieSend;
}

void send_started(Event& e, uint64_t cookie) {
  auto* entry = reinterpret_cast<SendEntry*>(cookie & ~kCookieMask);
  if (entry->partitioned || e.result != 0 || class_of(e.id) != CallClass::kStart)
    return;  // partitions become ready one by one: digested when the send is complete
  const bool shared =
      match_queue_is_shared(entry->record.comm, entry->rank, static_cast<int32_t>(entry->record.tag), true);
  fill(entry->record, entry->view, shared);
  entry->handle = announce(*e.thread, *entry->peer, entry->record, entry->view);
}

namespace {
/// The request is freed, and the message not given to the library yet: whoever does that gives the entry back.
bool left_to_poster(SendEntry& entry) {
  SpinGuard guard(entries_lock);
  entry.alone = entry.later;
  return entry.alone;
}
}  // namespace

bool send_is_over() { return !cancels_seen.load(std::memory_order_relaxed); }

void send_completed(Event& e, int64_t place, uint64_t* cookie, bool freed) {
  auto* entry =
      (*cookie & kCookieMask) == kCookieSendHandle ? nullptr : reinterpret_cast<SendEntry*>(*cookie & ~kCookieMask);
  bool withdrawn = false;
  if (cancels_seen.load(std::memory_order_relaxed)) [[unlikely]] {
    StatusInfo status = {};
    const bool unknown = freed || backend->messages->status_ignored(e.given_statuses);
    if (!unknown) backend->messages->status_read(e.given_statuses, place, &status);
    withdrawn = status.cancelled;
    if (entry == nullptr || !entry->partitioned)
      end_cancel(entry != nullptr ? entry->handle : *cookie >> 3, unknown     ? blame::CancelEnd::kUnknown
                                                                  : withdrawn ? blame::CancelEnd::kWithdrawn
                                                                              : blame::CancelEnd::kSent);
  }
  if (entry == nullptr) return;
  if (!freed) {
    if (entry->partitioned && !withdrawn) {
      fill(entry->record, entry->view, false);
      entry->handle = announce(*e.thread, *entry->peer, entry->record, entry->view);
    }
    StagedView copy;
    if (withdrawn || !ledger::full_blame() || entry->handle == 0)
      ;  // nothing to be said of it
    else if (entry->view.reason == Reason::kNone) blame::sent_complete(entry->handle, entry->view);
    else if (entry->view.reason == Reason::kDeviceBuffer && staged_copies != nullptr &&
             staged_copies->ended(*e.thread, entry->view.buffer, &copy))
      blame::sent_complete(entry->handle, copy.view);
  }
  if (freed && left_to_poster(*entry)) return;
  if (freed || !entry->persistent) release(entry);
}

void send_told_complete(uint64_t cookie) {
  auto* entry = reinterpret_cast<SendEntry*>(cookie & ~kCookieMask);
  if (!ledger::full_blame() || entry->partitioned || entry->handle == 0 || entry->view.reason != Reason::kNone) return;
  blame::sent_complete(entry->handle, entry->view);
  entry->handle = 0;
}

void send_posted(Thread& thread, void* word, const StagedView& copy) {
  auto* entry = static_cast<SendEntry*>(word);
  entry->record.digest = copy.digest;
  entry->handle = announce(thread, *entry->peer, entry->record, copy.view);
  send_dropped(entry);
}

void send_dropped(void* word) {
  auto* entry = static_cast<SendEntry*>(word);
  bool alone;
  {
    SpinGuard guard(entries_lock);  // another thread may free the request
    entry->later = false;
    alone = entry->alone;
  }
  if (alone) release(entry);
}

void cancel_enter(Event& e) {
  const uint64_t* cookies = request_cookies(*e.thread, request_handle(e.requests, 0));
  const uint64_t cookie = cookies != nullptr ? cookies[kChecksumWord] : 0;
  const uint64_t kind = cookie & kCookieMask;
  if (kind != kCookieSendHandle && kind != kCookieSend) return;
  cancels_seen.store(true, std::memory_order_relaxed);
  const auto* entry = reinterpret_cast<const SendEntry*>(cookie & ~kCookieMask);
  if (kind == kCookieSendHandle) begin_cancel(cookie >> 3);
  else if (!entry->partitioned) begin_cancel(entry->handle);
}

}  // namespace resil::p2p
