// SPDX-License-Identifier: Apache-2.0
//
// The receiver's side of chunked large messages: a head has matched one of the program's receives, whatever memory that
// is for; the chunks come into the entry's memory. See chunked.h.

#include <string.h>

#include "pipeline/staging/chunked_peer.h"
#include "pipeline/staging/staging.h"
#include "shim/abi/backend.h"
#include "shim/call/dispatch.h"
#include "shim/call/runtime.h"
#include "shim/call/thread.h"
#include "shim/runtime/block_pool.h"
#include "shim/runtime/mailbox.h"
#include "shim/runtime/pool.h"
#include "shim/tables/tables.h"
#include "shim/tables/type_maps.h"

namespace resil::staging {

namespace {

/// Messages that MPI_Mprobe has found to be heads, and that have not been received.
struct Probed {
  uint64_t message;  ///< handle; 0: free
  Entry* entry;
};

constinit Probed probed[kMostEntries] = {};
constinit Target* persistent;
constinit uint32_t matched;
memory::Pool<Target, &Target::next, 64, 1 << 20> pool;

uint64_t bytes_of(Thread& thread, int64_t count, uint64_t type) {
  return count > 0 ? static_cast<uint64_t>(count) * static_cast<uint64_t>(type_size(thread, type)) : 0;
}

bool fits_a_head(uint64_t capacity) { return capacity >= chunk_bytes / 8; }

Target* target_take(Thread& thread, const void* buffer, int64_t count, uint64_t type, uint64_t request) {
  Target* target = pool.allocate();
  if (target == nullptr) return nullptr;
  *target = {nullptr, static_cast<char*>(const_cast<void*>(buffer)),
             count,   type_map(thread, type),
             0,       bytes_of(thread, count, type),
             request, 0};
  if (target->map != nullptr) {
    type_map_hold(target->map);
  } else if (!backend->replay->keep_type(type, &target->type)) {
    pool.release(target);
    return nullptr;
  }
  return target;
}

uint64_t capacity_of(const Message& op) { return op.staged ? op.packet.bytes : op.target->capacity; }

/// Is what has come there a head of the entry's?
bool has_secret(const Entry& entry, const Message& op) {
  const uint64_t at = entry.cut.in_head();
  Secret found;
  if (capacity_of(op) < entry.cut.head)  // too long for it: the library has said so
    return false;
  if (op.staged && op.packet.layout == Layout::kPacked) {
    memcpy(&found, op.packet.host + at, sizeof(found));
  } else if (op.staged) {
    if (type_pack(*op.packet.type, packet_given(op.packet), op.packet.count, at, sizeof(found), &found) !=
        sizeof(found))
      return false;
  } else if (op.target->map != nullptr) {
    const Target& target = *op.target;
    if (type_pack(*target.map, target.buffer, target.count, at, sizeof(found), &found) != sizeof(found)) return false;
  } else {
    auto* head = static_cast<char*>(memory::blocks.allocate(entry.cut.head));
    const MessagePart part = {op.target->buffer, op.target->count, op.target->type};
    const bool packed = head != nullptr && backend->staging->pack_first(part, entry.cut.head, head);
    if (packed) memcpy(&found, head + at, sizeof(found));
    memory::blocks.release(head);
    if (!packed) return false;
  }
  return memcmp(&found, &entry.cut.secret, sizeof(found)) == 0;
}

/// What has come behind the head goes where the library would have put it; `bytes` in all.
bool deliver(Entry& entry, Message& op, uint64_t bytes) {
  const uint64_t head = entry.cut.in_head();
  const char* rest = entry.memory + head;
  if (op.staged && op.packet.layout == Layout::kPacked)
    return memcpy(op.packet.host + head, rest, bytes - head) != nullptr;
  if (op.staged)
    return type_unpack(*op.packet.type, packet_given(op.packet), op.packet.count, head, bytes - head, rest) ==
           bytes - head;
  const Target& target = *op.target;
  if (target.map != nullptr)
    return type_unpack(*target.map, target.buffer, target.count, head, bytes - head, rest) == bytes - head;
  // A layout that only the library knows: it gives the head back, and takes all of it once more.
  const MessagePart part = {target.buffer, target.count, target.type};
  return backend->staging->pack_first(part, head, entry.memory) &&
         mailbox::copy(entry.memory, static_cast<int64_t>(bytes), 0, target.buffer, target.count, target.type);
}

/// Chunks can be copied to the device as they come, from where they come.
bool goes_straight(const Entry& entry, const Message& op) {
  const Packet& packet = op.packet;
  const bool whole = entry.cut.peer != 0 || (!packet.pageable && packet.bytes >= entry.cut.bytes);
  return whole && op.staged && packet.layout == Layout::kPacked && packet.type->run_count == 1 &&
         static_cast<uint64_t>(packet.high - packet.low) == packet.bytes;
}

void up(Message& op, uint64_t begin, uint64_t bytes) {
  Packet& packet = op.packet;
  if (!op.failed && !gpu::copy_up(*packet.device, packet.buffer + packet.low + begin, packet.host + begin, bytes))
    copy_failed(op, "up");
}

/// The message has the entry's memory from now on, and the entry the message's: the head is all that is moved.
void begin(Entry& entry, Message& op) {
  entry.straight = goes_straight(entry, op);
  if (!entry.straight || entry.cut.peer != 0) return;
  Packet& packet = op.packet;
  memcpy(entry.memory, packet.host, entry.cut.in_head());
  char* const memory = entry.memory;
  const uint64_t room = entry.room;
  entry.memory = packet.host;
  entry.room = packet.host_bytes;
  packet.host = memory;
  packet.host_bytes = room;
  up(op, 0, entry.cut.in_head());
}

/// The next chunk, if it is here.
bool take_chunk(Entry& entry, Message& op) {
  uint64_t status[4] = {};
  int flag = 0;
  if (backend->messages->test(&entry.requests[entry.arrived], &flag, status) != 0 || flag == 0) return false;
  StatusInfo info = {};
  backend->messages->status_read(status, 0, &info);
  const uint32_t i = entry.arrived++;
  if (info.bytes != entry.cut.wire(i)) op.failed = true;  // its sender could not have it, and has said why
  else if (entry.cut.peer != 0) chunked_peer_empty(entry, op);
  else if (entry.straight) up(op, entry.cut.begin(i), entry.cut.size(i));
  return true;
}

/// Is the entry's device memory being copied from?
bool still_read(Entry& entry) {
  if (entry.emptied == 0) return false;
  const gpu::State state = chunked_peer_emptied(entry);
  if (state == gpu::State::kFailed) {
    entry.refused = true;
    chunked_devices_changed();
  }
  return state == gpu::State::kPending;
}

/// It is ready for the next message.
void leave(Thread& thread, Entry& entry) {
  chunked_peer_clear(entry);
  chunked_regrant(thread, entry);
  --matched;
  work_ends();
}

/// The message leaves the entry, which is not free yet if device memory is still being read.
void end(Thread& thread, Entry& entry, Message* op) {
  const uint64_t capacity = capacity_of(*op), all = entry.cut.bytes, bytes = all < capacity ? all : capacity;
  const bool straight = entry.straight;
  chunked_count_received(entry.cut);
  if (!straight && !op->failed && !deliver(entry, *op, bytes)) op->failed = true;
  entry.message = nullptr;
  if (entry.emptied == 0) leave(thread, entry);
  op->came = bytes;
  if (all > capacity) {
    op->failed = true;
    op->error = backend->staging->error_truncate;
  }
  if (!straight) return whole_arrived(thread, op, bytes);
  op->bytes = bytes;
  Packet& packet = op->packet;
  packet.copy.up = true;
  // Also after a refused copy: others may be under way.
  packet.state = gpu::event_record(*packet.device, gpu::StreamRole::kUp, packet.event) ? PacketState::kCopying
                                                                                       : PacketState::kFailed;
  rising_append(op);
}

void work(Thread& thread, Entry& entry) {
  Message* op = entry.message;
  if (op == nullptr && !still_read(entry)) return leave(thread, entry);
  if (op == nullptr || !chunked_announced(entry)) return;
  if (!entry.begun) {
    entry.begun = true;
    begin(entry, *op);
  }
  while (entry.arrived < entry.cut.chunks)
    if (!take_chunk(entry, *op)) return;
  if (!entry.straight && still_read(entry))  // what is delivered from the host has come there
    return;
  if (!entry.straight && entry.refused && !op->failed) copy_failed(*op, "up");
  end(thread, entry, op);
}

bool is_probe(CallId id) { return class_of(id) == CallClass::kProbe || class_of(id) == CallClass::kMatchedProbe; }

void persistent_made(Event& e) {
  const int64_t count = e.given_count;
  if (chunked_granted == 0 || e.result != 0 || !(e.attributes & kCallReceives) || e.peer == ring::kProcNull ||
      !fits_a_head(bytes_of(*e.thread, count, e.receive.type)))
    return;
  Target* target = target_take(*e.thread, e.given_receive, count, e.receive.type, request_handle(e.requests, 0));
  if (target == nullptr) return;
  target->comm = e.comm_handle;
  target->next = persistent;
  persistent = target;
}

void persistent_started(Event& e) {
  if (persistent == nullptr || e.result != 0) return;
  for (int64_t i = 0; i < e.request_count; ++i) {
    const uint64_t request = request_handle(e.requests, i);
    Target* target = persistent;
    while (target != nullptr && target->request != request) target = target->next;
    Message* op = target != nullptr ? message_take() : nullptr;
    if (op == nullptr) continue;
    op->target = target;
    op->handle = request;
    op->comm = target->comm;
    op->keeps = true;
    message_enter(op);
    wire_append(op);
  }
}

/// Its status says what the whole message has.
void probed_one(Event& e) {
  if (e.result != 0 || ((e.attributes & kCallPoll) && *e.flag == 0)) return;
  StatusInfo info = {};
  backend->messages->status_read(e.given_statuses, 0, &info);
  Entry* entry = info.bytes % kHeadUnit == 0
                     ? chunked_entry(chunked_world_rank(*e.thread, e.comm_handle, info.source), info.bytes)
                     : nullptr;
  if (entry == nullptr || !chunked_is_head(*e.thread, *entry, e.comm->ring->id, info.tag)) return;
  backend->staging->set_bytes(e, 0, entry->cut.bytes);
  if (class_of(e.id) == CallClass::kProbe) return;
  for (Probed& place : probed)
    if (place.message == 0) {
      place = {request_handle(e.message, 0), entry};
      return;
    }
}

}  // namespace

Message* chunked_track(Thread& thread, const Half& half) {
  if (chunked_granted == 0 || half.envelope.peer == ring::kProcNull ||
      !fits_a_head(bytes_of(thread, half.count, half.type)))
    return nullptr;
  Target* target = target_take(thread, half.buffer, half.count, half.type, 0);
  Message* op = target != nullptr ? message_take() : nullptr;
  if (op == nullptr) {
    if (target != nullptr) chunked_target_release(target);
    return nullptr;
  }
  op->target = target;
  op->comm = half.envelope.comm != 0 ? half.envelope.comm : backend->comm_world();
  return op;
}

void chunked_persistent_gone(uint64_t request) {
  for (Target** place = &persistent; *place != nullptr; place = &(*place)->next) {
    Target* target = *place;
    if (target->request != request) continue;
    *place = target->next;
    target->request = 0;  // a message that is under way gives it back
    if (message_find(request) == nullptr) chunked_target_release(target);
    return;
  }
}

void chunked_target_release(Target* target) {
  if (target->map != nullptr) type_map_release(target->map);
  else backend->replay->drop_type(target->type);
  pool.release(target);
}

bool chunked_arrived(Thread& thread, Message* op, uint64_t bytes, int32_t source) {
  if (chunked_granted == 0 || bytes % kHeadUnit != 0 || op->matched < 0) [[likely]]
    return false;
  if (!op->staged && op->target == nullptr) return false;
  Entry* entry = op->matched > 0 ? chunked_entry_numbered(static_cast<uint32_t>(op->matched - 1))
                                 : chunked_entry(chunked_world_rank(thread, op->comm, source), bytes);
  if (entry == nullptr || entry->state != EntryState::kOpen || !has_secret(*entry, *op)) return false;
  entry->state = EntryState::kMatched;
  entry->message = op;
  ++matched;
  work_begins();
  work(thread, *entry);
  return true;
}

bool chunked_sees(CallId id) {
  static constexpr auto kSeen = by_call([](const CallInfo& info) {
    const CallClass of = info.call_class;
    return of == CallClass::kProbe || of == CallClass::kMatchedProbe || of == CallClass::kStart ||
           of == CallClass::kRequestFree || (of == CallClass::kReceive && info.initiation == Initiation::kPersistent);
  });
  return kSeen[id];
}

void chunked_entered(Event& e) {
  if (class_of(e.id) == CallClass::kStart) chunked_starting(e);
  else if (chunked_granted != 0 && is_probe(e.id)) give_statuses(e);
  else if (class_of(e.id) == CallClass::kRequestFree && persistent != nullptr)
    chunked_persistent_gone(request_handle(e.requests, 0));
}

void chunked_returned(Event& e) {
  if (chunked_granted == 0 || class_of(e.id) == CallClass::kRequestFree) return;
  if (is_probe(e.id)) probed_one(e);
  else if (class_of(e.id) == CallClass::kStart) persistent_started(e);
  else persistent_made(e);
}

bool chunked_receives_advance(Thread& thread) {
  if (matched == 0) return false;
  for (uint32_t i = 0; i < kMostEntries; ++i)
    if (Entry* entry = chunked_entry_numbered(i); entry->state == EntryState::kMatched) work(thread, *entry);
  return true;
}

void chunked_matched(const Event& e, Message* op) {
  op->matched = -1;
  const uint64_t message = chunked_granted != 0 ? request_handle(e.message, 0) : 0;
  for (Probed& place : probed)
    if (message != 0 && place.message == message) {
      op->matched = static_cast<int16_t>(chunked_number(*place.entry) + 1);
      place.message = 0;
      return;
    }
}

}  // namespace resil::staging
