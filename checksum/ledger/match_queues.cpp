// SPDX-License-Identifier: Apache-2.0
//
// Lanes: (peer, space, communicator, tag) -> FIFO of records of one side that the other side has not matched yet. Among
// packets of one matching queue, order of sending is order of (posting of) receiving, so head meets head. Matching
// queues that more than one thread uses are compared as multisets; what the other side left over waits in a twin
// matching queue.
//
// Most programs receive in the order in which the peer sent, so records first wait in a plain queue by peer, which
// costs no search: this rank's own, or the peer's when they come before the packets are received. The first record that
// does not meet the head of the queue moves it all into the matching queues; they are used until they are empty again.
//
// All functions run under the ledger's lock. Memory is mapped in steps and bounded (kMaxNodes).

#include <cstring>

#include "checksum/ledger/blame.h"
#include "checksum/ledger/calls.h"
#include "checksum/ledger/parts_internal.h"
#include "shim/base/hash.h"
#include "shim/runtime/memory.h"

namespace resil::ledger {

namespace {

constexpr uint32_t kQueuesAtOnce = 8, kMaxQueues = 1024;  // 12 MiB at most

Queue* spare_queues;
uint32_t spare_count, queues_made;

constexpr uint32_t kNone = 0;  // node 0 is unused
constexpr uint32_t kFirstMatchQueues = 4096;
constexpr uint8_t kTwin = 0x80;  // in MatchQueue::space: the sender's leftovers of a multiset matching queue

struct Node {
  Record record;
  uint64_t evidence;  // own packets
  uint64_t ordinal;  // the sender's
  uint32_t next;
  uint32_t reserved;
};
static_assert(sizeof(Node) == 64);

struct MatchQueue {
  uint64_t comm;
  uint32_t tag;
  int32_t peer;  // world rank + 1; 0: free
  uint32_t head, tail;
  uint32_t count;
  uint8_t space;
  bool own;  // whose records wait: this rank's (received), or the peer's (sent)
  bool unordered;
};
static_assert(sizeof(MatchQueue) == 32);

Node* nodes;  // reserved for kMaxNodes, touched as needed
uint32_t node_top = 1, node_free;
MatchQueue* match_queues;
uint32_t match_queue_capacity, match_queue_used;

uint32_t place_of(int32_t peer, uint8_t space, uint64_t comm, uint32_t tag, uint32_t capacity = match_queue_capacity) {
  uint64_t key = comm ^ (static_cast<uint64_t>(tag) << 32 | static_cast<uint32_t>(peer)) * 0x9e3779b97f4a7c15 ^ space;
  key *= 0xbf58476d1ce4e5b9;
  return static_cast<uint32_t>(key >> 32) & (capacity - 1);
}

MatchQueue* find(const Peer& peer, uint8_t space, uint64_t comm, uint32_t tag) {
  const int32_t rank = peer.world_rank + 1;
  for (uint32_t i = place_of(rank, space, comm, tag);; i = (i + 1) & (match_queue_capacity - 1)) {
    MatchQueue& match_queue = match_queues[i];
    if (match_queue.comm == comm && match_queue.tag == tag && match_queue.peer == rank && match_queue.space == space)
        [[likely]]
      return &match_queue;
    if (match_queue.peer == 0) return &match_queue;  // free: the caller fills it in
  }
}

/// Must the matching queue stay in the table? Both halves of a multiset matching queue stay together.
bool is_live(const MatchQueue& match_queue) {
  if (match_queue.peer == 0 || match_queue.count != 0 || !match_queue.unordered)
    return match_queue.peer != 0 && match_queue.count != 0;
  const auto half = static_cast<uint8_t>(match_queue.space ^ kTwin);
  for (uint32_t i = place_of(match_queue.peer, half, match_queue.comm, match_queue.tag); match_queues[i].peer != 0;
       i = (i + 1) & (match_queue_capacity - 1))
    if (match_queues[i].comm == match_queue.comm && match_queues[i].tag == match_queue.tag &&
        match_queues[i].peer == match_queue.peer && match_queues[i].space == half)
      return match_queues[i].count != 0;
  return false;
}

MatchQueue* last_match_queue;  // programs stay on a matching queue for a while

/// Drops empty matching queues, and doubles the table when that is not enough.
bool rebuild() {
  uint32_t live = 0;
  for (uint32_t i = 0; i < match_queue_capacity; ++i) live += is_live(match_queues[i]);
  uint32_t capacity = live > match_queue_capacity / 4 ? match_queue_capacity * 2 : match_queue_capacity;
  MatchQueue* old = match_queues;
  const uint32_t old_capacity = match_queue_capacity;
  MatchQueue* fresh = memory::map_array<MatchQueue>(capacity);
  if (fresh == nullptr) return match_queue_used + 1 < match_queue_capacity;
  for (uint32_t i = 0; i < old_capacity; ++i) {
    if (!is_live(old[i])) continue;
    uint32_t place = place_of(old[i].peer, old[i].space, old[i].comm, old[i].tag, capacity);
    while (fresh[place].peer != 0) place = (place + 1) & (capacity - 1);
    fresh[place] = old[i];
  }
  match_queues = fresh;
  last_match_queue = nullptr;
  match_queue_capacity = capacity;
  match_queue_used = live;
  memory::unmap_array(old, old_capacity);
  return true;
}

[[gnu::noinline]] MatchQueue* match_queue_of_slow(const Peer& peer, uint8_t space, const Record& record);

/// The matching queue of a record; null: no memory for it.
inline MatchQueue* match_queue_of(const Peer& peer, uint8_t space, const Record& record) {
  MatchQueue* match_queue = last_match_queue;
  if (match_queue != nullptr && match_queue->comm == record.comm && match_queue->tag == record.tag &&
      match_queue->peer == peer.world_rank + 1 && match_queue->space == space) [[likely]]
    return match_queue;
  return match_queue_of_slow(peer, space, record);
}

MatchQueue* match_queue_of_slow(const Peer& peer, uint8_t space, const Record& record) {
  MatchQueue* match_queue = find(peer, space, record.comm, record.tag);
  if (match_queue->peer != 0) [[likely]]
    return last_match_queue = match_queue;
  if (match_queue_used >= match_queue_capacity / 2) {
    if (!rebuild()) return nullptr;
    match_queue = find(peer, space, record.comm, record.tag);
  }
  ++match_queue_used;
  *match_queue = {record.comm, record.tag, peer.world_rank + 1, kNone, kNone, 0, space, false, false};
  return last_match_queue = match_queue;
}

uint32_t take_node() {
  uint32_t index = node_free;
  if (index != kNone) {
    node_free = nodes[index].next;
    return index;
  }
  return node_top < kMaxNodes ? node_top++ : kNone;
}

void free_node(uint32_t index) {
  nodes[index].next = node_free;
  node_free = index;
}

bool append(Peer& peer, MatchQueue& match_queue, const Record& record, uint64_t evidence, uint64_t ordinal) {
  uint32_t index = take_node();
  if (index == kNone) return false;
  ++peer.match_queue_nodes;
  Node& node = nodes[index];
  node.record = record;
  node.evidence = evidence;
  node.ordinal = ordinal;
  node.next = kNone;
  if (match_queue.count++ == 0) match_queue.head = index;
  else nodes[match_queue.tail].next = index;
  match_queue.tail = index;
  return true;
}

/// Takes out the head.
void pop(Peer& peer, MatchQueue& match_queue) {
  --peer.match_queue_nodes;
  uint32_t index = match_queue.head;
  match_queue.head = nodes[index].next;
  --match_queue.count;
  free_node(index);
}

bool equal(const Record& a, const Record& b) { return a.digest == b.digest && a.bytes == b.bytes; }
bool unchecked(const Record& a, const Record& b) {
  return (((a.flags | b.flags) & kUnchecked) | ((a.flags ^ b.flags) & kPadded)) != 0;
}

/// One packet with both sides known.
void settle(const Record& sent, const Record& received, uint64_t ordinal, uint64_t evidence, Difference* difference) {
  const bool right = equal(sent, received);
  if (right && !unchecked(sent, received) && calls_agree(sent, received)) [[likely]] {
    add_to(coverage.checked_messages, 1);
    add_to(coverage.checked_bytes, received.bytes);
    if (evidence != 0) blame::right(evidence);
    return;
  }
  // Bytes of a message do not differ because of its types: what differs is told as damage.
  difference->calls = ((sent.flags | received.flags) & kUnchecked) == 0 && (is_collective(received) || right) &&
                      !calls_agree(sent, received);
  if (!difference->calls && unchecked(sent, received)) {
    const Record& why = received.flags & kUnchecked ? received : sent;
    const auto reason = why.flags & kUnchecked
                            ? static_cast<unsigned>(why.digest & 0xff) % static_cast<unsigned>(Reason::kCount)
                            : static_cast<unsigned>(Reason::kDatatype);
    add_to(coverage.uncovered_messages[reason], 1);
    add_to(coverage.uncovered_bytes[reason], received.bytes);
    if (evidence != 0) blame::drop(evidence);
    return;
  }
  difference->found = true;
  difference->sent = sent;
  difference->received = received;
  difference->ordinal = ordinal;
  difference->evidence = evidence;
}

void own_gone(Peer& from, const Record& received) {
  from.own_pending -= 1;
  from.pending_bytes -= received.bytes;
  if (from.deferred > from.own_pending) from.deferred = from.own_pending;
}

/// Multiset: takes the first waiting record equal to `wanted` out of the matching queue.
bool take_equal(Peer& peer, MatchQueue& match_queue, const Record& wanted, Node* taken) {
  uint32_t previous = kNone;
  for (uint32_t i = match_queue.head; match_queue.count != 0 && i != kNone; previous = i, i = nodes[i].next) {
    if (!equal(nodes[i].record, wanted) || unchecked(nodes[i].record, wanted)) continue;
    *taken = nodes[i];
    if (previous == kNone) match_queue.head = nodes[i].next;
    else nodes[previous].next = nodes[i].next;
    if (match_queue.tail == i) match_queue.tail = previous;
    --match_queue.count;
    --peer.match_queue_nodes;
    free_node(i);
    return true;
  }
  return false;
}

/// The matching queue turns into a multiset: records of the sender move to the twin, so that `matching queue` holds own
/// ones only.
bool make_unordered(Peer& from, MatchQueue*& match_queue, const Record& record) {
  if (match_queue->unordered) return true;
  MatchQueue* twin = match_queue_of(from, record.space | kTwin, record);
  match_queue = match_queue_of(from, record.space, record);  // the table may have moved
  if (twin == nullptr || match_queue == nullptr) return false;
  match_queue->unordered = twin->unordered = true;
  twin->own = false;
  if (match_queue->count != 0 && !match_queue->own) {
    twin->head = match_queue->head, twin->tail = match_queue->tail, twin->count = match_queue->count;
    match_queue->head = match_queue->tail = kNone;
    match_queue->count = 0;
  }
  match_queue->own = true;
  return true;
}

}  // namespace

bool match_queues_create() {
  match_queues = memory::map_array<MatchQueue>(kFirstMatchQueues);
  match_queue_capacity = kFirstMatchQueues;
  nodes = memory::map_array<Node>(kMaxNodes);
  return match_queues != nullptr && nodes != nullptr;
}

namespace {

Queue* take_queue() {
  if (spare_count == 0 && queues_made < kMaxQueues) {
    spare_queues = memory::map_array<Queue>(kQueuesAtOnce);
    if (spare_queues == nullptr) return nullptr;
    spare_count = kQueuesAtOnce;
    queues_made += kQueuesAtOnce;
  }
  return spare_count != 0 ? &spare_queues[--spare_count] : nullptr;
}

/// Appends to the queue of that side's records. False: it is full, or the other side's, or matching queues are in use.
inline bool queue_append(Peer& from, const Record& record, uint64_t extra, bool own) {
  if (from.match_queue_nodes != 0 || (record.flags & kUnordered)) [[unlikely]]
    return false;
  if (from.queue == nullptr && (from.queue = take_queue()) == nullptr) [[unlikely]]
    return false;
  Queue& queue = *from.queue;
  if (queue.count == 0) queue.own = own;
  if (queue.own != own || queue.count == kQueue) [[unlikely]]
    return false;
  auto& item = queue.items[(queue.head + queue.count++) % kQueue];
  item.record = record;
  item.extra = extra;
  return true;
}

/// Moves the queue into the matching queues.
void spill(Peer& from) {
  Queue& queue = *from.queue;
  while (queue.count != 0) {
    const auto& item = queue.items[queue.head];
    MatchQueue* match_queue = match_queue_of(from, item.record.space, item.record);
    if (match_queue == nullptr) return match_queues_abandon(from);
    if (match_queue->unordered && !queue.own)
      match_queue = match_queue_of(from, item.record.space | kTwin, item.record);
    if (match_queue == nullptr) return match_queues_abandon(from);
    match_queue->own = queue.own;
    if (!append(from, *match_queue, item.record, queue.own ? item.extra : 0, queue.own ? 0 : item.extra))
      return match_queues_abandon(from);
    queue.head = (queue.head + 1) % kQueue;
    --queue.count;
  }
}

bool in_match_queue(const Record& a, const Record& b) {
  return a.comm == b.comm && a.tag == b.tag && a.space == b.space;
}

/// Of a lost peer: packets without a digest, on either side, keep the sums from agreeing for good.
void give_up_undecidable(Peer& peer) {
  if (peer.sums_hold_in && (peer.sums_hold_there || peer.total_there == 0)) return;
  constexpr auto reason = static_cast<unsigned>(Reason::kMemory);
  add_to(coverage.uncovered_messages[reason], peer.own_pending);
  add_to(coverage.uncovered_bytes[reason], peer.pending_bytes);
  peer.own_pending = peer.pending_bytes = peer.deferred = 0;
}

}  // namespace

namespace {

/// Messages, blocks and results: what has no handler of its own.
bool is_taken_here(const Record& record) {
  constexpr unsigned kSpaces = 1u << static_cast<unsigned>(Space::kMessage) |
                               1u << static_cast<unsigned>(Space::kBlock) |
                               1u << static_cast<unsigned>(Space::kAgreement);
  static_assert(static_cast<unsigned>(Space::kCount) < 32);
  return record.space < static_cast<unsigned>(Space::kCount) && (kSpaces >> record.space & 1) != 0;
}

/// Certainly: of collectives more may (calls_agree).
bool goes_with(const Record& sent, const Record& received) {
  if (sent.space == static_cast<uint8_t>(Space::kMessage)) [[likely]]
    return types_match(sent.type(), received.type());
  return same_collective(sent, record_word(received, kAmountWord), record_word(received, kPlaceWord),
                         record_tail(received));
}

/// Both without flags, equal but for the calls and their sites: so the usual pair is told apart from all others.
[[gnu::always_inline]] inline bool is_plain_pair(const Record& sent, const Record& received) {
  const uint64_t tail = record_tail(sent);
  const uint64_t same = tail >> kLowBits == 0 ? kPlainMatchQueue : ~uint64_t{0};  // collectives: the call, too
  return sent.digest == received.digest && sent.comm == received.comm &&
         record_word(sent, kAmountWord) == record_word(received, kAmountWord) &&
         (record_word(sent, kPlaceWord) ^ record_word(received, kPlaceWord)) >> kLowBits == 0 &&
         ((tail ^ record_tail(received)) & same) == 0;
}

}  // namespace

void match_queue_sent(Peer& from, const Record& record, uint64_t ordinal, Difference* difference) {
  if (from.lost) return;
  if (Queue* queue = from.queue; queue != nullptr && queue->count != 0 && queue->own) {
    const auto& item = queue->items[queue->head];
    if (in_match_queue(item.record, record) && !(record.flags & kUnordered)) [[likely]] {
      queue->head = (queue->head + 1) % kQueue;
      --queue->count;
      own_gone(from, item.record);
      return settle(record, item.record, ordinal, item.extra, difference);
    }
    spill(from);
    if (from.lost) return;
  } else if (queue_append(from, record, ordinal, false)) [[likely]] {
    return;
  } else if (queue != nullptr && queue->count != 0) {
    spill(from);
    if (from.lost) return;
  }
  MatchQueue* match_queue = match_queue_of(from, record.space, record);
  if (match_queue == nullptr) return match_queues_abandon(from);
  if ((record.flags & kUnordered) || match_queue->unordered) [[unlikely]] {
    Node taken;
    if (!make_unordered(from, match_queue, record)) return match_queues_abandon(from);
    if (take_equal(from, *match_queue, record, &taken)) {
      own_gone(from, taken.record);
      return settle(record, taken.record, ordinal, taken.evidence, difference);
    }
    MatchQueue* twin = match_queue_of(from, record.space | kTwin, record);
    if (twin == nullptr || !append(from, *twin, record, 0, ordinal)) match_queues_abandon(from);
    return;
  }
  if (match_queue->count != 0 && match_queue->own) [[likely]] {
    const Node node = nodes[match_queue->head];
    pop(from, *match_queue);
    own_gone(from, node.record);
    return settle(record, node.record, ordinal, node.evidence, difference);
  }
  match_queue->own = false;
  if (!append(from, *match_queue, record, 0, ordinal)) match_queues_abandon(from);
}

uint32_t match_queues_take(Peer& from, uint32_t most, uint64_t* total, uint64_t* sum) {
  Queue* queue = from.queue;
  if (queue == nullptr || from.lost || from.match_queue_nodes != 0) return 0;
  const bool own = queue->count != 0 && queue->own;
  uint32_t head = queue->head, count = queue->count, done = 0;
  uint64_t bytes = 0, last_total = 0, last_sum = 0;
  for (; done < most; ++done) {
    const StreamSlot* slot = from.in.next();
    if (slot == nullptr || slot->ordinal != static_cast<uint32_t>(from.next_ordinal + done)) break;
    if (most > kStreamAhead) from.in.prefetch(kStreamAhead);
    const Record& sent = slot->record;
    if (sent.flags != 0 || !is_taken_here(sent)) [[unlikely]]
      break;
    if (own) {
      const auto& item = queue->items[head];
      if (count == 0 || item.extra != 0) break;
      if (!is_plain_pair(sent, item.record)) [[unlikely]]
        if (sent.digest != item.record.digest || sent.bytes != item.record.bytes ||
            !in_match_queue(sent, item.record) || item.record.flags != 0 || !goes_with(sent, item.record))
          break;
      bytes += record_word(sent, kAmountWord) & kLowMask;
      head = (head + 1) % kQueue;
      --count;
    } else {
      if (count == kQueue) break;
      auto& item = queue->items[(head + count++) % kQueue];
      item.record = sent;
      item.extra = from.next_ordinal + done;
    }
    last_total = slot->total;
    last_sum = slot->sum;
    from.in.advance();
  }
  if (done != 0) *total = last_total, *sum = last_sum;
  queue->head = head;
  queue->count = count;
  from.next_ordinal += done;
  if (!own) {
    queue->own = false;
    return done;
  }
  from.own_pending -= done;
  from.pending_bytes -= bytes;
  if (from.deferred > from.own_pending) from.deferred = from.own_pending;
  add_to(coverage.checked_messages, done);
  add_to(coverage.checked_bytes, bytes);
  return done;
}

void match_queue_received(Peer& from, const Record& record, uint64_t evidence, Difference* difference) {
  from.own_pending += 1;
  from.pending_bytes += record.bytes;
  if (from.lost) {
    if (evidence != 0) blame::drop(evidence);
    return give_up_undecidable(from);
  }
  if (Queue* queue = from.queue; queue != nullptr && queue->count != 0 && !queue->own) {
    const auto& item = queue->items[queue->head];
    if (in_match_queue(item.record, record) && !(record.flags & kUnordered)) [[likely]] {
      queue->head = (queue->head + 1) % kQueue;
      --queue->count;
      own_gone(from, record);
      return settle(item.record, record, item.extra, evidence, difference);
    }
    spill(from);
    if (from.lost) return evidence != 0 ? blame::drop(evidence) : void();
  } else if (queue_append(from, record, evidence, true)) [[likely]] {
    return;
  } else if (queue != nullptr && queue->count != 0) {
    spill(from);
    if (from.lost) return evidence != 0 ? blame::drop(evidence) : void();
  }
  MatchQueue* match_queue = match_queue_of(from, record.space, record);
  if (match_queue == nullptr) return match_queues_abandon(from);
  if ((record.flags & kUnordered) || match_queue->unordered) [[unlikely]] {
    Node taken;
    if (!make_unordered(from, match_queue, record)) return match_queues_abandon(from);
    MatchQueue* twin = match_queue_of(from, record.space | kTwin, record);
    if (twin != nullptr && take_equal(from, *twin, record, &taken)) {
      own_gone(from, record);
      return settle(taken.record, record, taken.ordinal, evidence, difference);
    }
    match_queue = match_queue_of(from, record.space, record);
    if (twin == nullptr || match_queue == nullptr || !append(from, *match_queue, record, evidence, 0))
      match_queues_abandon(from);
    return;
  }
  if (match_queue->count != 0 && !match_queue->own) {
    const Node node = nodes[match_queue->head];
    pop(from, *match_queue);
    own_gone(from, record);
    return settle(node.record, record, node.ordinal, evidence, difference);
  }
  match_queue->own = true;
  if (!append(from, *match_queue, record, evidence, 0)) match_queues_abandon(from);
}

void match_queue_put_back(Peer& from, const Record& record, uint64_t evidence, Difference* difference) {
  if (from.queue != nullptr && from.queue->count != 0 && !from.lost) spill(from);
  MatchQueue* match_queue = from.lost ? nullptr : match_queue_of(from, record.space, record);
  if (match_queue == nullptr || match_queue->unordered || match_queue->count == 0 || !match_queue->own)
    return match_queue_received(from, record, evidence, difference);
  from.own_pending += 1;
  from.pending_bytes += record.bytes;
  uint32_t index = take_node();
  if (index == kNone) {
    if (evidence != 0) blame::drop(evidence);
    return match_queues_abandon(from);
  }
  nodes[index].record = record;
  nodes[index].evidence = evidence;
  nodes[index].next = match_queue->head;
  match_queue->head = index;
  ++match_queue->count;
  ++from.match_queue_nodes;
}

void match_queues_abandon(Peer& peer) {
  peer.lost = true;
  for (Queue* queue = peer.queue; queue != nullptr && queue->count != 0;
       --queue->count, queue->head = (queue->head + 1) % kQueue)
    if (queue->own && queue->items[queue->head].extra != 0) blame::drop(queue->items[queue->head].extra);
  for (uint32_t i = 0; i < match_queue_capacity; ++i) {
    MatchQueue& match_queue = match_queues[i];
    if (match_queue.peer != peer.world_rank + 1) continue;
    while (match_queue.count != 0) {
      if (match_queue.own && nodes[match_queue.head].evidence != 0) blame::drop(nodes[match_queue.head].evidence);
      pop(peer, match_queue);
    }
    match_queue.unordered = false;
  }
  give_up_undecidable(peer);
}

bool match_queues_take_unanswered(Peer& peer, Record* own, Record* other, bool* has_other) {
  if (peer.lost) return false;
  if (peer.queue != nullptr && peer.queue->count != 0) spill(peer);
  if (peer.match_queue_nodes == 0) return false;  // of many ranks most have none, and the table is long
  constexpr auto kFirst = static_cast<uint8_t>(Space::kBlock);
  for (uint32_t i = 0; i < match_queue_capacity && !peer.lost; ++i) {
    MatchQueue& match_queue = match_queues[i];
    if (match_queue.peer != peer.world_rank + 1 || (match_queue.space & kTwin) || match_queue.space < kFirst ||
        match_queue.count == 0 || !match_queue.own || match_queue.unordered)
      continue;
    const Node node = nodes[match_queue.head];
    if (node.record.flags & kUnchecked) continue;
    *own = node.record;
    *has_other = false;
    for (uint8_t space = kFirst; space <= static_cast<uint8_t>(Space::kAgreement) && !*has_other; ++space) {
      const MatchQueue* theirs = find(peer, space, match_queue.comm, match_queue.tag);
      if (theirs->peer == 0 || theirs->count == 0 || theirs->own) continue;
      *has_other = true;
      *other = nodes[theirs->head].record;
    }
    pop(peer, match_queue);
    own_gone(peer, node.record);
    if (node.evidence != 0) blame::drop(node.evidence);
    return true;
  }
  return false;
}

bool match_queues_pair_leftovers(Peer& peer, Difference* difference) {
  if (peer.match_queue_nodes == 0) return false;
  for (uint32_t i = 0; i < match_queue_capacity; ++i) {
    MatchQueue& match_queue = match_queues[i];
    if (match_queue.peer != peer.world_rank + 1 || (match_queue.space & kTwin) || !match_queue.unordered ||
        match_queue.count == 0)
      continue;
    MatchQueue* twin = find(peer, match_queue.space | kTwin, match_queue.comm, match_queue.tag);
    if (twin->peer == 0 || twin->count != match_queue.count) continue;  // more is on its way: nothing can be said
    const Node own = nodes[match_queue.head], sent = nodes[twin->head];
    pop(peer, match_queue);
    pop(peer, *twin);
    own_gone(peer, own.record);
    settle(sent.record, own.record, sent.ordinal, own.evidence, difference);
    return true;
  }
  return false;
}

void sums_compare(Peer& peer) {
  if (peer.lost) give_up_undecidable(peer);
  if (!peer.lost || peer.total_there != peer.expected || !peer.sums_hold_in || !peer.sums_hold_there ||
      peer.sum_there != peer.sum_in)
    return;
  // Every packet so far is right. The matching queues are empty on both sides: matching one by one can begin anew.
  add_to(coverage.checked_messages, peer.own_pending);
  add_to(coverage.checked_bytes, peer.pending_bytes);
  coverage.by_sum += peer.own_pending;
  peer.own_pending = peer.pending_bytes = peer.deferred = 0;
  peer.lost = false;
}

}  // namespace resil::ledger
