// SPDX-License-Identifier: Apache-2.0
//
// Receives. Among receives that end with the same (communicator, source, tag), posting order is sending order (MPI 4.0
// section 3.5), so completed receives are expected in posting order: one that an earlier, still pending receive could
// have claimed the message of is parked until that one is known.
//
// Pending receives with a given source and tag wait in buckets by (communicator, source, tag), wildcards by
// pattern. In the usual case, nothing older of the same matching queue and no wildcard, a receive is expected at once,
// and a blocking one never enters the tables.

#include <cstring>

#include "checksum/cookie.h"
#include "checksum/ledger/blame.h"
#include "checksum/ledger/ledger.h"
#include "checksum/ledger/peer.h"
#include "checksum/p2p/candidates.h"
#include "checksum/p2p/p2p.h"
#include "checksum/p2p/patterns.h"
#include "checksum/p2p/receive_fill.h"
#include "checksum/p2p/receive_queue.h"
#include "checksum/p2p/receive_side.h"
#include "shim/abi/backend.h"
#include "shim/base/hash.h"
#include "shim/call/runtime.h"
#include "shim/model/event.h"
#include "shim/runtime/memory.h"
#include "shim/runtime/staged.h"
#include "shim/tables/buffer_view.h"
#include "shim/tables/tables.h"

