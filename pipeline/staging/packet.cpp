// SPDX-License-Identifier: Apache-2.0
//
// See packet.h.

#include "pipeline/staging/packet.h"

#include <sched.h>

#include "checksum/datatype/blocks.h"
#include "pipeline/gpu/pinned.h"
#include "pipeline/staging/packet_copy.h"
#include "pipeline/staging/staging.h"

namespace resil::staging {

namespace {

/// More orders to the driver than this (each 1 to 3 us of its time): the whole span is copied down at once...
constexpr uint64_t kFewOrders = 64;
/// ...if it is at most this many times the data.
constexpr uint64_t kSpanFactor = 4;

uint64_t span_of(const Packet& packet) { return static_cast<uint64_t>(packet.high - packet.low); }

/// Device, and pinned memory, for the range [low, high) of the buffer.
Refusal take_memory(Packet* packet, size_t host_bytes) {
  const uint64_t span = span_of(*packet);
  const char* first = packet->buffer + packet->low;
  const gpu::Pointer pointer = gpu::classify(first, span);
  switch (pointer.memory) {
    case gpu::Memory::kHost:
    case gpu::Memory::kPinned: return Refusal::kHostBuffer;
    case gpu::Memory::kForeign: return Refusal::kForeign;
    case gpu::Memory::kDevice:
    case gpu::Memory::kManaged: break;
  }
  if (pointer.device == nullptr)
    return Refusal::kDevice;
  const auto offset = reinterpret_cast<uintptr_t>(first) - pointer.base;
  if (pointer.base != 0 && pointer.bytes != 0 && (offset > pointer.bytes || span > pointer.bytes - offset))
    return Refusal::kBeyond;
  packet->device = pointer.device;
  if (!gpu::pinned_prepare(*pointer.device, mode.memory))
    return Refusal::kPinnedMemory;
  packet->event = gpu::event_acquire(*pointer.device);
  if (packet->event == 0)
    return Refusal::kDevice;
  packet->host_bytes = host_bytes;
  packet->host = static_cast<char*>(gpu::pinned_acquire(*pointer.device, host_bytes));
  if (packet->host != nullptr)
    return Refusal::kNone;
  gpu::event_release(*pointer.device, packet->event);
  return Refusal::kPinnedMemory;
}

Part part_of(const Packet& packet) {
  const bool packed = packet.layout == Layout::kPacked;
  return {packet.type, packet.count, packet.buffer, packed ? packet.host : packet.host - packet.low, packed};
}

Part part_of(const Packet& packet, const Block& block) {
  return {block.type, block.count, packet.buffer + block.offset, packet.host - packet.low + block.offset, false};
}

/// After the copies have been enqueued. When one was refused, the event still tells when the others have left the memory.
PacketState enqueued(Packet* packet, bool good, bool up) {
  const bool recorded =
      gpu::event_record(*packet->device, up ? gpu::Lane::kUp : gpu::Lane::kDown, packet->event);
  return packet->state = good && recorded ? PacketState::kCopying : PacketState::kFailed;
}

bool span_down(Packet* packet, char* to) {
  return gpu::copy_down(*packet->device, to, packet->buffer + packet->low, span_of(*packet));
}

uint64_t block_orders(const Packet& packet) {
  uint64_t orders = 0;
  for (uint32_t i = 0; i < packet.block_count; ++i)
    orders += copy_orders(part_of(packet, packet.blocks[i]), type_bytes(*packet.blocks[i].type, packet.blocks[i].count));
  return orders;
}

/// A shadow takes the gaps along when they are small or many: reading them does no harm.
bool shadow_down(Packet* packet) {
  const bool small = span_of(*packet) / kSpanFactor <= packet->bytes;
  if (packet->blocks == nullptr) {
    const Part part = part_of(*packet);
    return small || copy_orders(part, packet->bytes) == 1 ? span_down(packet, packet->host)
                                                          : copy_part(*packet->device, part, packet->bytes, false);
  }
  if (small || block_orders(*packet) > kFewOrders * kFewOrders)
    return span_down(packet, packet->host);
  for (uint32_t i = 0; i < packet->block_count; ++i) {
    const Block& block = packet->blocks[i];
    if (!copy_part(*packet->device, part_of(*packet, block), type_bytes(*block.type, block.count), false))
      return false;
  }
  return true;
}

bool packed_down(Packet* packet) {
  const Part part = part_of(*packet);
  const uint64_t span = span_of(*packet);
  if (copy_orders(part, packet->bytes) > kFewOrders && span / kSpanFactor <= packet->bytes) {
    packet->span = static_cast<char*>(gpu::pinned_acquire(*packet->device, span));
    if (packet->span != nullptr)
      return span_down(packet, packet->span);
  }
  return copy_part(*packet->device, part, packet->bytes, false);
}

/// The copy is complete, or never will be.
void end_span(Packet* packet, bool good) {
  if (packet->span == nullptr)
    return;
  if (good)
    type_pack(*packet->type, packet->span - packet->low, packet->count, 0, packet->bytes, packet->host);
  gpu::pinned_release(packet->span);
  packet->span = nullptr;
}

gpu::State state_of(const Packet& packet) {
  if (packet.check.copied)
    return gpu::State::kDone;
  return gpu::event_query(*packet.device, packet.event);
}

void release_types(Packet* packet) {
  if (packet->type != nullptr)
    type_map_release(packet->type);
  for (uint32_t i = 0; i < packet->block_count; ++i)
    type_map_release(packet->blocks[i].type);
  block_release(packet->blocks);
}

}  // namespace

Refusal packet_open(Packet* packet, Thread& thread, const void* buffer, int64_t count, uint64_t type, Layout layout) {
  const TypeMap* map = type_map(thread, type);
  if (map == nullptr) {
    const gpu::Memory memory = gpu::classify(buffer, 1).memory;
    return memory == gpu::Memory::kHost || memory == gpu::Memory::kPinned ? Refusal::kHostBuffer : Refusal::kDatatype;
  }
  *packet = {};
  packet->buffer = static_cast<char*>(const_cast<void*>(buffer));
  packet->count = count;
  packet->layout = layout;
  packet->bytes = type_bytes(*map, count);
  if (packet->bytes == 0)
    return Refusal::kHostBuffer;
  type_span(*map, count, &packet->low, &packet->high);
  const Refusal refusal = take_memory(packet, layout == Layout::kPacked ? packet->bytes : span_of(*packet));
  if (refusal == Refusal::kNone) {
    packet->type = map;
    type_map_hold(map);
  }
  return refusal;
}

Refusal packet_open_blocks(Packet* packet, Thread&, const void* buffer, const Block* blocks, uint32_t count) {
  *packet = {};
  packet->buffer = static_cast<char*>(const_cast<void*>(buffer));
  packet->layout = Layout::kShadow;
  for (uint32_t i = 0; i < count; ++i) {
    const Block& block = blocks[i];
    const uint64_t bytes = type_bytes(*block.type, block.count);
    if (bytes == 0)
      continue;
    int64_t low, high;
    type_span(*block.type, block.count, &low, &high);
    low += block.offset;
    high += block.offset;
    packet->low = packet->bytes == 0 || low < packet->low ? low : packet->low;
    packet->high = packet->bytes == 0 || high > packet->high ? high : packet->high;
    packet->bytes += bytes;
  }
  if (packet->bytes == 0)
    return Refusal::kHostBuffer;
  const Refusal refusal = take_memory(packet, span_of(*packet));
  if (refusal != Refusal::kNone)
    return refusal;
  packet->blocks = static_cast<Block*>(block_acquire(count * sizeof(Block)));
  if (packet->blocks == nullptr) {
    packet_close(packet);
    return Refusal::kPinnedMemory;
  }
  for (uint32_t i = 0; i < count; ++i) {
    packet->blocks[i] = blocks[i];
    type_map_hold(blocks[i].type);
  }
  packet->block_count = count;
  return Refusal::kNone;
}

PacketState packet_down(Packet* packet) {
  enqueued(packet, packet->layout == Layout::kPacked ? packed_down(packet) : shadow_down(packet), false);
  if (checking)
    check_down(packet);
  return packet->state;
}

PacketState packet_down_blocks(Packet* packet, uint32_t first, uint32_t last) {
  bool good = true, any = false;
  for (uint32_t i = first; i < last && i < packet->block_count && good; ++i) {
    const Block& block = packet->blocks[i];
    const uint64_t bytes = type_bytes(*block.type, block.count);
    any = any || bytes != 0;
    good = copy_part(*packet->device, part_of(*packet, block), bytes, false);
  }
  return any ? enqueued(packet, good, false) : packet->state = PacketState::kReady;
}

PacketState packet_up(Packet* packet, uint64_t bytes) {
  bytes = bytes < packet->bytes ? bytes : packet->bytes;
  if (bytes == 0)
    return packet->state = PacketState::kReady;
  if (packet->blocks == nullptr) {
    enqueued(packet, copy_part(*packet->device, part_of(*packet), bytes, true), true);
  } else {
    bool good = true;
    uint64_t left = bytes;
    for (uint32_t i = 0; i < packet->block_count && left != 0 && good; ++i) {
      const Block& block = packet->blocks[i];
      const uint64_t whole = type_bytes(*block.type, block.count), part = whole < left ? whole : left;
      good = copy_part(*packet->device, part_of(*packet, block), part, true);
      left -= part;
    }
    enqueued(packet, good, true);
  }
  if (checking)
    check_up(packet, bytes);
  return packet->state;
}

PacketState packet_up_blocks(Packet* packet, uint32_t first, uint32_t last) {
  bool good = true, any = false;
  for (uint32_t i = first; i < last && i < packet->block_count && good; ++i) {
    const Block& block = packet->blocks[i];
    const uint64_t bytes = type_bytes(*block.type, block.count);
    any = any || bytes != 0;
    good = copy_part(*packet->device, part_of(*packet, block), bytes, true);
  }
  if (!any)
    return packet->state = PacketState::kReady;
  enqueued(packet, good, true);
  if (checking)
    check_up_blocks(packet, first, last);
  return packet->state;
}

PacketState packet_poll(Packet* packet) {
  if (packet->state != PacketState::kCopying)
    return packet->state;
  const gpu::State state = state_of(*packet);
  if (state != gpu::State::kPending)
    end_span(packet, state == gpu::State::kDone);
  if (state == gpu::State::kFailed) {
    check_forget(packet);
    packet->state = PacketState::kFailed;
  } else if (check_settled(packet, state == gpu::State::kDone)) {
    packet->state = PacketState::kReady;
  }
  return packet->state;
}

PacketState packet_wait(Packet* packet) {
  for (unsigned polls = 0; packet_poll(packet) == PacketState::kCopying; ++polls)
    if (polls > 64)
      sched_yield();
  return packet->state;
}

void packet_close(Packet* packet) {
  if (packet->host == nullptr)
    return;
  check_forget(packet);
  // Also a failed packet may have copies under way in its memory.
  if (packet->state == PacketState::kCopying || packet->state == PacketState::kFailed)
    while (gpu::event_query(*packet->device, packet->event) == gpu::State::kPending)
      sched_yield();
  gpu::pinned_release(packet->span);
  gpu::pinned_release(packet->host);
  gpu::event_release(*packet->device, packet->event);
  release_types(packet);
  *packet = {};
}

}  // namespace resil::staging
