// SPDX-License-Identifier: Apache-2.0
//
// The way of the records. Between ranks of one node: a stream in shared memory (inbox.h). Between nodes, and when a
// stream is full: pages of 4 KiB filled per rank, sent by nonblocking messages on the private communicator, received
// into a ring of posted receives. Credits bound what may be on its way to a rank that never takes it; the page pool
// bounds what waits here. Beyond both, records are dropped and only their sums are told.
//
// Records of one rank may arrive by either path. Their ordinals restore the order: a record that comes early by the
// stream waits there until the messages before it have been taken. Records are dropped on the way of messages only, and
// none goes into the stream again before all messages are out: so what is missing there will come.
//
// One thread at a time polls or sends (a token that nobody waits for); the ledger's lock is not held across MPI calls.

#include <sched.h>

#include <cstring>

#include "checksum/ledger/inbox.h"
#include "checksum/ledger/token.h"
#include "checksum/ledger/transport_internal.h"
#include "shim/call/runtime.h"
#include "shim/call/thread.h"
#include "shim/runtime/memory.h"

namespace resil::ledger {

namespace {

Peer* dirty_first;
uint32_t dirty_count;  // these two are written under the lock, and glanced at without it
uint64_t oldest;  // ticks; 0: nobody is dirty
Incoming* incoming;
uint64_t incoming_requests[kReceiveRing];
constinit mailbox::Inbox<Incoming> inbox;
std::atomic<bool> started;  // asked without the token, too
uint64_t sent_by_messages;  // records
uint64_t next_look;  // ticks
TokenWords token;  // who may touch the communicator now

struct Token : TokenGuard {
  Token() : TokenGuard(token, is_concurrent) {}
};

/// Under the lock: closes the page that is being filled. Without one: an empty page, if records have been dropped since
/// the last one, so that the other side sees the gap.
void close_page(Peer& to) {
  if (to.filling == nullptr && to.dropped && (to.filling = page_allocate()) != nullptr)
    to.filling->header.first = to.announced;
  Page* page = to.filling;
  if (page == nullptr) return;
  to.dropped = false;
  page->header.kind = static_cast<uint8_t>(Kind::kBatch);
  page->header.bytes = static_cast<uint32_t>(page->header.count * sizeof(Record));
  page->header.total = to.summed;
  page->header.sum = to.sum_out;
  page->header.sums_hold = to.sums_hold_out;
  page->next = nullptr;
  if (to.held_last != nullptr) to.held_last->next = page;
  else to.held_first = page;
  to.held_last = page;
  to.filling = nullptr;
}

/// Both are ordinals. The other side's may be ahead: it counts what came by the stream since.
bool may_send(const Peer& to) { return to.flushed < to.credited + kCreditRecords; }

/// With the token: gives a rank's closed pages to MPI, as far as its credit goes. True: none is left.
bool send_held(Peer& to) {
  while (true) {
    Page* page;
    {
      Guard guard;
      page = may_send(to) ? to.held_first : nullptr;
      if (page == nullptr) return to.held_first == nullptr;  // still under the lock: other threads close pages
      to.held_first = page->next;
      if (to.held_first == nullptr) to.held_last = nullptr;
      to.flushed = page->header.first + page->header.count;
      sent_by_messages += page->header.count;
    }
    launch(page, to);
  }
}

/// Sends what is unsent of one rank. Without the token (another thread has it) it stays for later.
bool flush_with_token(Peer& to) {
  {
    Guard guard;
    close_page(to);
  }
  return send_held(to);
}

/// With the token: a message that only carries a header. False: no memory now.
bool send_header(Peer& to, Kind kind, uint64_t total, uint64_t sum, bool sums_hold) {
  Page* page;
  uint64_t first;
  {
    Guard guard;  // other threads announce
    page = page_allocate();
    first = to.announced;
  }
  if (page == nullptr) return false;
  page->header.kind = static_cast<uint8_t>(kind);
  page->header.first = first;
  page->header.total = total;
  page->header.sum = sum;
  page->header.sums_hold = sums_hold;
  launch(page, to);
  return true;
}

/// With the token, when a receive from any source failed: they stand still from the death of a rank on until it is
/// acknowledged. Not earlier: Open MPI first knows of a death, then stops the receives, and who acknowledges in between
/// does so in vain.
[[gnu::noinline]] void look_for_dead(Thread& thread) {
  constexpr int kMost = 256;
  int dead[kMost];
  const uint64_t now = ticks();
  if (now < next_look) return;
  next_look = now + old_ticks;
  const int count = mailbox::acknowledge_dead(kMost, dead);
  for (int i = 0; i < count; ++i)
    if (Peer* peer = peer_find(dead[i]); peer != nullptr && !peer->gone) {
      if (peer->in.is_open()) take_stream(thread, *peer, UINT32_MAX);
      peer->gone = true;
    }
}

void give_credit(Peer& from) {
  const uint64_t taken = from.taken_by_messages;
  if (taken - from.credit_given >= kCreditEvery && send_header(from, Kind::kCredit, from.next_ordinal, 0, false))
    from.credit_given = taken;
}

void mark_dirty(Peer& to, uint64_t now) {
  if (to.dirty) return;
  to.dirty = true;
  to.next_dirty = dirty_first;
  if (dirty_first == nullptr) __atomic_store_n(&oldest, now, __ATOMIC_RELAXED);
  dirty_first = &to;
  __atomic_store_n(&dirty_count, dirty_count + 1, __ATOMIC_RELAXED);
}

/// With the token.
void flush_dirty() {
  reap();
  Peer* peer;
  {
    Guard guard;
    peer = dirty_first;
    dirty_first = nullptr;
    __atomic_store_n(&dirty_count, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&oldest, 0, __ATOMIC_RELAXED);
  }
  while (peer != nullptr) {
    Peer* next;
    {
      Guard guard;
      next = peer->next_dirty;
      peer->dirty = false;
    }
    if (!flush_with_token(*peer)) {  // no credit: it stays in the list
      Guard guard;
      mark_dirty(*peer, ticks());
    }
    peer = next;
  }
}

/// Who found the token taken does not come again before its next call, which may be far (strict mode): whoever gives
/// the token back looks whether there is such a one. Without the token.
void serve_asked() {
  token_serve(token, is_concurrent, [] {
    if (started) flush_dirty();
  });
}

}  // namespace

bool transport_create() {
  incoming = memory::map_array<Incoming>(kReceiveRing);
  if (incoming == nullptr) return false;
  Page* first;
  {
    Guard guard;
    first = page_allocate();
  }
  if (first == nullptr) return false;
  page_release(first);
  return true;
}

bool transport_start() {
  started = inbox.open(kTag, incoming, incoming_requests, kReceiveRing);
  return started;
}

void transport_stop() {
  if (!started) return;
  while (true) {
    Token mine;
    if (!mine) {
      sched_yield();
      continue;
    }
    started = false;
    inbox.close();
    reap(true);
    return;
  }
}

namespace {

/// Outside the lock, before the first record for a rank; the other threads wait for who came first.
[[gnu::noinline]] void choose_medium(Peer& to) {
  uint8_t state = kMediumUnknown;
  if (__atomic_compare_exchange_n(&to.medium, &state, kMediumBeingChosen, false, __ATOMIC_ACQUIRE, __ATOMIC_ACQUIRE)) {
    inbox_open(to);
    return __atomic_store_n(&to.medium, kMediumChosen, __ATOMIC_RELEASE);
  }
  while (__atomic_load_n(&to.medium, __ATOMIC_ACQUIRE) != kMediumChosen) sched_yield();
}

/// Under the lock: back to the stream? All that went by messages must be out, and nothing missing among it.
bool may_return(Peer& to) {
  if (to.no_return || to.filling != nullptr || to.held_first != nullptr || to.dropped || !to.out.has_room())
    return false;
  to.in_pages = false;
  return true;
}

/// Under the lock: the record with that ordinal into the page that is being filled. True: the page should go now.
bool append_to_page(Thread& thread, Peer& to, const Record& record, uint64_t ordinal, bool at_once) {
  if (to.filling == nullptr) {
    to.filling = page_allocate();
    if (to.filling != nullptr) to.filling->header.first = ordinal;
    mark_dirty(to, thread.last_time);
  }
  if (to.filling == nullptr) {
    to.dropped = true;
    return false;
  }
  to.filling->records[to.filling->header.count++] = record;
  const bool full = to.filling->header.count == kBatchRecords;
  if (full) close_page(to);
  return full || at_once;
}

}  // namespace

void transport_append(Thread& thread, Peer& to, const Record& record, bool at_once) {
  if (__atomic_load_n(&to.medium, __ATOMIC_ACQUIRE) != kMediumChosen) [[unlikely]]
    choose_medium(to);
  bool flush;
  {
    Guard guard;
    const uint64_t ordinal = to.announced;
    __atomic_store_n(&to.announced, ordinal + 1, __ATOMIC_RELAXED);
    if (!(record.flags & kNotMatchQueues)) [[likely]] {
      to.summed += 1;
      if (record.flags & kUnchecked) to.sums_hold_out = false;
      else to.sum_out += record_sum(record);
    }
    if (to.out.is_open() && (!to.in_pages || may_return(to))) [[likely]] {
      if (to.out.put(record, ordinal, to.summed | (to.sums_hold_out ? kSumsHold : 0), to.sum_out)) [[likely]]
        return;
      // Credit is for messages. What is before this record was taken, or lies in the stream or in the messages before
      // it, which are taken before the stream has room again.
      to.in_pages = true;
      to.flushed = to.credited = ordinal;
    }
    flush = append_to_page(thread, to, record, ordinal, at_once);
  }
  if (flush) transport_flush_peer(thread, to);
}

void transport_take_streams(Thread& thread) {
  Token mine;
  if (mine && started) take_some_streams(thread);
}

bool transport_take_stream(Thread& thread, Peer& from, uint64_t most) {
  Token mine;
  if (!mine || !started) return false;
  if (!from.in.is_open()) [[unlikely]]
    find_streams();
  take_stream(thread, from, most < UINT32_MAX ? static_cast<uint32_t>(most) : UINT32_MAX);
  return from.in.is_open();
}

void transport_records(uint64_t* shared, uint64_t* messages) {
  *shared = 0;
  *messages = sent_by_messages;
  Peer* peer;
  for (uint32_t i = 0; (peer = peer_by_index(i)) != nullptr; ++i) *shared += peer->out.count() - peer->bye_in_stream;
}

bool transport_flush_peer(Thread&, Peer& peer) {
  bool flushed = false;
  {
    Token mine;
    if (!mine) token_ask(token);
    else if (started) {
      reap();
      flushed = flush_with_token(peer);
    }
  }
  serve_asked();
  return flushed;
}

void transport_flush(Thread&) {
  {
    Token mine;
    if (!mine || !started) return;
    flush_dirty();
  }
  serve_asked();
}

const uint32_t* transport_dirty_word() { return &dirty_count; }
uint32_t transport_dirty() { return __atomic_load_n(&dirty_count, __ATOMIC_RELAXED); }
uint64_t transport_oldest() { return __atomic_load_n(&oldest, __ATOMIC_RELAXED); }

uint64_t messages_taken;

void transport_poll(Thread& thread, uint32_t messages) {
  if (Token mine; mine && started) take_some_streams(thread);
  for (uint32_t taken = 0; taken < messages; ++taken) {
    Token mine;
    bool failed = false;
    if (!mine || !started) break;
    if (!inbox.has_come(&failed)) {
      if (failed) [[unlikely]]
        look_for_dead(thread);
      break;
    }
    // Within the token: batches of one rank must be taken in order. Handlers may post, nothing else.
    const Incoming& message = inbox.message();
    if (!failed) take(thread, message);
    __atomic_store_n(&messages_taken, messages_taken + 1, __ATOMIC_RELAXED);  // one writer: the token's holder
    Peer* creditor = failed ? nullptr : peer_find(message.header.source);
    if (!inbox.again()) started = false;
    if (creditor != nullptr) {
      give_credit(*creditor);
      send_held(*creditor);
    }
  }
  serve_asked();
}

namespace {

/// With the token: into the stream, where no message can come after it.
bool put_bye(Peer& to) {
  Guard guard;
  if (!to.out.is_open() || to.in_pages || to.host_told) return false;
  const Record record(0, 0, 0, 0, 0, 0, static_cast<uint8_t>(Space::kBye), kNotMatchQueues);
  to.bye_in_stream = to.out.put(record, to.announced, to.summed | (to.sums_hold_out ? kSumsHold : 0), to.sum_out);
  if (to.bye_in_stream) __atomic_store_n(&to.announced, to.announced + 1, __ATOMIC_RELAXED);
  return to.bye_in_stream;
}

}  // namespace

bool transport_say_bye(Peer& peer) {
  Token mine;
  if (!mine || !started) return false;
  if (put_bye(peer)) return true;
  if (!flush_with_token(peer)) return false;
  return send_header(peer, Kind::kBye, peer.summed, peer.sum_out, peer.sums_hold_out);
}

bool transport_idle() {
  Token mine;
  if (!mine) return false;
  reap(true);
  return !anything_in_flight();
}

bool post(Thread&, Peer& to, Kind kind, const void* payload, size_t bytes) {
  if (!started || bytes > kMessageBytes || peer_is_self(to)) return false;
  Page* page;
  {
    Guard guard;
    page = page_allocate();
  }
  if (page == nullptr) return false;
  __atomic_store_n(&to.addressed, true, __ATOMIC_RELAXED);
  page->header.kind = static_cast<uint8_t>(kind);
  page->header.bytes = static_cast<uint32_t>(bytes);
  if (bytes != 0) memcpy(page->payload, payload, bytes);  // a message that is its header alone has no payload
  launch(page, to);
  return true;
}

}  // namespace resil::ledger