namespace resil::p2p {

namespace {

using ledger::Difference;
using ledger::Reason;
using ledger::Record;
using ledger::Space;

constexpr uint32_t kMessages = 256;  // matched probes waiting for their receive
struct {
  uint64_t handle;
  Receive* receive;
} messages[kMessages];

/// Predefined types need no counting.
void keep_type(const TypeMap* type) {
  if (!type->permanent) type_map_hold(type);
}

Record record_of(const Receive& receive, bool order_lost) {
  Record record = {receive.partitioned ? receive.match_queue_comm : receive.comm->id,
                   receive.digest,
                   receive.bytes,
                   receive.site,
                   static_cast<uint32_t>(receive.actual_tag),
                   receive.call,
                   static_cast<uint8_t>(receive.partitioned ? Space::kPartitioned : Space::kMessage),
                   0};
  Reason reason = receive.staged ? Reason::kNone : receive.view.reason;
  if (receive.failed) reason = Reason::kError;
  if (receive.no_status) reason = Reason::kNoStatus;
  if (order_lost && !receive.partitioned) reason = Reason::kOrderLost;
  if (reason != Reason::kNone) {
    record.flags |= ledger::kUnchecked;
    record.digest = static_cast<uint64_t>(reason);
  } else if (receive.view.type->padded) {
    record.flags |= ledger::kPadded;
  }
  if (receive.shared) record.flags |= ledger::kUnordered;
  if (receive.view.type != nullptr) record.set_type(type_signature(*receive.view.type, receive.bytes));
  return record;
}

/// A finished receive goes into its matching queue; under this file's lock, so that matching queues see posting order.
void expect(Receive& receive, ledger::Peer** peer, Difference* difference) {
  Reason why = Reason::kNone;
  // A communicator may be freed while receives are pending (MPI 4.0 section 7.4.3), and its place be another one's by
  // now.
  CommInfo& comm = *receive.comm->comm;
  if (comm.ring->id == receive.comm->id) [[likely]]
    *peer = ledger::fast_path_peer(comm, receive.actual_source, &why);
  else *peer = nullptr, why = Reason::kUnknownCommunicator;
  if (*peer == nullptr) {
    ledger::count_uncovered(why, 1, receive.bytes);
    if (receive.evidence != 0) blame::drop(receive.evidence);
    return;
  }
  ledger::expect_quietly(**peer, record_of(receive, receive.comm->lost), receive.evidence, difference);
}

/// The oldest receive of a matching queue has gone: those behind it that are complete follow. Matching queues without
/// wildcards need nothing else, so that many receives completed out of order cost no search.
void settle_match_queue(Thread& thread, CommReceives& comm, uint32_t bucket, int32_t source, int32_t tag) {
  while (true) {
    Difference difference;
    ledger::Peer* peer = nullptr;
    int32_t gate_source, gate_tag;
    {
      Guard guard;
      Receive* receive = buckets[bucket].first;
      while (receive != nullptr && (receive->comm != &comm || receive->source != source || receive->tag != tag))
        receive = receive->next;
      if (receive == nullptr || !receive->waits || (!is_first(*receive) && is_shut(*receive, &gate_source, &gate_tag)))
        return;
      expect(*receive, &peer, &difference);
      retire(*receive, false);
    }
    if (difference.found) ledger::raise_difference(thread, *peer, difference);
  }
}

/// Expects what waited at a gate and need not any more, oldest first.
void settle_pattern(Thread& thread, CommReceives& comm, int32_t source, int32_t tag) {
  const bool wild = source == ring::kAnySource || tag == ring::kAnyTag;
  while (true) {
    Difference difference;
    ledger::Peer* peer = nullptr;
    Receive* receive;
    bool match_queue = false;
    int32_t gate_source, gate_tag;
    {
      Guard guard;
      receive = unpark(comm, source, tag);
      if (receive == nullptr) return;
      if (is_shut(*receive, &gate_source, &gate_tag)) {
        if (park(*receive, gate_source, gate_tag)) continue;
        comm.lost = true;
      }
      match_queue = !receive->wild;
      gate_source = receive->actual_source;
      gate_tag = receive->actual_tag;
      expect(*receive, &peer, &difference);
      retire(*receive, false);
    }
    if (difference.found) ledger::raise_difference(thread, *peer, difference);
    if (match_queue &&
        comm.waiting != 0)  // complete before there was a wildcard: they wait in the bucket, not in the heap
      settle_match_queue(thread, comm, bucket_index(comm.id, gate_source, gate_tag), gate_source, gate_tag);
    if (match_queue && wild) settle_pattern(thread, comm, gate_source, gate_tag);
  }
}

/// After a receive with this source and tag has gone: what may go now.
void settle(Thread& thread, CommReceives& comm, bool wild, int32_t source, int32_t tag) {
  if (!wild) settle_match_queue(thread, comm, bucket_index(comm.id, source, tag), source, tag);
  if (comm.patterns != 0) settle_pattern(thread, comm, source, tag);
}

/// Under the lock: the persistent request may be started again before its last packet is resolved, so that one waits
/// in an entry of its own, at the same place in the order.
Receive* stand_in(Receive& receive) {
  Receive* copy = receive_pool.allocate();
  if (copy == nullptr) return nullptr;
  *copy = receive;
  copy->persistent = copy->held = false;
  if (receive.listed) {
    List& list = buckets[receive.bucket];
    (copy->previous != nullptr ? copy->previous->next : list.first) = copy;
    (copy->next != nullptr ? copy->next->previous : list.last) = copy;
  }
  receive.listed = receive.counted = false;
  return copy;
}

/// For the count of receives with several candidates.
[[gnu::noinline]] void look_at_wild(const Event& e, const Receive& receive) {
  if (receive.source == ring::kAnySource && !receive.partitioned && !receive.failed && !receive.no_status &&
      !ledger::is_concurrent)
    wild_received(e, {receive.comm->id, receive.tag, receive.actual_source, receive.actual_tag, receive.posted_as});
}

/// The receive is complete: everything about it is filled in.
void finish(Event& e, Receive& receive) {
  Thread& thread = *e.thread;
  Difference difference;
  ledger::Peer* peer = nullptr;
  CommReceives& comm = *receive.comm;
  Receive* waiting = &receive;
  const bool wild = receive.wild;
  const int32_t source = receive.source, tag = receive.tag;
  bool gone = false;
  {
    Guard guard;
    receive.done = true;
    if (wild) {
      pattern_leave(receive);
      look_at_wild(e, receive);
    }
    int32_t gate_source, gate_tag;
    if (receive.partitioned || is_first(receive) || !is_shut(receive, &gate_source, &gate_tag)) {
      gone = !receive.partitioned;
    } else if (receive.persistent && (waiting = stand_in(receive)) == nullptr) {
      comm.lost = gone = true;
      waiting = &receive;
    } else if (!wild && comm.patterns == 0) {
      waiting->waits = true;
      ++comm.waiting;
      waiting = nullptr;
    } else if (park(*waiting, gate_source, gate_tag)) {
      waiting = nullptr;
    } else {
      comm.lost = gone = true;
    }
    if (waiting != nullptr) {
      expect(*waiting, &peer, &difference);
      retire(*waiting, false);
    }
  }
  if (difference.found) ledger::raise_difference(thread, *peer, difference);
  if ((gone || wild) && comm.entries != 0) settle(thread, comm, wild, source, tag);
  ledger::expected(thread);
}

/// An entry vanishes without having taken a message: what was parked behind it may be free now. `over`: so is its
/// memory.
void vanish(Thread& thread, Receive& receive, bool for_good, bool over = true) {
  if (over) ledger::life_end(receive.order, 0);
  CommReceives& comm = *receive.comm;
  const bool listed = receive.listed, wild = receive.wild;
  const int32_t source = receive.source, tag = receive.tag;
  blame::drop_posted(receive.posted);
  receive.posted = 0;
  {
    Guard guard;
    retire(receive, for_good);
  }
  if (listed) settle(thread, comm, wild, source, tag);
}

/// Some receive of this communicator is not followed: no matching queue of it can be trusted to be in order any more.
void lose_order(const CommInfo& comm) {
  Guard guard;
  if (CommReceives* state = receives_of(comm); state != nullptr) state->lost = true;
}

/// The same, because there was no memory to follow it (or to tell whose message it took).
void untracked(const CommInfo* comm, uint64_t bytes) {
  ledger::count_untracked();
  ledger::count_uncovered(Reason::kMemory, 1, bytes);
  if (comm != nullptr) lose_order(*comm);
}

/// A new entry for this call's receive, not in any list yet. Null: no memory.
Receive* make(const Event& e, const View& view, bool hold) {
  Guard guard;
  CommReceives* comm = receives_of(*e.comm);
  Receive* receive = comm != nullptr ? receive_pool.allocate() : nullptr;
  if (receive == nullptr) return nullptr;
  receive->view = view;
  receive->posted = receive->evidence = 0;
  receive->flags[0] = receive->flags[1] = 0;
  receive->both_ways = (e.attributes & kCallBothWays) != 0 && (e.attributes & kCallStarts) != 0;
  receive->comm = comm;
  receive->site = e.site;
  receive->call = static_cast<uint16_t>(e.id);
  receive->source = source_of(e);
  receive->tag = tag_wanted(e);
  receive->wild = receive->source == ring::kAnySource || receive->tag == ring::kAnyTag;
  receive->posted_as = e.record_number;
  receive->persistent = (e.attributes & kCallPersistent) != 0;
  receive->partitioned = (e.attributes & kCallPartitioned) != 0;
  receive->held = hold && view.type != nullptr;
  if (receive->held) keep_type(view.type);
  return receive;
}

/// A blocking receive below MPI_THREAD_MULTIPLE with nothing of its matching queue before it: straight into the
/// matching queue.
bool finish_directly(Event& e, const View& view, const StatusInfo& status) {
  if (ledger::is_concurrent) return false;
  CommReceives* comm = comms[e.comm->index];
  if (comm == nullptr || comm->id != e.comm->ring->id || comm->patterns != 0 || comm->lost || status.bytes > view.bytes)
    return false;
  if (bucket_of(comm->id, status.source, status.tag).first != nullptr) return false;
  Reason why = Reason::kNone;
  ledger::Peer* peer = ledger::fast_path_peer(*e.comm, status.source, &why);
  if (peer == nullptr) {
    ledger::count_uncovered(why, 1, status.bytes);
    blame::drop_posted(state_of(e).posted);
    return true;
  }
  ledger::foresee(*peer);
  Record record = {comm->id,
                   static_cast<uint64_t>(view.reason),
                   status.bytes,
                   e.site,
                   static_cast<uint32_t>(status.tag),
                   static_cast<uint16_t>(e.id),
                   static_cast<uint8_t>(Space::kMessage),
                   ledger::kUnchecked};
  if (view.type != nullptr) record.set_type(type_signature(*view.type, status.bytes));
  uint64_t evidence = 0;
  if (StagedView copy; staged_receive(*e.thread, view, status.bytes, &copy)) [[unlikely]] {
    record.digest = copy.digest;
    record.flags = 0;
    if (ledger::full_blame())
      evidence =
          blame::receive_complete(state_of(e).posted, copy.view, status.bytes, record.digest, blame::LookWhen::kNow);
  } else if (view.reason == Reason::kNone) [[likely]] {
    record.digest = view_digest(view, status.bytes);
    record.flags = view.type->padded ? ledger::kPadded : 0;
    if (ledger::full_blame()) evidence = blame::receive_complete(state_of(e).posted, view, status.bytes, record.digest);
  }
  if (ledger::others_pend() && record.flags != ledger::kUnchecked) [[unlikely]] {
    uint64_t bytes = status.bytes;
    const char* at = ledger::life_memory(view, &bytes);
    ledger::life_passed(false, at, bytes, record.digest);
  }
  ledger::expect(*e.thread, *peer, record, evidence);
  return true;
}

ErrorKind error_of(const Event& e, const StatusInfo& status, bool array) {
  if (e.result == 0) [[likely]]
    return ErrorKind::kNone;
  ErrorKind error = backend->messages->error_kind(e.result);
  return error == ErrorKind::kInStatus && array ? backend->messages->error_kind(status.error) : error;
}

/// The entry of a matched message, taken out of the table; null: unknown (MPI_MESSAGE_NO_PROC, a full table).
Receive* matched_receive(uint64_t handle) {
  Guard guard;
  for (auto& message : messages)
    if (message.handle == handle && message.receive != nullptr) {
      Receive* receive = message.receive;
      message.receive = nullptr;
      return receive;
    }
  return nullptr;
}

}  // namespace

bool prepare() {
  size_t bytes = kBuckets * sizeof(List) + runtime.comm_count * sizeof(CommReceives*);
  buckets = static_cast<List*>(memory::map(bytes));
  if (buckets == nullptr) return false;
  comms = reinterpret_cast<CommReceives**>(buckets + kBuckets);
  return true;
}

void receive_enter_slow(Event& e) {
  if (e.comm == nullptr || source_of(e) == ring::kProcNull) return;
  match_queue_is_shared(e.comm->ring->id, source_of(e), tag_wanted(e), false);
  if (ledger::full_blame() && !(e.attributes & kCallPersistent))
    state_of(e).posted = (e.attributes & kCallStarts) != 0 && !replaces(e.id) ? blame::receive_pending(view_of(e), e)
                                                                              : blame::receive_posted(view_of(e));
  if (!ledger::is_concurrent || (e.attributes & kCallPersistent)) return;
  // Other threads may post and complete while this one is inside: its place in the order is taken now.
  Receive* receive = make(e, view_of(e), true);  // held: another thread may free the datatype meanwhile
  if (receive == nullptr) return lose_order(*e.comm);
  receive->posted = state_of(e).posted;
  {
    Guard guard;
    enqueue(*receive);
  }
  state_of(e).receive = receive;
}

[[gnu::flatten]] void receive_leave(Event& e) {
  const bool message = class_of(e.id) == CallClass::kMatchedReceive;
  Receive* receive = state_of(e).receive;
  if (!message && (e.comm == nullptr || source_of(e) == ring::kProcNull)) return;
  StatusInfo status = {};
  if (!backend->messages->status_ignored(e.given_statuses)) {
    backend->messages->status_read(e.given_statuses, 0, &status);
  } else {
    status.source = -1;
  }
  const ErrorKind error = error_of(e, status, false);
  const View view = message              ? make_view(*e.thread, e.receive.buffer, e.receive.count, e.receive.type)
                    : receive != nullptr ? receive->view
                                         : view_of(e);
  if (receive == nullptr) {
    if (message) {
      blame::drop_posted(state_of(e).posted);
      return status.source >= 0 ? untracked(nullptr, status.bytes) : void();  // its probe has lost the order
    }
    if (error == ErrorKind::kNone && finish_directly(e, view, status)) {
      if (source_of(e) == ring::kAnySource)
        wild_received(e, {e.comm->ring->id, tag_wanted(e), status.source, status.tag,
                          comms[e.comm->index]->entries == 0 ? e.record_number : 0});
      return;
    }
    receive = make(e, view, false);
    if (receive == nullptr) {
      blame::drop_posted(state_of(e).posted);
      return untracked(e.comm, status.source >= 0 ? status.bytes : view.bytes);
    }
    receive->posted = state_of(e).posted;
    Guard guard;
    enqueue(*receive);
  }
  receive->view = view;
  receive->site = e.site;
  receive->call = static_cast<uint16_t>(e.id);
  if (message) receive->posted = state_of(e).posted;
  if (!fill(*e.thread, *receive, status, error, false)) return vanish(*e.thread, *receive, true);
  finish(e, *receive);
}

[[gnu::flatten]] void receive_posted(Event& e) {
  const bool message = class_of(e.id) == CallClass::kMatchedReceive;
  Receive* receive = state_of(e).receive;
  const bool posted_nothing = e.result != 0 || (e.cookies == nullptr && e.request_key == 0);
  if (message) {
    if (receive == nullptr || posted_nothing) {
      blame::drop_posted(state_of(e).posted);
      return receive == nullptr && !posted_nothing ? untracked(nullptr, e.bytes) : void();
    }
    receive->posted = state_of(e).posted;
    receive->view = make_view(*e.thread, e.receive.buffer, e.receive.count, e.receive.type);
    receive->site = e.site;
    receive->call = static_cast<uint16_t>(e.id);
    receive->held = receive->view.type != nullptr;
    if (receive->held) keep_type(receive->view.type);
    note_life(*receive);
  } else if (e.comm == nullptr || source_of(e) == ring::kProcNull || posted_nothing) {
    if (receive != nullptr) vanish(*e.thread, *receive, true);
    return;
  }
  if (e.cookies == nullptr) {  // the request table is full: its end will not be seen
    if (receive != nullptr) vanish(*e.thread, *receive, true);
    return untracked(e.comm, e.bytes);
  }
  if (receive == nullptr) {
    receive = make(e, view_of(e), true);
    if (receive == nullptr) {
      blame::drop_posted(state_of(e).posted);
      return untracked(e.comm, e.bytes);
    }
    receive->posted = state_of(e).posted;
    if (receive->partitioned) {
      const int64_t ordinal = partitioned_ordinal(receive->comm->id, receive->source, receive->tag, false);
      receive->match_queue_comm = hash_combine(receive->comm->id, static_cast<uint64_t>(ordinal));
      if (ordinal < 0 && receive->view.reason == Reason::kNone)
        receive->view.reason = Reason::kMemory;  // too many kinds to be told apart
    }
    if (!receive->persistent) {
      Guard guard;
      enqueue(*receive);
    }
  }
  e.cookies[kChecksumWord] = reinterpret_cast<uint64_t>(receive) | kCookieReceive;
}

void receive_told_complete(uint64_t cookie) {
  auto* receive = reinterpret_cast<Receive*>(cookie & ~kCookieMask);
  if (receive->view.reason == Reason::kNone) receive->view.reason = Reason::kGivenBack;
}

void receive_starting(const Event& e, uint64_t* cookie) {
  auto* receive = reinterpret_cast<Receive*>(*cookie & ~kCookieMask);
  if (receive->view.reason == Reason::kGivenBack) receive->view.reason = Reason::kNone;
  if (ledger::full_blame() && !receive->partitioned && receive->posted == 0)
    receive->posted = blame::receive_pending(receive->view, e);
}

void receive_started(Event& e, uint64_t* cookie) {
  auto* receive = reinterpret_cast<Receive*>(*cookie & ~kCookieMask);
  if (e.result != 0 || receive->partitioned || receive->listed) return;
  match_queue_is_shared(receive->comm->id, receive->source, receive->tag, false);
  receive->posted_as = e.record_number;
  Guard guard;
  enqueue(*receive);
}

[[gnu::flatten]] void receive_completed(Event& e, int64_t place, uint64_t* cookie, bool freed) {
  auto* receive = reinterpret_cast<Receive*>(*cookie & ~kCookieMask);
  if (freed) {
    const bool active = receive->listed && !receive->done;
    if (active) {  // it will take some message, unseen
      ledger::count_uncovered(Reason::kRequestFreed, 1, receive->view.bytes);
      Guard guard;
      receive->comm->lost = true;
    }
    return vanish(*e.thread, *receive, true, !active);
  }
  StatusInfo status;
  if (backend->messages->status_ignored(e.given_statuses)) {
    {
      Guard guard;
      receive->comm->lost = true;  // no memory for statuses: which message this was is not known
    }
    ledger::count_uncovered(Reason::kMemory, 1, receive->view.bytes);
    return vanish(*e.thread, *receive, false);
  }
  backend->messages->status_read(e.given_statuses, place, &status);
  const ErrorKind error = error_of(e, status, true);
  const bool told = call_info(e.id).completion == Completion::kOne && !receive->both_ways;
  if (!fill(*e.thread, *receive, status, error, told)) return vanish(*e.thread, *receive, false);
  finish(e, *receive);
}

void receive_posting(Event& e, const View& copy) {
  if (!ledger::full_blame()) return;
  state_of(e).posted = blame::receive_posted(copy);  // none was made of the device's memory
  if (Receive* receive = state_of(e).receive; receive != nullptr) receive->posted = state_of(e).posted;
}

void message_enter(Event& e) {
  // Before the call: the library gives the handle to another thread's message once it has received this one.
  state_of(e).receive = matched_receive(request_handle(e.message, 0));
  // Not of MPI_MESSAGE_NO_PROC: its buffer need not be one.
  state_of(e).posted = 0;
  if (ledger::full_blame() && state_of(e).receive != nullptr)
    state_of(e).posted =
        blame::receive_pending(make_view(*e.thread, e.receive.buffer, e.receive.count, e.receive.type), e);
}

void matched_probe(Event& e) {
  if (e.result != 0 || ((e.attributes & kCallPoll) && *e.flag == 0) || e.comm == nullptr) return;
  StatusInfo status = {};
  if (backend->messages->status_ignored(e.given_statuses)) return lose_order(*e.comm);
  backend->messages->status_read(e.given_statuses, 0, &status);
  if (status.source < 0) return;  // MPI_PROC_NULL
  View nothing = {nullptr, 0, nullptr, 0, Reason::kNone};
  Receive* receive = make(e, nothing, false);
  if (receive == nullptr) return lose_order(*e.comm);
  receive->source = status.source;  // its matching queue is known already
  receive->tag = status.tag;
  receive->wild = false;
  match_queue_is_shared(receive->comm->id, e.peer, e.tag, false);
  Guard guard;
  for (auto& message : messages) {
    if (message.receive != nullptr) continue;
    message.handle = request_handle(e.message, 0);
    message.receive = receive;
    enqueue(*receive);
    return;
  }
  receive->comm->lost = true;
  receive_pool.release(receive);
}

}  // namespace resil::p2p
