// SPDX-License-Identifier: Apache-2.0
//
// See packet.h.

#include "pipeline/staging/packet.h"

#include <sched.h>

#include "pipeline/gpu/pinned.h"
#include "pipeline/staging/packet_copy.h"
#include "pipeline/staging/staging.h"
#include "shim/runtime/block_pool.h"
#include "shim/tables/type_maps.h"

namespace resil::staging {

namespace {

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
  if (pointer.device == nullptr) return Refusal::kDevice;
  const auto offset = reinterpret_cast<uintptr_t>(first) - pointer.base;
  if (pointer.base != 0 && pointer.bytes != 0 && (offset > pointer.bytes || span > pointer.bytes - offset))
    return Refusal::kBeyond;
  packet->device = pointer.device;
  gpu::settle(pointer, first);
  const bool pinned = gpu::pinned_prepare(*pointer.device, mode.memory);
  packet->event = gpu::event_acquire(*pointer.device);
  if (packet->event == 0) return Refusal::kDevice;
  packet->host_bytes = host_bytes;
  packet->host = pinned ? static_cast<char*>(gpu::pinned_acquire(*pointer.device, host_bytes)) : nullptr;
  if (packet->host == nullptr) {
    packet->host = static_cast<char*>(memory::blocks.allocate(host_bytes));
    packet->pageable = packet->host != nullptr;
    if (packet->pageable) count_pageable(host_bytes);
  }
  if (packet->host != nullptr) return Refusal::kNone;
  gpu::event_release(*pointer.device, packet->event);
  return Refusal::kPinnedMemory;
}

/// Nobody reads or writes its memory any more: neither copies, of which a failed packet may have some under way, nor
/// digests.
void leave(Packet* packet) {
  check_forget(packet);
  if (packet->state == PacketState::kCopying || packet->state == PacketState::kFailed)
    while (gpu::event_query(*packet->device, packet->event) == gpu::State::kPending) sched_yield();
  plan_end(packet);
}

/// Every copy of a packet begins here.
PacketState start(Packet* packet, const CopyRange& range) {
  if (range.bytes == 0) return packet->state = PacketState::kReady;
  if (packet->state == PacketState::kFailed) leave(packet);
  packet->copy = range;
  if (checking) check_before(packet);
  const bool good = range.up ? plan_up(packet) : plan_down(packet);
  // When one of them was refused, the event still tells when the others have left the memory.
  const bool recorded =
      gpu::event_record(*packet->device, range.up ? gpu::StreamRole::kUp : gpu::StreamRole::kDown, packet->event);
  packet->state = good && recorded ? PacketState::kCopying : PacketState::kFailed;
  if (checking) check_copy(packet);
  return packet->state;
}

/// Whole blocks.
CopyRange blocks_of(const Packet& packet, uint32_t first, uint32_t last, bool up) {
  last = last < packet.block_count ? last : packet.block_count;
  return {first, last, packet_data(packet, first, last), up};
}

PacketState look(Packet* packet) {
  const gpu::State state = packet->check.copied ? gpu::State::kDone : gpu::event_query(*packet->device, packet->event);
  if (state == gpu::State::kDone) plan_copied(packet);
  if (state == gpu::State::kFailed) {
    check_forget(packet);
    packet->state = PacketState::kFailed;
  } else {
    switch (check_poll(packet, state == gpu::State::kDone)) {
      case CheckResult::kPending: return packet->state;
      case CheckResult::kSettled: packet->state = PacketState::kReady; break;
      case CheckResult::kAgain: plan_end(packet); return start(packet, packet->copy);
    }
  }
  plan_end(packet);
  return packet->state;
}

}  // namespace

uint64_t packet_data(const Packet& packet, uint32_t first, uint32_t last) {
  uint64_t bytes = 0;
  for (uint32_t i = first; i < last; ++i) bytes += type_bytes(*packet.blocks[i].type, packet.blocks[i].count);
  return bytes;
}

