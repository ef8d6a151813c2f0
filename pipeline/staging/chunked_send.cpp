// SPDX-License-Identifier: Apache-2.0
//
// The sender's side of chunked large messages: copies down chunk by chunk, the head in its turn among the messages of
// its send queue, the chunks as soon as they are down. See chunked.h.

#include <string.h>

#include "pipeline/gpu/pinned.h"
#include "pipeline/staging/chunked_peer.h"
#include "pipeline/staging/staging.h"
#include "shim/abi/backend.h"
#include "shim/call/runtime.h"
#include "shim/runtime/mailbox.h"
#include "shim/runtime/pool.h"
#include "shim/tables/tables.h"

namespace resil::staging {

namespace {

constinit Sending* sendings;
memory::Pool<Sending, &Sending::next, 16, 4096> pool;

/// Sizes that a head could have, of ordinary messages so far, in units of kHeadUnit: RESIL_STAGE_CHUNK's largest value
/// has as many.
constexpr uint64_t kMostSizes = (uint64_t{64} << 20) / 8 / kHeadUnit;
constinit uint64_t sizes_sent[kMostSizes / 64];

uint64_t size_index(uint64_t bytes) { return (bytes - chunk_bytes / 8) / kHeadUnit; }

/// Chunks are ranges of the buffer, and the head ends where an element does, whatever type receives it: MPICH does not
/// deliver parts of elements.
bool can_be_cut(const Packet& packet) {
  const TypeMap* type = packet.type;
  const auto width = type != nullptr ? type->basic.width : 0;
  return width > 0 && kHeadUnit % static_cast<uint64_t>(width) == 0 && !type->padded &&
         packet.layout == Layout::kPacked && !packet.pageable && type->run_count == 1 &&
         static_cast<uint64_t>(packet.high - packet.low) == packet.bytes;
}

void release(Sending* sending) {
  gpu::Device& device = *sending->message->packet.device;
  chunked_peer_leave(*sending);
  for (const gpu::EventHandle event : sending->events)
    if (event != 0) gpu::event_release(device, event);
  gpu::pinned_release(sending->head);
  pool.release(sending);
}

/// The head's copy and the chunks', each with its event.
bool copies_begin(Sending& sending) {
  const Packet& packet = sending.message->packet;
  const Cut& cut = sending.grant->cut;
  gpu::Device& device = *packet.device;
  const char* from = packet.buffer + packet.low;
  auto copy = [&](uint32_t event, char* to, uint64_t begin, uint64_t bytes) {
    return gpu::copy_down(device, to, from + begin, bytes) &&
           gpu::event_record(device, gpu::StreamRole::kDown, sending.events[event]);
  };
  const uint32_t downs = cut.peer != 0 ? 0 : cut.chunks;
  for (uint32_t i = 0; i <= downs; ++i)
    if ((sending.events[i] = gpu::event_acquire(device)) == 0) return false;
  if ((sending.head = static_cast<char*>(gpu::pinned_acquire(device, cut.head))) == nullptr) return false;
  memcpy(sending.head + cut.in_head(), &cut.secret, sizeof(cut.secret));
  bool good = copy(0, sending.head, 0, cut.in_head());
  for (uint32_t i = 0; good && i < downs; ++i)
    good = copy(i + 1, packet.host + cut.begin(i), cut.begin(i), cut.size(i));
  return good;
}

gpu::State state_of(const Sending& sending, uint32_t event, bool wait) {
  const gpu::Device& device = *sending.message->packet.device;
  gpu::State state;
  while ((state = gpu::event_query(const_cast<gpu::Device&>(device), sending.events[event])) == gpu::State::kPending &&
         wait)
    packet_copying(&sending.message->packet);
  if (state == gpu::State::kPending) packet_copying(&sending.message->packet);
  return state;
}

/// Gives the library what is down. True: it was asked for something.
bool advance_one(Sending& sending, bool wait) {
  const Cut& cut = sending.grant->cut;
  bool asked = false;
  while (sending.posted < cut.chunks) {
    const uint32_t i = sending.posted;
    const gpu::State state = cut.peer != 0 ? chunked_peer_state(sending, wait) : state_of(sending, i + 1, wait);
    if (state == gpu::State::kPending) break;
    const bool good = state == gpu::State::kDone && !sending.message->failed;
    if (!good && !sending.message->failed) copy_failed(*sending.message, cut.peer != 0 ? "across" : "down");
    // Nothing in place of data that could not be had: the receiver is not to wait for it.
    const void* data = cut.peer != 0 ? static_cast<const void*>(&sending.says.total) : sending.host + cut.begin(i);
    if (!mailbox::send(data, good ? cut.wire(i) : 0, sending.to, chunked_tag(sending.grant->number, i + 1),
                       &sending.requests[i])) {
      sending.message->failed = true;
      sending.requests[i] = backend->request_null();
    }
    ++sending.posted;
    asked = true;
  }
  while (sending.sent < sending.posted) {
    asked = true;
    if (sending.requests[sending.sent] != backend->request_null() && !backend->test(&sending.requests[sending.sent]))
      break;
    ++sending.sent;
  }
  return asked;
}

/// A message of `bytes` bytes follows that has not been cut.
void announce_itself(Thread& thread, const MessageEnvelope& to, uint64_t bytes) {
  const uint64_t least = chunk_bytes / 8;
  if (bytes % kHeadUnit != 0 || bytes < least || bytes >= 2 * least) return;
  sizes_sent[size_index(bytes) / 64] |= uint64_t{1} << size_index(bytes) % 64;
  if (chunked_held == 0) return;
  const int world_rank = chunked_world_rank(thread, to.comm, to.peer);
  Grant* grant = world_rank >= 0 ? chunked_grant_with_head(world_rank, bytes) : nullptr;
  if (grant == nullptr) return;
  grant->spoiled = true;
  if (grant->free)  // else as soon as it is: a head that is under way has been announced, and goes before this message
    chunked_give_up(grant);
}

}  // namespace

bool chunked_send_begins(Thread& thread, Message* op, SendMode mode, const MessageEnvelope& to, MessagePart* part) {
  if (!op->staged || op->packet.bytes < 2 * chunk_bytes || mode == SendMode::kBuffered || !chunked_usable() ||
      !can_be_cut(op->packet))
    return false;
  const int world_rank = chunked_world_rank(thread, to.comm, to.peer);
  Grant* grant = world_rank >= 0 ? chunked_grant(thread, world_rank, op->packet.bytes) : nullptr;
  if (grant != nullptr && grant->cut.peer != 0 && !chunked_peer_open(*grant, *op->packet.device)) {
    chunked_refuse(grant);
    return false;
  }
  Sending* sending = grant != nullptr ? pool.allocate() : nullptr;
  if (sending == nullptr) return false;
  *sending = {};
  sending->message = op;
  sending->grant = grant;
  sending->to = world_rank;
  sending->host = op->packet.host;
  sending->says = {op->packet.bytes, comm_lookup(thread, to.comm)->ring->id, to.tag, 0};
  const bool good = copies_begin(*sending);
  op->packet.state = gpu::event_record(*op->packet.device, gpu::StreamRole::kDown, op->packet.event)
                         ? PacketState::kCopying
                         : PacketState::kFailed;
  if (!good) {  // in one piece it says why
    packet_wait(&op->packet);
    release(sending);
    return false;
  }
  grant->free = grant->returned = false;
  grant->used = true;
  if (grant->cut.peer != 0) chunked_peer_defer(*sending);
  op->chunked = sending;
  op->pieces = 2;
  *part = {sending->head, static_cast<int64_t>(grant->cut.head), backend->staging->byte_type()};
  return true;
}

PacketState chunked_head(const Message& op, bool wait) {
  switch (state_of(*op.chunked, 0, wait)) {
    case gpu::State::kPending: return PacketState::kCopying;
    case gpu::State::kDone: return PacketState::kReady;
    case gpu::State::kFailed: break;
  }
  return PacketState::kFailed;
}

void chunked_announce(Message& op) {
  Sending& sending = *op.chunked;
  sending.announced = true;
  if (!mailbox::send(&sending.says, sizeof(sending.says), sending.to, chunked_tag(sending.grant->number, 0),
                     &sending.announcement))
    op.failed = true;
}

void chunked_head_started(Thread&, Message* op) {
  Sending* sending = op->chunked;
  if (op->failed) {
    sending->grant->returned = !sending->announced;
    op->pieces = 1;
    packet_wait(&op->packet);
    return;
  }
  chunked_count_sent(sending->grant->cut);
  sending->next = sendings;
  sendings = sending;
  work_begins();
}

void chunked_release(Message* op) {
  Grant* grant = op->chunked->grant;
  release(op->chunked);
  op->chunked = nullptr;
  grant->used = false;
  chunked_loosen(grant);
}

bool chunked_sends_advance(Thread& thread, bool wait) {
  bool asked = false;
  for (Sending** place = &sendings; *place != nullptr;) {
    Sending* sending = *place;
    asked = advance_one(*sending, wait) || asked;
    if (sending->sent < sending->grant->cut.chunks ||
        (sending->announcement != backend->request_null() && !backend->test(&sending->announcement))) {
      place = &sending->next;
      continue;
    }
    *place = sending->next;
    Message* op = sending->message;
    packet_wait(&op->packet);  // its event is behind the last chunk's
    chunked_peer_leave(*sending);
    work_ends();
    finish(thread, op);
  }
  return asked;
}

void chunked_give_up(Grant* grant) {
  const Announcement given_up = {grant->cut.head, 0, 0, 0};
  uint64_t request;
  if (mailbox::send(&given_up, sizeof(given_up), grant->to, chunked_tag(grant->number, 0), &request))
    backend->messages->wait(&request, nullptr);  // a few bytes, whose receive is posted
  chunked_forget(grant);
}

void chunked_wait_left(Message& op) {
  packet_wait(&op.packet);
  if (op.chunked != nullptr && op.chunked->grant->cut.peer != 0) chunked_peer_state(*op.chunked, true);
}

bool chunked_size_sent(uint64_t bytes) {
  return (sizes_sent[size_index(bytes) / 64] >> size_index(bytes) % 64 & 1) != 0;
}

void chunked_before_send(Thread& thread, const Half& half) {
  if (chunk_bytes == 0 || half.count <= 0 || half.envelope.peer < 0) return;
  announce_itself(thread, half.envelope,
                  static_cast<uint64_t>(half.count) * static_cast<uint64_t>(type_size(thread, half.type)));
}

void chunked_starting(Event& e) {
  if (chunk_bytes == 0) return;
  for (int64_t i = 0; i < e.request_count; ++i) {
    const uint64_t* words = request_cookies(*e.thread, request_handle(e.requests, i));
    const int64_t index = words != nullptr ? request_index(words) : -1;
    if (index < 0) continue;
    const ring::Request& request = runtime.requests[index];
    if (request.kind == static_cast<uint8_t>(ring::RequestKind::kSend) && !(request.flags & ring::kPartitioned))
      announce_itself(*e.thread, {runtime.comms[request.comm].handle, request.peer, request.tag}, request.bytes);
  }
}

}  // namespace resil::staging
