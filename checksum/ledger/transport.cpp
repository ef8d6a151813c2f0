// SPDX-License-Identifier: Apache-2.0
//
// The way of the records: pages of 4 KiB filled per rank, sent by nonblocking messages on the private communicator,
// received into a ring of posted receives. Credits bound what may be on its way to a rank that never takes it; the page
// pool bounds what waits here. Beyond both, records are dropped and only their sums are told.
//
// One thread at a time polls or sends (a token that nobody waits for); the ledger's lock is not held across MPI calls.

#include <sched.h>
#include <sys/mman.h>

#include <cstring>

#include "checksum/ledger/ledger_internal.h"
#include "shim/attach.h"
#include "shim/backend.h"
#include "shim/runtime.h"
#include "shim/thread.h"

namespace resil::ledger {

namespace {

constexpr int kTag = 1;               // of everything the ledger sends on the private communicator
constexpr uint32_t kPagesAtOnce = 64;

struct Incoming {
  MessageHeader header;
  union {
    Record records[kBatchRecords];
    char payload[kMessageBytes];
  };
  char host[kHostBytes];
};

Page* free_pages;
uint32_t pages_made;
Page *flight_first, *flight_last;     // given to MPI, not complete
Peer* dirty_first;
uint32_t dirty_count;
uint64_t oldest;                      // ticks
Incoming* ring;
uint64_t ring_requests[kReceiveRing];
uint32_t ring_head;
bool started;
std::atomic<bool> token;              // who may touch the communicator now
std::atomic<bool> asked;              // somebody found the token taken and has records that must go now

/// Held for a moment by whoever talks to the private communicator; others skip and come again.
class Token {
 public:
  Token() : held_(!token.exchange(true, std::memory_order_acquire)) {}
  ~Token() {
    if (held_)  // under threads ordered with the look at `asked` that follows
      token.store(false, is_concurrent ? std::memory_order_seq_cst : std::memory_order_release);
  }
  Token(const Token&) = delete;
  explicit operator bool() const { return held_; }