Refusal packet_open(Packet* packet, const void* buffer, int64_t count, const TypeMap* type, Layout layout) {
  *packet = {};
  if (type == nullptr) return gpu::is_host(gpu::classify(buffer, 1).memory) ? Refusal::kHostBuffer : Refusal::kDatatype;
  packet->buffer = static_cast<char*>(const_cast<void*>(buffer));
  packet->count = count;
  packet->layout = layout;
  packet->bytes = type_bytes(*type, count);
  if (packet->bytes == 0) return Refusal::kHostBuffer;
  type_span(*type, count, &packet->low, &packet->high);
  const Refusal refusal = take_memory(packet, layout == Layout::kPacked ? packet->bytes : span_of(*packet));
  if (refusal == Refusal::kNone) {
    packet->type = type;
    type_map_hold(type);
  }
  return refusal;
}

Refusal packet_open_blocks(Packet* packet, const void* buffer, const Block* blocks, uint32_t count) {
  *packet = {};
  packet->buffer = static_cast<char*>(const_cast<void*>(buffer));
  packet->layout = Layout::kShadow;
  for (uint32_t i = 0; i < count; ++i) {
    const Block& block = blocks[i];
    const uint64_t bytes = type_bytes(*block.type, block.count);
    if (bytes == 0) continue;
    int64_t low, high;
    type_span(*block.type, block.count, &low, &high);
    low += block.offset;
    high += block.offset;
    packet->low = packet->bytes == 0 || low < packet->low ? low : packet->low;
    packet->high = packet->bytes == 0 || high > packet->high ? high : packet->high;
    packet->bytes += bytes;
  }
  if (packet->bytes == 0) return Refusal::kHostBuffer;
  const Refusal refusal = take_memory(packet, span_of(*packet));
  if (refusal != Refusal::kNone) return refusal;
  packet->blocks = static_cast<Block*>(memory::blocks.allocate(count * sizeof(Block)));
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

PacketState packet_down(Packet* packet) { return start(packet, {0, packet->block_count, packet->bytes, false}); }

PacketState packet_down_blocks(Packet* packet, uint32_t first, uint32_t last) {
  return start(packet, blocks_of(*packet, first, last, false));
}

PacketState packet_up(Packet* packet, uint64_t bytes) {
  return start(packet, {0, packet->block_count, bytes < packet->bytes ? bytes : packet->bytes, true});
}

PacketState packet_up_blocks(Packet* packet, uint32_t first, uint32_t last) {
  return start(packet, blocks_of(*packet, first, last, true));
}

void packet_copying(Packet* packet) {
  device_copy_pending(packet->watch, packet->copy.up, packet->bytes, packet->of_message ? packet->peer : -1,
                      packet->of_message ? packet->tag : -1);
}

PacketState packet_poll(Packet* packet) {
  if (packet->state != PacketState::kCopying) return packet->state;
  const PacketState state = look(packet);
  if (state == PacketState::kCopying) packet_copying(packet);
  else if (packet->watch.looks != 0) device_copy_over(packet->watch);
  return state;
}

PacketState packet_wait(Packet* packet) {
  for (unsigned polls = 0; packet_poll(packet) == PacketState::kCopying; ++polls)
    if (polls > 64) sched_yield();
  return packet->state;
}

void packet_close(Packet* packet) {
  if (packet->host == nullptr) return;
  leave(packet);
  device_copy_over(packet->watch);
  gpu::event_release(*packet->device, packet->event);
  if (packet->pageable) memory::blocks.release(packet->host);
  else gpu::pinned_release(packet->host);
  if (packet->type != nullptr) type_map_release(packet->type);
  for (uint32_t i = 0; i < packet->block_count; ++i) type_map_release(packet->blocks[i].type);
  memory::blocks.release(packet->blocks);
  *packet = {};
}

}  // namespace resil::staging
