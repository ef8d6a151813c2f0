// SPDX-License-Identifier: Apache-2.0
//
// Faults of the sending side: the library is given a private copy of the send buffer, and the copy is changed; or a
// smaller count. See engine.h.

#include <cstring>

#include "checksum/fault/operations.h"
#include "checksum/fault/pool.h"
#include "shim/base/spinlock.h"
#include "shim/model/event.h"
#include "shim/runtime/staged.h"
#include "shim/tables/tables.h"

namespace resil::fault {

namespace {

constexpr uint64_t kSurelyPending = 65536;  // bytes: no library copies as much before it returns from MPI_Isend

bool is_one_sided(const Event& e) { return (e.attributes & kCallRma) != 0; }

/// A copy of all blocks, at the same distances. False: no memory, or a buffer so scattered that it is not worth it.
bool make_copy(Thread& thread, const Layout& layout, char** memory, char** buffer) {
  int64_t low = INT64_MAX, high = INT64_MIN;
  uint64_t bytes = 0;
  Packet packet;
  for (int64_t i = layout.first; i < layout.end; ++i) {
    if (!block_at(thread, layout, i, &packet)) continue;
    int64_t first = 0, last = 0;
    type_span(*packet.type, packet.count, &first, &last);
    const int64_t offset = packet.buffer - buffer_of(layout);
    low = offset + first < low ? offset + first : low;
    high = offset + last > high ? offset + last : high;
    bytes += packet.bytes;
  }
  if (low >= high || static_cast<uint64_t>(high - low) > 8 * bytes + (1 << 20)) return false;
  *memory = static_cast<char*>(pool.allocate(static_cast<uint64_t>(high - low)));
  if (*memory == nullptr) return false;
  *buffer = *memory - low;
  for (int64_t i = layout.first; i < layout.end; ++i)
    if (block_at(thread, layout, i, &packet)) copy(packet, *buffer + (packet.buffer - buffer_of(layout)));
  return true;
}

/// The block that stands for the call, moved into the copy.
bool choose_block(Thread& thread, PerThread& mine, const Layout& layout, Packet* packet, int32_t* peer) {
  Draw choice(1, static_cast<uint64_t>(engine.rank), kMaxSpecs, ++mine.blocks_chosen);
  const int64_t index =
      layout.first + static_cast<int64_t>(choice.below(static_cast<uint64_t>(layout.end - layout.first)));
  *peer = block_partner(layout, index);
  return block_at(thread, layout, index, packet);
}

/// Could MPI still read the buffer when the call has returned?
bool may_be_modified(const Event& e, uint64_t bytes) {
  if (e.attributes & kCallCollective) return (e.attributes & kCallStarts) != 0;
  const CallInfo& info = call_info(e.id);
  if (info.initiation == Initiation::kNonblocking && info.call_class == CallClass::kSend)
    return info.mode == SendMode::kSynchronous || (info.mode != SendMode::kBuffered && bytes >= kSurelyPending);
  return info.rma == RmaOperation::kPut && !info.has(kCallStarts);  // up to the end of the epoch
}

bool is_buffered(CallId id) { return call_info(id).mode == SendMode::kBuffered; }

bool may_be_truncated(const Event& e) {
  return (e.attributes & kCallP2P) && !(e.attributes & (kCallBothWays | kCallPersistent)) && e.given_count > 0;
}

bool damage_copy(Kind kind, const Packet& packet, Draw& draw, PerThread& mine, uint64_t* position) {
  switch (kind) {
    case Kind::kFlip: return flip(packet, true, draw, position);
    case Kind::kSwap: return swap(packet, true, draw, position);
    case Kind::kZero: return zero(packet, draw, position);
    case Kind::kModify:
      mine.changes = mine.send.types == nullptr && invert(packet, draw, &mine.change_at, &mine.change_bytes);
      *position = mine.change_at;
      return mine.changes;
    case Kind::kDuplicate: packet.write(0, packet.bytes, mine.previous); return true;
    default: return false;
  }
}

uint64_t put_key(const Event& e, const Packet& packet, int32_t peer) {
  return ((e.object ^ packet.bytes * 0x9e3779b97f4a7c15) ^ (static_cast<uint64_t>(static_cast<uint32_t>(peer)) << 40) ^
          0x707574) *
             0xff51afd7ed558ccd |
         1;
}

/// The first spec that wants this packet and whose fault has an effect on it.
bool try_specs(PerThread& mine, Event* e, CallId id, bool pending, const Layout& layout, const Packet& packet,
               int32_t peer, char* copied, Injection* injection) {
  const uint64_t comm = layout.comm != nullptr ? layout.comm->ring->id : 0;
  for (unsigned i = 0; i < engine.specs.count; ++i) {
    Spec& spec = engine.specs.list[i];
    Draw draw;
    uint64_t ordinal = 0, position = 0;
    const bool again = spec.kind == Kind::kDuplicate && mine.previous != nullptr && copied == nullptr &&
                       !equal(packet, 0, packet.bytes, mine.previous);
    if (!(on_send_side(spec.kind) || again) || (spec.kind == Kind::kModify && !pending) ||
        (spec.kind == Kind::kTruncate && (e == nullptr || !may_be_truncated(*e))) ||
        !spec.matches(id, peer, packet.bytes) || !spec.fires(engine.rank, i, &draw, &ordinal))
      continue;
    if (spec.kind == Kind::kTruncate) {
      e->given_count = static_cast<int64_t>(draw.below(static_cast<uint64_t>(e->given_count)));
      position = static_cast<uint64_t>(e->given_count) * packet.type->size;
    } else {
      Packet target = packet;
      if (copied == nullptr && !make_copy(*e->thread, layout, &mine.shadow, &mine.shadow_buffer)) {
        spec.spare();
        continue;
      }
      target.buffer = (copied != nullptr ? copied : mine.shadow_buffer) + (packet.buffer - buffer_of(layout));
      mine.change_in = packet;
      if (!damage_copy(spec.kind, target, draw, mine, &position)) {
        if (copied == nullptr) pool.release(mine.shadow);
        mine.shadow = nullptr;
        spec.spare();
        continue;
      }
    }
    *injection = {spec.kind, false, id, peer, -1, -1, -1, packet.bytes, position, ordinal, i, comm, 0, nullptr};
    return true;
  }
  return false;
}

}  // namespace

void inject_send(Event& e, PerThread& mine) {
  mine.departing = mine.changes = false;
  mine.shadow = mine.previous = nullptr;
  if (!send_layout(e, &mine.send)) return;
  if (e.attributes & kCallPersistent) {  // each start fills the copy anew
    if ((e.attributes & kCallP2P) && make_copy(*e.thread, mine.send, &mine.shadow, &mine.shadow_buffer)) {
      e.given_send = mine.shadow_buffer;
      mine.departing = true;
    }
    return;
  }
  Packet packet;
  int32_t peer = -1;
  if (!choose_block(*e.thread, mine, mine.send, &packet, &peer)) return;
  const bool remembers = engine.remembers && is_one_sided(e);
  char* fresh = nullptr;
  if (remembers) {
    mine.previous = take_earlier(put_key(e, packet, peer));
    fresh = static_cast<char*>(pool.allocate(packet.bytes));
    if (fresh != nullptr) packet.read(0, packet.bytes, fresh);
  }
  const bool hit =
      try_specs(mine, &e, e.id, may_be_modified(e, packet.bytes), mine.send, packet, peer, nullptr, &mine.injection);
  if (remembers) {
    char* remembered = hit ? mine.previous : fresh;
    pool.release(hit ? fresh : mine.previous);
    mine.previous = nullptr;
    if (remembered != nullptr) put_earlier(put_key(e, packet, peer), remembered);
  }
  if (!hit) return;
  mine.departing = true;
  mine.injection.tag = e.tag;
  mine.injection.sequence = e.attributes & kCallCollective ? e.sequence : 0;
  if (mine.shadow != nullptr) e.given_send = mine.shadow_buffer;
}

void inject_send_staged(Thread& thread, const StagedMessage& message) {
  PerThread* mine = per_thread(thread);
  if (mine == nullptr) return;
  Layout layout = flat_nothing();
  layout.buffer = message.buffer;
  layout.comm = comm_lookup(thread, message.comm);
  const Packet packet = {message.buffer, message.count, message.type, message.bytes};
  const int32_t peer = layout.comm != nullptr ? comm_world_rank(*layout.comm, message.peer) : message.peer;
  Injection injection;
  if (!try_specs(*mine, nullptr, message.call, false, layout, packet, peer, message.buffer, &injection)) return;
  injection.tag = message.tag;
  note(injection);
}

void inject_sent(Event& e, PerThread& mine) {
  mine.tracked = false;
  if (!mine.departing) return;
  mine.departing = false;
  const bool persistent = (e.attributes & kCallPersistent) != 0, starts = (e.attributes & kCallStarts) != 0;
  const bool pending = starts && e.result == 0 && !is_shared_handle(request_handle(e.requests, 0));
  if (!persistent && e.result == 0) {
    if (mine.changes && !pending &&
        !is_one_sided(e)) {  // the library had its copy already: what changed was not the program's doing
      mine.changes = false;
      mine.injection.kind = Kind::kFlip;
      mine.injection.remark = "asked for: modify; the send was complete at once";
    }
    note(mine.injection);
  }
  if (mine.shadow == nullptr) return;
  if (is_one_sided(e)) return retain_put(e.object, mine);
  if (!pending) {
    pool.release(mine.shadow);
    return;
  }
  Operation operation = {};
  operation.key = request_handle(e.requests, 0);
  operation.id = e.id;
  operation.tag = e.tag;
  operation.persistent = persistent;
  operation.collective = (e.attributes & kCallCollective) != 0;
  operation.active = !persistent;
  operation.layout = mine.send;
  if (mine.send.types != nullptr) {  // what was changed has one of them; the array may be the language binding's
    operation.layout.counts = operation.layout.displacements = operation.layout.types = nullptr;
    operation.layout.map = mine.changes ? mine.change_in.type : nullptr;
  }
  operation.shadow = mine.shadow;
  operation.shadow_buffer = mine.shadow_buffer;
  operation.changes = mine.changes;
  operation.change_at = mine.change_at;
  operation.change_bytes = mine.change_bytes;
  operation.change_offset = mine.changes ? mine.change_in.buffer - buffer_of(mine.send) : 0;
  operation.change_count = mine.changes ? mine.change_in.count : 0;
  mine.tracked = operation_add(operation) != nullptr;
}

void restart(Operation& operation, PerThread& mine) {
  operation.active = true;
  Packet packet = {buffer_of(operation.layout), operation.layout.count, operation.layout.map, 0};
  packet.bytes = type_bytes(*packet.type, packet.count);
  copy(packet, operation.shadow_buffer);
  mine.changes = false;
  mine.send.types = nullptr;
  Injection injection;
  const int32_t peer = block_partner(operation.layout, 0);
  if (packet.bytes != 0 && try_specs(mine, nullptr, operation.id, !is_buffered(operation.id), operation.layout, packet,
                                     peer, operation.shadow_buffer, &injection)) {
    injection.tag = operation.tag;
    note(injection);
  }
  operation.changes = mine.changes;
  operation.change_at = mine.change_at;
  operation.change_bytes = mine.change_bytes;
  operation.change_offset = 0;
  operation.change_count = operation.layout.count;
}

void land_change(Operation& operation) {
  if (!operation.changes) return;
  operation.changes = false;
  unsigned char bytes[32];
  const Layout& layout = operation.layout;
  const Packet copied = {operation.shadow_buffer + operation.change_offset, operation.change_count, layout.map, 0};
  const Packet own = {buffer_of(layout) + operation.change_offset, operation.change_count, layout.map, 0};
  copied.read(operation.change_at, operation.change_bytes, bytes);
  own.write(operation.change_at, operation.change_bytes, bytes);
}

}  // namespace resil::fault