 private:
  bool held_;
};

/// Under the lock.
Page* take_page() {
  if (free_pages == nullptr && pages_made < kMaxPages) {
    void* memory = mmap(nullptr, kPagesAtOnce * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
      return nullptr;
    pages_made += kPagesAtOnce;
    for (uint32_t i = 0; i < kPagesAtOnce; ++i) {
      auto* page = reinterpret_cast<Page*>(static_cast<char*>(memory) + i * 4096);
      page->next = free_pages;
      free_pages = page;
    }
  }
  Page* page = free_pages;
  if (page != nullptr) {
    free_pages = page->next;
    page->next = nullptr;
    page->header = {};
    page->header.source = runtime.rank;
  }
  return page;
}

void give_back(Page* page) {
  Guard guard;
  page->next = free_pages;
  free_pages = page;
}

/// The page belongs to MPI until its request is complete.
void launch(Page* page, Peer& to) {
  MessageHeader& header = page->header;
  size_t bytes = sizeof(header) + header.bytes;
  if (!to.host_told) {
    to.host_told = true;
    header.has_host = 1;
    memcpy(page->payload + header.bytes, runtime.host, kHostBytes);  // header.bytes <= kMessageBytes, host follows
    bytes += kHostBytes;
  }
  if (!backend->send(private_comm(), &header, bytes, to.world_rank, kTag, &page->request)) {
    give_back(page);  // its records are lost; the gap in the ordinals tells the other side
    return;
  }
  if (backend->test(&page->request)) {
    give_back(page);
    return;
  }
  Guard guard;
  page->next = nullptr;
  if (flight_last != nullptr)
    flight_last->next = page;
  else
    flight_first = page;
  flight_last = page;
}

Page* first_in_flight() {
  Guard guard;
  return flight_first;
}

/// With the token: pages whose messages are out. Only the holder of the token takes from the list.
void reap() {
  for (Page* page = first_in_flight(); page != nullptr && backend->test(&page->request); page = first_in_flight()) {
    {
      Guard guard;
      flight_first = page->next;
      if (flight_first == nullptr)
        flight_last = nullptr;
    }
    give_back(page);
  }
}

/// Under the lock: closes the page that is being filled. Without one: an empty page, if records have been dropped since
/// the last one, so that the other side sees the gap.
void close_page(Peer& to) {
  if (to.filling == nullptr && to.dropped && (to.filling = take_page()) != nullptr)
    to.filling->header.first = to.announced;
  Page* page = to.filling;
  if (page == nullptr)
    return;
  to.dropped = false;
  page->header.kind = static_cast<uint8_t>(Kind::kBatch);
  page->header.bytes = static_cast<uint32_t>(page->header.count * sizeof(Record));
  page->header.total = to.summed;
  page->header.sum = to.sum_out;
  page->header.sums_hold = to.sums_hold_out;
  page->next = nullptr;
  if (to.held_last != nullptr)
    to.held_last->next = page;
  else
    to.held_first = page;
  to.held_last = page;
  to.filling = nullptr;
}

bool may_send(const Peer& to) { return to.flushed - to.credited < kCreditRecords; }

/// With the token: gives a rank's closed pages to MPI, as far as its credit goes.
void send_held(Peer& to) {
  while (true) {
    Page* page;
    {
      Guard guard;
      page = may_send(to) ? to.held_first : nullptr;
      if (page == nullptr)
        return;
      to.held_first = page->next;
      if (to.held_first == nullptr)
        to.held_last = nullptr;
      to.flushed = page->header.first + page->header.count;  // ordinals: what was dropped counts as taken, too
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
  send_held(to);
  return to.held_first == nullptr;
}

void take_batch(Thread& thread, Peer& from, const Incoming& message) {
  for (uint32_t i = 0; i < message.header.count; ++i) {
    const Record& record = message.records[i];
    const unsigned space = record.space < static_cast<unsigned>(Space::kCount) ? record.space : 0;
    if (space_handlers[space] != nullptr) {
      space_handlers[space](thread, from, record);
      continue;
    }
    Difference difference;
    {
      Guard guard;
      lane_sent(from, record, message.header.first + i, &difference);
    }
    if (difference.found)
      raise_difference(thread, from, difference);
  }
}

void take(Thread& thread, const Incoming& message) {
  const MessageHeader& header = message.header;
  Peer* peer = peer_of(header.source);
  if (peer == nullptr)
    return;
  Peer& from = *peer;
  from.heard = true;
  if (header.has_host && header.bytes <= kMessageBytes)
    memcpy(from.host, message.payload + header.bytes, kHostBytes - 1);
  switch (static_cast<Kind>(header.kind)) {
    case Kind::kBatch: {
      if (header.first != from.next_ordinal && !from.lost) {
        Guard guard;
        lanes_abandon(from);  // records were dropped on the way: only sums can tell now
      }
      from.next_ordinal = header.first + header.count;
      take_batch(thread, from, message);
      Guard guard;
      from.total_there = header.total;
      from.sum_there = header.sum;
      from.sums_hold_there = header.sums_hold != 0;
      from.taken_since_credit += header.count;
      sums_compare(from);
      break;
    }
    case Kind::kBye: {
      from.bye_received = true;
      Guard guard;
      if (header.first != from.next_ordinal && !from.lost)
        lanes_abandon(from);
      from.total_there = header.total;
      from.sum_there = header.sum;
      from.sums_hold_there = header.sums_hold != 0;
      sums_compare(from);
      break;
    }
    case Kind::kCredit:
      from.credited = header.total;
      break;
    default:
      if (header.kind < 16 && kind_handlers[header.kind] != nullptr)
        kind_handlers[header.kind](thread, from, message.payload, header.bytes);
  }
}

bool post_receive(uint32_t index) {
  return backend->receive(private_comm(), &ring[index], sizeof(Incoming), ring::kAnySource, kTag, &ring_requests[index]);
}

/// With the token: a message that only carries a header. False: no memory now.
bool send_header(Peer& to, Kind kind, uint64_t total, uint64_t sum, bool sums_hold) {
  Page* page;
  {
    Guard guard;
    page = take_page();
  }
  if (page == nullptr)
    return false;
  page->header.kind = static_cast<uint8_t>(kind);
  page->header.first = to.announced;
  page->header.total = total;
  page->header.sum = sum;
  page->header.sums_hold = sums_hold;
  launch(page, to);
  return true;
}

void give_credit(Peer& from) {
  if (from.taken_since_credit >= kCreditEvery && send_header(from, Kind::kCredit, from.next_ordinal, 0, false))
    from.taken_since_credit = 0;
}

void mark_dirty(Peer& to, uint64_t now) {
  if (to.dirty)
    return;
  to.dirty = true;
  to.next_dirty = dirty_first;
  if (dirty_first == nullptr)
    oldest = now;
  dirty_first = &to;
  ++dirty_count;
}

/// With the token.
void flush_dirty() {
  reap();
  Peer* peer;
  {
    Guard guard;
    peer = dirty_first;
    dirty_first = nullptr;
    dirty_count = 0;
    oldest = 0;
  }
  while (peer != nullptr) {
    Peer* next = peer->next_dirty;
    peer->dirty = false;
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
  while (asked.load()) [[unlikely]] {
    Token mine;
    if (!mine)
      return;  // its holder will look
    asked.store(false);
    if (started)
      flush_dirty();
  }
}

}  // namespace

bool transport_create() {
  void* memory = mmap(nullptr, kReceiveRing * sizeof(Incoming), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED)
    return false;
  ring = static_cast<Incoming*>(memory);
  Guard guard;
  Page* first = take_page();
  if (first == nullptr)
    return false;
  first->next = free_pages;
  free_pages = first;
  return true;
}

bool transport_start() {
  for (uint32_t i = 0; i < kReceiveRing; ++i)
    if (!post_receive(i))
      return false;
  started = true;
  return true;
}

void transport_stop() {
  if (!started)
    return;
  while (true) {
    Token mine;
    if (!mine) {
      sched_yield();
      continue;
    }
    started = false;
    for (uint32_t i = 0; i < kReceiveRing; ++i)
      backend->messages->cancel(&ring_requests[i]);
    reap();
    return;
  }
}

void transport_append(Thread& thread, Peer& to, const Record& record, bool at_once) {
  bool full = false;
  {
    Guard guard;
    if (to.filling == nullptr) {
      to.filling = take_page();
      if (to.filling != nullptr)
        to.filling->header.first = to.announced;
      mark_dirty(to, thread.last_time);
    }
    to.announced += 1;
    if (!(record.flags & kNotLanes)) [[likely]] {
      to.summed += 1;
      if (record.flags & kUnchecked)
        to.sums_hold_out = false;
      else
        to.sum_out += record_sum(record);
    }
    to.dropped = to.dropped || to.filling == nullptr;
    if (to.filling != nullptr) [[likely]] {
      to.filling->records[to.filling->header.count++] = record;
      full = at_once || to.filling->header.count == kBatchRecords;
      if (to.filling->header.count == kBatchRecords)
        close_page(to);
    }
  }
  if (full)
    transport_flush_peer(thread, to);
}

bool transport_flush_peer(Thread&, Peer& peer) {
  bool flushed = false;
  {
    Token mine;
    if (!mine)
      asked.store(true);
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
    if (!mine || !started)
      return;
    flush_dirty();
  }
  serve_asked();
}

uint32_t transport_dirty() { return dirty_count; }
uint64_t transport_oldest() { return dirty_first != nullptr ? oldest : 0; }

uint64_t messages_taken;

void transport_poll(Thread& thread, uint32_t messages) {
  for (uint32_t taken = 0; taken < messages; ++taken) {
    Token mine;
    if (!mine || !started || !backend->test(&ring_requests[ring_head]))
      break;
    // Within the token: batches of one rank must be taken in order. Handlers may post, nothing else.
    take(thread, ring[ring_head]);
    __atomic_store_n(&messages_taken, messages_taken + 1, __ATOMIC_RELAXED);  // one writer: the token's holder
    Peer* creditor = peer_find(ring[ring_head].header.source);
    if (!post_receive(ring_head))
      started = false;
    ring_head = (ring_head + 1) % kReceiveRing;
    if (creditor != nullptr) {
      give_credit(*creditor);
      if (creditor->held_first != nullptr)
        send_held(*creditor);
    }
  }
  serve_asked();
}

bool transport_say_bye(Peer& peer) {
  Token mine;
  if (!mine || !started)
    return false;
  if (!flush_with_token(peer))
    return false;
  return send_header(peer, Kind::kBye, peer.summed, peer.sum_out, peer.sums_hold_out);
}

bool transport_idle() {
  Token mine;
  if (!mine)
    return false;
  reap();
  return first_in_flight() == nullptr;
}

bool post(Thread&, Peer& to, Kind kind, const void* payload, size_t bytes) {
  if (!started || bytes > kMessageBytes || peer_is_self(to))
    return false;
  Page* page;
  {
    Guard guard;
    page = take_page();
  }
  if (page == nullptr)
    return false;
  to.addressed = true;
  page->header.kind = static_cast<uint8_t>(kind);
  page->header.bytes = static_cast<uint32_t>(bytes);
  memcpy(page->payload, payload, bytes);
  launch(page, to);
  return true;
}

}  // namespace resil::ledger
