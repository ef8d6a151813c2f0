// SPDX-License-Identifier: Apache-2.0
//
// See packet.h.

#include "pipeline/staging/packet.h"

#include <sched.h>

#include "pipeline/gpu/pinned.h"
#include "pipeline/staging/packet_copy.h"
#include "pipeline/staging/staging.h"
#include "shim/base/clock.h"
#include "shim/ring/device_work.h"
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

/// After the copies have been enqueued. When one was refused, the event still tells when the others have left the
/// memory.
PacketState enqueued(Packet* packet, bool good, bool up) {
  packet->up = up;
  const bool recorded =
      gpu::event_record(*packet->device, up ? gpu::StreamRole::kUp : gpu::StreamRole::kDown, packet->event);
  return packet->state = good && recorded ? PacketState::kCopying : PacketState::kFailed;
}

gpu::State state_of(const Packet& packet) {
  if (packet.check.copied) return gpu::State::kDone;
  return gpu::event_query(*packet.device, packet.event);
}

void release_types(Packet* packet) {
  if (packet->type != nullptr) type_map_release(packet->type);
  for (uint32_t i = 0; i < packet->block_count; ++i) type_map_release(packet->blocks[i].type);
  memory::blocks.release(packet->blocks);
}

}  // namespace

uint64_t packet_data(const Packet& packet, uint32_t first, uint32_t last) {
  uint64_t bytes = 0;
  for (uint32_t i = first; i < last; ++i) bytes += type_bytes(*packet.blocks[i].type, packet.blocks[i].count);
  return bytes;
}

Refusal packet_open(Packet* packet, const void* buffer, int64_t count, const TypeMap* type, Layout layout) {
  *packet = {};
  if (type == nullptr) {
    const gpu::Memory memory = gpu::classify(buffer, 1).memory;
    return memory == gpu::Memory::kHost || memory == gpu::Memory::kPinned ? Refusal::kHostBuffer : Refusal::kDatatype;
  }
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

PacketState packet_down(Packet* packet) {
  if (checking) check_before(packet, 0, packet->block_count);
  enqueued(packet, plan_down(packet, 0, packet->block_count), false);
  if (checking) check_down(packet);
  return packet->state;
}

PacketState packet_down_blocks(Packet* packet, uint32_t first, uint32_t last) {
  last = last < packet->block_count ? last : packet->block_count;
  if (packet_data(*packet, first, last) == 0) return packet->state = PacketState::kReady;
  if (checking) check_before(packet, first, last);
  enqueued(packet, plan_down(packet, first, last), false);
  if (checking) check_blocks(packet, first, last, false);
  return packet->state;
}

PacketState packet_up(Packet* packet, uint64_t bytes) {
  bytes = bytes < packet->bytes ? bytes : packet->bytes;
  if (bytes == 0) return packet->state = PacketState::kReady;
  enqueued(packet, plan_up(packet, 0, packet->block_count, bytes), true);
  if (checking) check_up(packet, bytes);
  return packet->state;
}

PacketState packet_up_blocks(Packet* packet, uint32_t first, uint32_t last) {
  last = last < packet->block_count ? last : packet->block_count;
  const uint64_t bytes = packet_data(*packet, first, last);
  if (bytes == 0) return packet->state = PacketState::kReady;
  enqueued(packet, plan_up(packet, first, last, bytes), true);
  if (checking) check_blocks(packet, first, last, true);
  return packet->state;
}

namespace {

constexpr uint32_t kLooks = 256;  // between two readings of the clock
constexpr uint64_t kLate = 1000000000;  // ns, after which others are told: a copy takes milliseconds

void copy_ends(Packet* packet);
PacketState look(Packet* packet);

}  // namespace

/// Nothing but a counter, most of the time.
void packet_copying(Packet* packet) {
  if (++packet->looks % kLooks != 1 || packet->late != 0) return;
  const uint64_t now = monotonic_ns();
  if (packet->since_ns == 0) packet->since_ns = now;
  else if (now - packet->since_ns >= kLate)
    packet->late = 1 + device_copy_late(packet->up, packet->bytes, packet->of_message ? packet->peer : -1,
                                        packet->of_message ? packet->tag : -1, packet->since_ns);
}

namespace {

void copy_ends(Packet* packet) {
  if (packet->late > 0) device_copy_ends(packet->late - 1);
  packet->since_ns = 0;
  packet->looks = 0;
  packet->late = 0;
}

}  // namespace

PacketState packet_poll(Packet* packet) {
  if (packet->state != PacketState::kCopying) return packet->state;
  const PacketState state = look(packet);
  if (state == PacketState::kCopying) packet_copying(packet);
  else if (packet->looks != 0) copy_ends(packet);
  return state;
}

namespace {

PacketState look(Packet* packet) {
  const gpu::State state = state_of(*packet);
  if (state != gpu::State::kPending) plan_end(packet, state == gpu::State::kDone);
  if (state == gpu::State::kFailed) {
    check_forget(packet);
    return packet->state = PacketState::kFailed;
  }
  switch (check_poll(packet, state == gpu::State::kDone)) {
    case CheckResult::kPending: break;
    case CheckResult::kSettled: packet->state = PacketState::kReady; break;
    case CheckResult::kAgain:
      if (packet->blocks == nullptr) return packet_down(packet);
      return packet_down_blocks(packet, packet->check.first, packet->check.last);
  }
  return packet->state;
}

}  // namespace

PacketState packet_wait(Packet* packet) {
  for (unsigned polls = 0; packet_poll(packet) == PacketState::kCopying; ++polls)
    if (polls > 64) sched_yield();
  return packet->state;
}

void packet_close(Packet* packet) {
  if (packet->host == nullptr) return;
  check_forget(packet);
  copy_ends(packet);
  // Also a failed packet may have copies under way in its memory.
  if (packet->state == PacketState::kCopying || packet->state == PacketState::kFailed)
    while (gpu::event_query(*packet->device, packet->event) == gpu::State::kPending) sched_yield();
  plan_end(packet, false);
  if (packet->pageable) memory::blocks.release(packet->host);
  else gpu::pinned_release(packet->host);
  gpu::event_release(*packet->device, packet->event);
  release_types(packet);
  *packet = {};
}

}  // namespace resil::staging
