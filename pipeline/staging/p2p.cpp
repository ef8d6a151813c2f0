// SPDX-License-Identifier: Apache-2.0
//
// Point-to-point calls with device buffers: which is which, and those that do not block. See message.h.

#include "pipeline/staging/p2p.h"

#include "pipeline/staging/blocking.h"
#include "pipeline/staging/chunked.h"
#include "pipeline/staging/staging.h"
#include "shim/abi/backend.h"
#include "shim/call/thread.h"
#include "shim/runtime/accelerators/host_memory.h"
#include "shim/runtime/block_pool.h"
#include "shim/runtime/staged.h"
#include "shim/tables/tables.h"
#include "shim/tables/type_maps.h"

namespace resil::staging {

namespace {

constinit std::atomic<gpu::Device*> device_seen;

enum class Handling : uint8_t {
  kNone,
  kSend,
  kStartSend,
  kReceive,
  kStartReceive,
  kTake,
  kStartTake,
  kExchange,
  kReplace,
  kStartExchange,
  kStartReplace
};

struct Plan {
  Handling handling;
  SendMode mode;
};

constexpr auto kPlans = by_call([](const CallInfo& info) -> Plan {
  if (info.initiation == Initiation::kPersistent) return {Handling::kNone, SendMode::kStandard};  // persistent.cpp
  const bool starts = info.initiation == Initiation::kNonblocking;
  switch (info.call_class) {
    case CallClass::kSend: return {starts ? Handling::kStartSend : Handling::kSend, info.mode};
    case CallClass::kReceive: return {starts ? Handling::kStartReceive : Handling::kReceive, SendMode::kStandard};
    case CallClass::kMatchedReceive: return {starts ? Handling::kStartTake : Handling::kTake, SendMode::kStandard};
    case CallClass::kSendReceive: return {starts ? Handling::kStartExchange : Handling::kExchange, SendMode::kStandard};
    case CallClass::kSendReceiveReplace:
      return {starts ? Handling::kStartReplace : Handling::kReplace, SendMode::kStandard};
    case CallClass::kLocal:
    case CallClass::kLifecycle:
    case CallClass::kProbe:  // no buffer
    case CallClass::kMatchedProbe:
    case CallClass::kPartitionedSend:  // counted as passed
    case CallClass::kPartitionedReceive:
    case CallClass::kPartitionReady:
    case CallClass::kPartitionArrived:
    case CallClass::kBuffer:
    case CallClass::kCompletion:  // wait.cpp
    case CallClass::kGetStatus:
    case CallClass::kRequestFree:
    case CallClass::kCancel:
    case CallClass::kStart:
    case CallClass::kGeneralizedRequest:
    case CallClass::kCollective:  // collective.cpp
    case CallClass::kComm:
    case CallClass::kWindow:  // counted as passed
    case CallClass::kRma:
    case CallClass::kFile: break;
  }
  return {Handling::kNone, SendMode::kStandard};
});

/// The basic datatype of that kind: the last answer holds, programs use few.
uint64_t basic_handle(const BasicType& basic) {
  static constinit thread_local BasicType last __attribute__((tls_model("initial-exec"))) = {};
  static constinit thread_local uint64_t handle __attribute__((tls_model("initial-exec"))) = 0;
  if (last != basic) {
    handle = backend->staging->basic_handle(basic);
    last = basic;
  }
  return handle;
}

/// How a message with this type is posted, so that its signature is the program's own (MPI 4.0, section 3.3.1).
enum class PostedAs : uint8_t {
  kItself,  // data without gaps: the program's count and type fit the packed copy as they are
  kBasic,  // packed: as many of the basic type that all of it consists of
  kShadow,  // mixed types: with the buffer's layout, and the program's own count and type
};

PostedAs posting_of(const TypeMap& map, int64_t count) {
  if (map.run_count <= 1 && map.low == 0 && map.extent == static_cast<int64_t>(map.size)) return PostedAs::kItself;
  if (map.basic.width == 0 || map.padded || basic_handle(map.basic) == 0) return PostedAs::kShadow;
  return backend->staging->countable(static_cast<int64_t>(type_bytes(map, count) / map.basic.width))
             ? PostedAs::kBasic
             : PostedAs::kShadow;
}

/// Before anything is asked of MPI or a runtime. The data of a derived type may lie elsewhere than its buffer
/// (MPI_BOTTOM): that is looked at once device buffers have been seen.
bool surely_host(const void* buffer) {
  if (buffer == nullptr || gpu::seen()) return false;
  return host_memory_known(buffer, 1) || host_memory_certain(buffer, 1);
}

bool start_send_call(Event& e, SendMode mode) {
  const Half half = send_half(e);
  MessagePart part;
  Message* op = open_message(*e.thread, half, true, &part);
  if (op == nullptr) {
    if (send_queue_busy(half.envelope)) send_queue_flush(*e.thread, half.envelope);
    chunked_before_send(*e.thread, half);
    return false;
  }
  e.result = start_send(*e.thread, op, mode, part, half.envelope);
  if (e.result == 0) backend->staging->set_request(e.requests, 0, op->handle);
  if (e.result != 0 || request_is_shared(op->handle)) {  // or complete at once
    message_retire(*e.thread, op);
    return true;
  }
  message_enter(op);
  message_note_started(op);
  return true;
}

/// After the receive has been posted: `result` is MPI's code.
void receive_started(Event& e, Message* op, int result) {
  e.result = result;
  if (result != 0) return message_retire(*e.thread, op);
  backend->staging->set_request(e.requests, 0, op->handle);
  if (request_is_shared(op->handle)) {  // complete at once, and nobody can say how much came
    if (op->staged && !copy_up(*e.thread, *op, op->packet.bytes))
      e.result = backend->staging->raise(op->comm, backend->staging->error_other);
    return message_retire(*e.thread, op);
  }
  message_enter(op);
  wire_append(op);
}

bool start_receive_call(Event& e) {
  Half half = receive_half(e);
  MessagePart part;
  Message* op = open_receive(*e.thread, half, &part);
  if (op == nullptr) return false;
  bool decided = false;
  if (!decide(e, &half, &decided)) {
    message_retire(*e.thread, op);
    return false;
  }
  tell_posting(e, op);
  receive_started(e, op, backend->staging->irecv(part, half.envelope, &op->handle));
  return true;
}

bool start_take_call(Event& e) {
  const Half half = receive_half(e);
  MessagePart part;
  Message* op = open_receive(*e.thread, half, &part);
  if (op == nullptr) return false;
  chunked_matched(e, op);
  tell_posting(e, op);
  receive_started(e, op, backend->staging->imrecv(part, e.message, &op->handle));
  return true;
}

/// The receive's request is the program's, and stands for both.
bool start_exchange_call(Event& e, bool in_place) {
  Thread& thread = *e.thread;
  const Half send = send_half(e);
  Half receive = receive_half(e);
  if (in_place) receive.buffer = send.buffer, receive.count = send.count, receive.type = send.type;
  MessagePart send_part, receive_part;
  Message* sender = open_message(thread, send, true, &send_part);
  Message* receiver = open_receive(thread, receive, &receive_part);
  if (sender == nullptr && send_queue_busy(send.envelope)) send_queue_flush(thread, send.envelope);
  if (sender == nullptr && receiver == nullptr) {
    chunked_before_send(thread, send);
    return false;
  }
  // The other half may be in host memory, or with MPI_PROC_NULL: posted as it is.
  if (receiver == nullptr) {
    receiver = message_take();
    receive_part = {const_cast<void*>(receive.buffer), receive.count, receive.type};
  }
  if (sender == nullptr) {
    sender = message_take();
    send_part = {const_cast<void*>(send.buffer), send.count, send.type};
    if (sender != nullptr && in_place && !receiver->staged && !copy_of(thread, *sender, &send_part)) {
      message_retire(thread, sender);
      sender = nullptr;
    }
  }
  if (sender == nullptr || receiver == nullptr) {
    if (sender != nullptr) message_retire(thread, sender);
    if (receiver != nullptr) message_retire(thread, receiver);
    return false;
  }
  bool decided = false;
  decide(e, &receive, &decided);
  tell_posting(e, receiver);
  sender->sends = true;
  sender->comm = receiver->comm = e.comm_handle;
  const bool nothing = receive.envelope.peer == ring::kProcNull;
  receiver->persistent = nothing;
  e.result = nothing ? backend->staging->receive_nothing(receive.envelope, &receiver->handle)
                     : backend->staging->irecv(receive_part, receive.envelope, &receiver->handle);
  if (e.result == 0) {
    const uint64_t request = receiver->handle;
    e.result = start_send(thread, sender, SendMode::kStandard, send_part, send.envelope);
    if (e.result != 0) {
      uint64_t unwanted = request;
      backend->messages->cancel(&unwanted);
    }
  }
  if (e.result == 0 && in_place && sender->staged)  // what comes goes where that data is
    chunked_wait_left(*sender);
  if (e.result != 0) {
    message_retire(thread, sender);
    message_retire(thread, receiver);
    return true;
  }
  backend->staging->set_request(e.requests, 0, receiver->handle);
  message_enter(receiver);
  if (request_is_shared(sender->handle)) {
    message_retire(thread, sender);
  } else {
    message_note_started(sender);
    sender->owner = receiver;
    receiver->parts.store(2, std::memory_order_relaxed);
  }
  wire_append(receiver);
  return true;
}

bool intercept_planned(Event& e, const Plan& plan) {
  switch (plan.handling) {
    case Handling::kSend: return blocking_send(e, plan.mode);
    case Handling::kStartSend: return start_send_call(e, plan.mode);
    case Handling::kReceive:
    case Handling::kTake: return blocking_receive(e);
    case Handling::kStartReceive: return start_receive_call(e);
    case Handling::kStartTake: return start_take_call(e);
    case Handling::kExchange: return blocking_exchange(e, false);
    case Handling::kReplace: return blocking_exchange(e, true);
    case Handling::kStartExchange: return start_exchange_call(e, false);
    case Handling::kStartReplace: return start_exchange_call(e, true);
    case Handling::kNone: return false;
  }
  return false;
}

}  // namespace

gpu::Device* last_device() { return device_seen.load(std::memory_order_relaxed); }

Half send_half(const Event& e) {
  // given_count: what a module below may have changed; calls that send and receive have none.
  const int64_t count = e.attributes & kCallBothWays ? e.send.count : e.given_count;
  return {e.given_send, count, e.send.type, {e.comm_handle, e.peer, e.tag}, e.id, e.comm};
}

Half receive_half(const Event& e) {
  if (e.attributes & kCallBothWays)
    return {e.given_receive, e.receive.count, e.receive.type, {e.comm_handle, e.receive_peer, e.receive_tag}, e.id,
            e.comm};
  return {e.given_receive, e.given_count, e.receive.type, {e.comm_handle, e.peer, e.tag}, e.id, e.comm};
}

Message* open_message(Thread& thread, const Half& half, bool sends, MessagePart* part) {
  if (half.count <= 0 || half.envelope.peer == ring::kProcNull || surely_host(half.buffer)) return nullptr;
  const TypeMap* map = type_map(thread, half.type);
  const PostedAs posted = map != nullptr ? posting_of(*map, half.count) : PostedAs::kShadow;
  const Layout layout = posted == PostedAs::kShadow ? Layout::kShadow : Layout::kPacked;
  Packet packet;
  // Without pinned memory it takes ordinary memory: to wait for messages that have some could be to wait for ever.
  const Refusal refusal = packet_open(&packet, half.buffer, half.count, map, layout);
  if (refusal == Refusal::kNone && packet.device != last_device()) {
    device_seen.store(packet.device, std::memory_order_relaxed);
    if (chunked_granted != 0) chunked_devices_changed();
  }
  if (refusal != Refusal::kNone) {
    count_refused(refusal, map != nullptr ? type_bytes(*map, half.count) : 0);
    return nullptr;
  }
  Message* op = message_take();
  if (op == nullptr) {
    packet_close(&packet);
    count_uncovered(Uncovered::kOther, type_bytes(*map, half.count));
    return nullptr;
  }
  packet.of_message = true;
  packet.peer = half.comm != nullptr ? comm_world_rank(*half.comm, half.envelope.peer) : -1;
  packet.tag = half.envelope.tag >= 0 ? half.envelope.tag : -1;
  op->packet = packet;
  op->staged = true;
  op->sends = sends;
  op->bytes = packet.bytes;
  op->comm = half.envelope.comm != 0 ? half.envelope.comm : backend->comm_world();
  op->call = half.call;
  op->peer = half.envelope.peer;
  op->tag = half.envelope.tag;
  char* given = packet_given(packet);
  if (posted == PostedAs::kBasic)
    *part = {given, static_cast<int64_t>(packet.bytes / map->basic.width), basic_handle(map->basic)};
  else *part = {given, half.count, half.type};
  if (sends) wire_prepare(*op, part);
  count_staged(Path::kMessage, packet.bytes);
  if (chunk_bytes != 0 && packet.bytes >= 2 * chunk_bytes && chunked_usable()) chunked_notes(thread);
  return op;
}

Message* open_receive(Thread& thread, const Half& half, MessagePart* part) {
  Message* op = open_message(thread, half, false, part);
  if (op == nullptr && (op = chunked_track(thread, half)) != nullptr)
    *part = {const_cast<void*>(half.buffer), half.count, half.type};
  return op;
}

bool decide(Event& e, Half* receive, bool* decided) {
  if (staged_replay == nullptr) [[likely]]
    return true;
  const Recorded was = staged_replay->receive(e, &receive->envelope.peer, &receive->envelope.tag);
  *decided = was == Recorded::kFrom;
  return was != Recorded::kNobody;
}

bool copy_of(Thread& thread, Message& op, MessagePart* part) {
  const uint64_t bytes = static_cast<uint64_t>(part->count) * static_cast<uint64_t>(type_size(thread, part->type));
  op.scratch = memory::blocks.allocate(bytes);
  const TypeMap* map = type_map(thread, part->type);
  if (op.scratch == nullptr ||
      (map != nullptr ? type_pack(*map, part->buffer, part->count, 0, bytes, op.scratch) != bytes
                      : !backend->staging->pack_first(*part, bytes, op.scratch)))
    return false;
  *part = {op.scratch, static_cast<int64_t>(bytes), backend->staging->byte_type()};
  return true;
}

bool begin_down(Message& op) {
  if (packet_down(&op.packet) != PacketState::kFailed) return true;
  copy_failed(op, "down");
  return false;
}

bool wait_down(Message& op) {
  if (packet_wait(&op.packet) != PacketState::kFailed) {
    wire_departs(op);
    return true;
  }
  copy_failed(op, "down");
  return false;
}

bool copy_up(Thread&, Message& op, uint64_t bytes) {
  bytes = bytes < op.packet.bytes ? bytes : op.packet.bytes;
  op.bytes = bytes;
  if (bytes == 0) return true;
  wire_arrived(op, bytes);
  if (packet_up(&op.packet, bytes) != PacketState::kFailed && packet_wait(&op.packet) != PacketState::kFailed)
    return true;
  copy_failed(op, "up");
  return false;
}

int start_send(Thread& thread, Message* op, SendMode mode, MessagePart part, const MessageEnvelope& to) {
  if (chunked_send_begins(thread, op, mode, to, &part)) {
    op->persistent = op->in_send_queue = true;
    op->send_queue = send_queue_of(to);
    return backend->staging->send_init(mode, part, to, &op->handle);
  }
  chunked_before_send(thread, {part.buffer, part.count, part.type, to});
  if (op->staged && !begin_down(*op)) return backend->staging->raise(to.comm, backend->staging->error_other);
  // In the call itself: a buffered send, whose buffer must be found full now; and while another thread may be inside a
  // blocking call, where nobody would post what waits here (see also send_queue_append).
  const bool now = !op->staged || mode == SendMode::kBuffered || (several_threads() && somebody_blocks());
  if (!now) {
    op->persistent = op->in_send_queue = true;
    op->send_queue = send_queue_of(to);
    return backend->staging->send_init(mode, part, to, &op->handle);
  }
  if (send_queue_busy(to)) send_queue_flush(thread, to);
  if (op->staged && !wait_down(*op)) return backend->staging->raise(to.comm, backend->staging->error_other);
  return backend->staging->isend(mode, part, to, &op->handle);
}

bool p2p_handles(CallId id) { return kPlans[id].handling != Handling::kNone; }

bool p2p_replace(Event& e) {
  if (!active()) return false;
  return intercept_planned(e, kPlans[e.id]);
}

}  // namespace resil::staging
