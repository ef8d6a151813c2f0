// SPDX-License-Identifier: Apache-2.0
//
// See inbox.h.

#include "checksum/ledger/inbox.h"

#include <bit>
#include <cstring>

#include "checksum/ledger/peer.h"
#include "checksum/ledger/stream.h"
#include "shim/call/runtime.h"
#include "shim/config/config.h"
#include "shim/ring/node_memory.h"

namespace resil::ledger {

namespace {

constexpr size_t kMostBytes = 1 << 20, kPage = 4096;
constexpr uint32_t kMostStreams = 127, kLeastSlots = 64, kMostSlots = 1024;
constexpr uint32_t kUnknownStreams = 15;  // the launcher does not say how many ranks share the node

struct Inbox {
  NodeMemory memory;
  alignas(kNodeMemoryBegin) uint32_t streams;
  uint32_t slots;
  alignas(64) std::atomic<uint32_t> claimed;  // may exceed `streams`
  std::atomic<int32_t> senders[kMostStreams];  // world rank + 1
};
static_assert(sizeof(Inbox) <= kPage && offsetof(Inbox, streams) == kNodeMemoryBegin);

Inbox* own;
uint32_t known;  // senders found so far

size_t stream_bytes(uint32_t slots) { return sizeof(StreamControl) + slots * sizeof(StreamSlot); }

StreamControl* control_of(Inbox& inbox, uint32_t stream) {
  return reinterpret_cast<StreamControl*>(reinterpret_cast<char*>(&inbox) + kPage + stream * stream_bytes(inbox.slots));
}
StreamSlot* slots_of(StreamControl* control) { return reinterpret_cast<StreamSlot*>(control + 1); }

bool shape_is_right(const Inbox& inbox) {
  return inbox.streams >= 1 && inbox.streams <= kMostStreams && std::has_single_bit(inbox.slots) &&
         inbox.slots >= kLeastSlots && inbox.slots <= kMostSlots &&
         inbox.memory.bytes >= kPage + inbox.streams * stream_bytes(inbox.slots);
}

}  // namespace

InboxShape inbox_shape(int local_size) {
  InboxShape shape = {local_size > 0 ? static_cast<uint32_t>(local_size) - 1 : kUnknownStreams, kMostSlots};
  if (shape.streams > kMostStreams) shape.streams = kMostStreams;  // whoever comes later sends messages
  while (shape.slots > kLeastSlots && shape.streams * stream_bytes(shape.slots) > kMostBytes) shape.slots /= 2;
  return shape;
}

bool inbox_create(const char** why) {
  *why = nullptr;
  const int ranks = runtime.local_size > 0 && runtime.size > 0 && runtime.local_size > runtime.size
                        ? runtime.size
                        : runtime.local_size;
  const InboxShape shape = inbox_shape(ranks);
  if (shape.streams == 0 || runtime.size <= 1 || runtime.rank < 0) return false;
  own = reinterpret_cast<Inbox*>(node_memory_create(kPage + shape.streams * stream_bytes(shape.slots)));
  if (own == nullptr) {
    *why = "no shared memory for records (/dev/shm is missing, full or beyond the limit of file sizes)";
    return false;
  }
  known = 0;
  // Others look only after MPI_Init, whose fence they and this rank have passed by then.
  own->slots = shape.slots;
  __atomic_store_n(&own->streams, shape.streams, __ATOMIC_RELEASE);
  return true;
}

void inbox_connect() {
  if (own != nullptr && own->memory.rank != runtime.rank) inbox_discard();
}

void inbox_discard() { node_memory_discard(); }

bool inbox_open(Peer& to) {
  const int64_t node = config_integer("RESIL_NODE_RANKS");
  if (runtime.local_size == 1 || (node > 0 && to.world_rank / node != runtime.rank / node)) return false;
  auto* inbox = reinterpret_cast<Inbox*>(node_memory_open(to.world_rank));
  if (inbox == nullptr || __atomic_load_n(&inbox->streams, __ATOMIC_ACQUIRE) == 0 || !shape_is_right(*inbox))
    return false;
  const uint32_t stream = inbox->claimed.fetch_add(1);
  if (stream >= inbox->streams) return false;
  StreamControl* control = control_of(*inbox, stream);
  to.out.open(control, slots_of(control), inbox->slots);
  memcpy(to.host, runtime.host, sizeof(to.host));
  inbox->senders[stream].store(runtime.rank + 1, std::memory_order_release);
  return true;
}

Peer* inbox_next_sender() {
  if (own == nullptr || known == own->streams || known >= own->claimed.load(std::memory_order_relaxed)) [[likely]]
    return nullptr;
  const int32_t sender = own->senders[known].load(std::memory_order_acquire);
  Peer* from = sender != 0 ? peer_of(sender - 1) : nullptr;
  if (from == nullptr) return nullptr;  // later
  StreamControl* control = control_of(*own, known++);
  memcpy(from->host, runtime.host, sizeof(from->host));
  from->heard = true;
  from->in.open(control, slots_of(control), own->slots);
  return from;
}

}  // namespace resil::ledger
