// SPDX-License-Identifier: Apache-2.0
//
// Lanes: (peer, space, communicator, tag) -> FIFO of records of one side that the other side has not matched yet. Among
// packets of one lane, order of sending is order of (posting of) receiving, so head meets head. Lanes that more than
// one thread uses are compared as multisets; what the other side left over waits in a twin lane.
//
// Most programs receive in the order in which the peer sent, so records first wait in a plain queue by peer, which
// costs no search: this rank's own, or the peer's when they come before the packets are received. The first record that
// does not meet the head of the queue moves it all into the lanes; they are used until they are empty again.
//
// All functions run under the ledger's lock. Memory is mapped in steps and bounded (kMaxNodes).

#include <cstring>

#include "checksum/ledger/blame.h"
#include "checksum/ledger/ledger_internal.h"
#include "shim/base/hash.h"
#include "shim/runtime/memory.h"

namespace resil::ledger {

namespace {

constexpr uint32_t kQueuesAtOnce = 8, kMaxQueues = 1024;  // 12 MiB at most

Queue* spare_queues;
uint32_t spare_count, queues_made;

constexpr uint32_t kNone = 0;  // node 0 is unused
constexpr uint32_t kNodesAtOnce = 8192;  // 512 KiB
constexpr uint32_t kFirstLanes = 4096;
constexpr uint8_t kTwin = 0x80;  // in Lane::space: the sender's leftovers of a multiset lane

struct Node {
  Record record;
  uint64_t evidence;  // own packets
  uint64_t ordinal;  // the sender's
  uint32_t next;
  uint32_t reserved;
};
static_assert(sizeof(Node) == 64);

struct Lane {
  uint64_t comm;
  uint32_t tag;
  int32_t peer;  // world rank + 1; 0: free
  uint32_t head, tail;
  uint32_t count;
  uint8_t space;
  bool own;  // whose records wait: this rank's (received), or the peer's (sent)
  bool unordered;
};
static_assert(sizeof(Lane) == 32);

Node* nodes;  // reserved for kMaxNodes, touched as needed
uint32_t node_top = 1, node_free;
Lane* lanes;
uint32_t lane_capacity, lane_used;

uint32_t place_of(int32_t peer, uint8_t space, uint64_t comm, uint32_t tag, uint32_t capacity = lane_capacity) {
  uint64_t key = comm ^ (static_cast<uint64_t>(tag) << 32 | static_cast<uint32_t>(peer)) * 0x9e3779b97f4a7c15 ^ space;
  key *= 0xbf58476d1ce4e5b9;
  return static_cast<uint32_t>(key >> 32) & (capacity - 1);
}

Lane* find(const Peer& peer, uint8_t space, uint64_t comm, uint32_t tag) {
  const int32_t rank = peer.world_rank + 1;
  for (uint32_t i = place_of(rank, space, comm, tag);; i = (i + 1) & (lane_capacity - 1)) {
    Lane& lane = lanes[i];
    if (lane.comm == comm && lane.tag == tag && lane.peer == rank && lane.space == space) [[likely]]
      return &lane;
    if (lane.peer == 0) return &lane;  // free: the caller fills it in
  }
}

/// Must the lane stay in the table? Both halves of a multiset lane stay together.
bool is_live(const Lane& lane) {
  if (lane.peer == 0 || lane.count != 0 || !lane.unordered) return lane.peer != 0 && lane.count != 0;
  const auto half = static_cast<uint8_t>(lane.space ^ kTwin);
  for (uint32_t i = place_of(lane.peer, half, lane.comm, lane.tag); lanes[i].peer != 0;
       i = (i + 1) & (lane_capacity - 1))
    if (lanes[i].comm == lane.comm && lanes[i].tag == lane.tag && lanes[i].peer == lane.peer && lanes[i].space == half)
      return lanes[i].count != 0;
  return false;
}

Lane* last_lane;  // programs stay on a lane for a while

/// Drops empty lanes, and doubles the table when that is not enough.
bool rebuild() {
  uint32_t live = 0;
  for (uint32_t i = 0; i < lane_capacity; ++i) live += is_live(lanes[i]);
  uint32_t capacity = live > lane_capacity / 4 ? lane_capacity * 2 : lane_capacity;
  Lane* old = lanes;
  const uint32_t old_capacity = lane_capacity;
  Lane* fresh = memory::map_array<Lane>(capacity);
  if (fresh == nullptr) return lane_used + 1 < lane_capacity;
  for (uint32_t i = 0; i < old_capacity; ++i) {
    if (!is_live(old[i])) continue;
    uint32_t place = place_of(old[i].peer, old[i].space, old[i].comm, old[i].tag, capacity);
    while (fresh[place].peer != 0) place = (place + 1) & (capacity - 1);
    fresh[place] = old[i];
  }
  lanes = fresh;
  last_lane = nullptr;
  lane_capacity = capacity;
  lane_used = live;
  memory::unmap_array(old, old_capacity);
  return true;
}

[[gnu::noinline]] Lane* lane_of_slow(const Peer& peer, uint8_t space, const Record& record);

/// The lane of a record; null: no memory for it.
inline Lane* lane_of(const Peer& peer, uint8_t space, const Record& record) {
  Lane* lane = last_lane;
  if (lane != nullptr && lane->comm == record.comm && lane->tag == record.tag && lane->peer == peer.world_rank + 1 &&
      lane->space == space) [[likely]]
    return lane;
  return lane_of_slow(peer, space, record);
}

Lane* lane_of_slow(const Peer& peer, uint8_t space, const Record& record) {
  Lane* lane = find(peer, space, record.comm, record.tag);
  if (lane->peer != 0) [[likely]]
    return last_lane = lane;
  if (lane_used >= lane_capacity / 2) {
    if (!rebuild()) return nullptr;
    lane = find(peer, space, record.comm, record.tag);
  }
  ++lane_used;
  *lane = {record.comm, record.tag, peer.world_rank + 1, kNone, kNone, 0, space, false, false};
  return last_lane = lane;
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

bool append(Peer& peer, Lane& lane, const Record& record, uint64_t evidence, uint64_t ordinal) {
  uint32_t index = take_node();
  if (index == kNone) return false;
  ++peer.lane_nodes;
  Node& node = nodes[index];
  node.record = record;
  node.evidence = evidence;
  node.ordinal = ordinal;
  node.next = kNone;
  if (lane.count++ == 0) lane.head = index;
  else nodes[lane.tail].next = index;
  lane.tail = index;
  return true;
}

/// Takes out the head.
void pop(Peer& peer, Lane& lane) {
  --peer.lane_nodes;
  uint32_t index = lane.head;
  lane.head = nodes[index].next;
  --lane.count;
  free_node(index);
}

bool equal(const Record& a, const Record& b) { return a.digest == b.digest && a.bytes == b.bytes; }
bool unchecked(const Record& a, const Record& b) {
  return (((a.flags | b.flags) & kUnchecked) | ((a.flags ^ b.flags) & kPadded)) != 0;
}

/// One packet with both sides known.
void settle(const Record& sent, const Record& received, uint64_t ordinal, uint64_t evidence, Difference* difference) {
  if (equal(sent, received) && !unchecked(sent, received)) [[likely]] {
    coverage.checked_messages += 1;
    coverage.checked_bytes += received.bytes;
    if (evidence != 0) blame::drop(evidence);
    return;
  }
  if (unchecked(sent, received)) {
    const Record& why = received.flags & kUnchecked ? received : sent;
    const auto reason = why.flags & kUnchecked
                            ? static_cast<unsigned>(why.digest & 0xff) % static_cast<unsigned>(Reason::kCount)
                            : static_cast<unsigned>(Reason::kDatatype);
    coverage.uncovered_messages[reason] += 1;
    coverage.uncovered_bytes[reason] += received.bytes;
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

/// Multiset: takes the first waiting record equal to `wanted` out of the lane.
bool take_equal(Peer& peer, Lane& lane, const Record& wanted, Node* taken) {
  uint32_t previous = kNone;
  for (uint32_t i = lane.head; lane.count != 0 && i != kNone; previous = i, i = nodes[i].next) {
    if (!equal(nodes[i].record, wanted) || unchecked(nodes[i].record, wanted)) continue;
    *taken = nodes[i];
    if (previous == kNone) lane.head = nodes[i].next;
    else nodes[previous].next = nodes[i].next;
    if (lane.tail == i) lane.tail = previous;
    --lane.count;
    --peer.lane_nodes;
    free_node(i);
    return true;
  }
  return false;
}

/// The lane turns into a multiset: records of the sender move to the twin, so that `lane` holds own ones only.
bool make_unordered(Peer& from, Lane*& lane, const Record& record) {
  if (lane->unordered) return true;
  Lane* twin = lane_of(from, record.space | kTwin, record);
  lane = lane_of(from, record.space, record);  // the table may have moved
  if (twin == nullptr || lane == nullptr) return false;
  lane->unordered = twin->unordered = true;
  twin->own = false;
  if (lane->count != 0 && !lane->own) {
    twin->head = lane->head, twin->tail = lane->tail, twin->count = lane->count;
    lane->head = lane->tail = kNone;
    lane->count = 0;
  }
  lane->own = true;
  return true;
}

}  // namespace

bool lanes_create() {
  lanes = memory::map_array<Lane>(kFirstLanes);
  lane_capacity = kFirstLanes;
  nodes = memory::map_array<Node>(kMaxNodes);
  return lanes != nullptr && nodes != nullptr;
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

/// Appends to the queue of that side's records. False: it is full, or the other side's, or lanes are in use.
inline bool queue_append(Peer& from, const Record& record, uint64_t extra, bool own) {
  if (from.lane_nodes != 0 || (record.flags & kUnordered)) [[unlikely]]
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

/// Moves the queue into the lanes.
void spill(Peer& from) {
  Queue& queue = *from.queue;
  while (queue.count != 0) {
    const auto& item = queue.items[queue.head];
    Lane* lane = lane_of(from, item.record.space, item.record);
    if (lane == nullptr) return lanes_abandon(from);
    if (lane->unordered && !queue.own) lane = lane_of(from, item.record.space | kTwin, item.record);
    if (lane == nullptr) return lanes_abandon(from);
    lane->own = queue.own;
    if (!append(from, *lane, item.record, queue.own ? item.extra : 0, queue.own ? 0 : item.extra))
      return lanes_abandon(from);
    queue.head = (queue.head + 1) % kQueue;
    --queue.count;
  }
}

bool in_lane(const Record& a, const Record& b) { return a.comm == b.comm && a.tag == b.tag && a.space == b.space; }

/// Of a lost peer: packets without a digest, on either side, keep the sums from agreeing for good.
void give_up_undecidable(Peer& peer) {
  if (peer.sums_hold_in && (peer.sums_hold_there || peer.total_there == 0)) return;
  constexpr auto reason = static_cast<unsigned>(Reason::kMemory);
  coverage.uncovered_messages[reason] += peer.own_pending;
  coverage.uncovered_bytes[reason] += peer.pending_bytes;
  peer.own_pending = peer.pending_bytes = peer.deferred = 0;
}

}  // namespace

void lane_sent(Peer& from, const Record& record, uint64_t ordinal, Difference* difference) {
  if (from.lost) return;
  if (Queue* queue = from.queue; queue != nullptr && queue->count != 0 && queue->own) {
    const auto& item = queue->items[queue->head];
    if (in_lane(item.record, record) && !(record.flags & kUnordered)) [[likely]] {
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
  Lane* lane = lane_of(from, record.space, record);
  if (lane == nullptr) return lanes_abandon(from);
  if ((record.flags & kUnordered) || lane->unordered) [[unlikely]] {
    Node taken;
    if (!make_unordered(from, lane, record)) return lanes_abandon(from);
    if (take_equal(from, *lane, record, &taken)) {
      own_gone(from, taken.record);
      return settle(record, taken.record, ordinal, taken.evidence, difference);
    }
    Lane* twin = lane_of(from, record.space | kTwin, record);
    if (twin == nullptr || !append(from, *twin, record, 0, ordinal)) lanes_abandon(from);
    return;
  }
  if (lane->count != 0 && lane->own) [[likely]] {
    const Node node = nodes[lane->head];
    pop(from, *lane);
    own_gone(from, node.record);
    return settle(record, node.record, ordinal, node.evidence, difference);
  }
  lane->own = false;
  if (!append(from, *lane, record, 0, ordinal)) lanes_abandon(from);
}

uint32_t lanes_take(Peer& from, uint32_t most, uint64_t* total, uint64_t* sum) {
  Queue* queue = from.queue;
  if (queue == nullptr || from.lost || from.lane_nodes != 0) return 0;
  const bool own = queue->count != 0 && queue->own;
  uint32_t head = queue->head, count = queue->count, done = 0;
  uint64_t bytes = 0;
  for (; done < most; ++done) {
    const StreamSlot* slot = from.in.next();
    if (slot == nullptr || slot->ordinal != static_cast<uint32_t>(from.next_ordinal + done)) break;
    if (most > kStreamAhead) from.in.prefetch(kStreamAhead);
    const Record& sent = slot->record;
    if (sent.flags != 0 || sent.space != static_cast<uint8_t>(Space::kMessage)) [[unlikely]]
      break;
    if (own) {
      const auto& item = queue->items[head];
      if (count == 0 || sent.digest != item.record.digest || sent.bytes != item.record.bytes ||
          !in_lane(sent, item.record) || (item.record.flags | item.extra) != 0)
        break;
      bytes += sent.bytes;
      head = (head + 1) % kQueue;
      --count;
    } else {
      if (count == kQueue) break;
      auto& item = queue->items[(head + count++) % kQueue];
      item.record = sent;
      item.extra = from.next_ordinal + done;
    }
    *total = slot->total;
    *sum = slot->sum;
    from.in.advance();
  }
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
  coverage.checked_messages += done;
  coverage.checked_bytes += bytes;
  return done;
}

void lane_received(Peer& from, const Record& record, uint64_t evidence, Difference* difference) {
  from.own_pending += 1;
  from.pending_bytes += record.bytes;
  if (from.lost) {
    if (evidence != 0) blame::drop(evidence);
    return give_up_undecidable(from);
  }
  if (Queue* queue = from.queue; queue != nullptr && queue->count != 0 && !queue->own) {
    const auto& item = queue->items[queue->head];
    if (in_lane(item.record, record) && !(record.flags & kUnordered)) [[likely]] {
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
  Lane* lane = lane_of(from, record.space, record);
  if (lane == nullptr) return lanes_abandon(from);
  if ((record.flags & kUnordered) || lane->unordered) [[unlikely]] {
    Node taken;
    if (!make_unordered(from, lane, record)) return lanes_abandon(from);
    Lane* twin = lane_of(from, record.space | kTwin, record);
    if (twin != nullptr && take_equal(from, *twin, record, &taken)) {
      own_gone(from, record);
      return settle(taken.record, record, taken.ordinal, evidence, difference);
    }
    lane = lane_of(from, record.space, record);
    if (twin == nullptr || lane == nullptr || !append(from, *lane, record, evidence, 0)) lanes_abandon(from);
    return;
  }
  if (lane->count != 0 && !lane->own) {
    const Node node = nodes[lane->head];
    pop(from, *lane);
    own_gone(from, record);
    return settle(node.record, record, node.ordinal, evidence, difference);
  }
  lane->own = true;
  if (!append(from, *lane, record, evidence, 0)) lanes_abandon(from);
}

void lane_put_back(Peer& from, const Record& record, uint64_t evidence, Difference* difference) {
  if (from.queue != nullptr && from.queue->count != 0 && !from.lost) spill(from);
  Lane* lane = from.lost ? nullptr : lane_of(from, record.space, record);
  if (lane == nullptr || lane->unordered || lane->count == 0 || !lane->own)
    return lane_received(from, record, evidence, difference);
  from.own_pending += 1;
  from.pending_bytes += record.bytes;
  uint32_t index = take_node();
  if (index == kNone) {
    if (evidence != 0) blame::drop(evidence);
    return lanes_abandon(from);
  }
  nodes[index].record = record;
  nodes[index].evidence = evidence;
  nodes[index].next = lane->head;
  lane->head = index;
  ++lane->count;
  ++from.lane_nodes;
}

void lanes_abandon(Peer& peer) {
  peer.lost = true;
  for (Queue* queue = peer.queue; queue != nullptr && queue->count != 0;
       --queue->count, queue->head = (queue->head + 1) % kQueue)
    if (queue->own && queue->items[queue->head].extra != 0) blame::drop(queue->items[queue->head].extra);
  for (uint32_t i = 0; i < lane_capacity; ++i) {
    Lane& lane = lanes[i];
    if (lane.peer != peer.world_rank + 1) continue;
    while (lane.count != 0) {
      if (lane.own && nodes[lane.head].evidence != 0) blame::drop(nodes[lane.head].evidence);
      pop(peer, lane);
    }
    lane.unordered = false;
  }
  give_up_undecidable(peer);
}

bool lanes_pair_leftovers(Peer& peer, Difference* difference) {
  for (uint32_t i = 0; i < lane_capacity; ++i) {
    Lane& lane = lanes[i];
    if (lane.peer != peer.world_rank + 1 || (lane.space & kTwin) || !lane.unordered || lane.count == 0) continue;
    Lane* twin = find(peer, lane.space | kTwin, lane.comm, lane.tag);
    if (twin->peer == 0 || twin->count != lane.count) continue;  // more is on its way: nothing can be said
    const Node own = nodes[lane.head], sent = nodes[twin->head];
    pop(peer, lane);
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
  // Every packet so far is right. The lanes are empty on both sides: matching one by one can begin anew.
  coverage.checked_messages += peer.own_pending;
  coverage.checked_bytes += peer.pending_bytes;
  coverage.by_sum += peer.own_pending;
  peer.own_pending = peer.pending_bytes = peer.deferred = 0;
  peer.lost = false;
}

}  // namespace resil::ledger
