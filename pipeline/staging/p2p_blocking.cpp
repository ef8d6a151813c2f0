// SPDX-License-Identifier: Apache-2.0
//
// Blocking messages with device buffers. While nothing else is under way the library's own blocking call does the
// waiting; else tests, between which everything else is looked after.

#include "pipeline/staging/blocking.h"
#include "pipeline/staging/chunked.h"
#include "pipeline/staging/p2p.h"
#include "pipeline/staging/staging.h"
#include "shim/abi/backend.h"
#include "shim/call/dispatch.h"
#include "shim/call/thread.h"
#include "shim/runtime/staged.h"

namespace resil::staging {

namespace {

int failure(uint64_t comm) { return backend->staging->raise(comm, backend->staging->error_other); }

/// Completes a request of staging's own; `status` may be null. `decided`: verify says who sends, and how long to wait.
int complete(Event& e, uint64_t* request, void* status, const MessageEnvelope* decided = nullptr) {
  int result = 0;
  uint32_t round = 0;
  uint64_t began = 0;
  wait_while_working(*e.thread, [&] {
    int flag = 0;
    if (decided != nullptr) staged_replay->waits(e, decided->peer, round++, &began);
    result = backend->messages->test(request, &flag, status);
    return flag != 0 || result != 0;
  });
  return result;
}

uint64_t received(Message& op, const void* status) {
  StatusInfo info{};
  backend->messages->status_read(status, 0, &info);
  op.peer = info.source;
  op.tag = info.tag;
  return info.cancelled ? 0 : info.bytes;
}

int send_now(Event& e, SendMode mode, const MessagePart& part, const MessageEnvelope& to) {
  begin_blocking(e);
  if (!under_way() || mode == SendMode::kBuffered) return backend->staging->send(mode, part, to);
  end_blocking(e);
  uint64_t request;
  const int result = backend->staging->isend(mode, part, to, &request);
  return result != 0 ? result : complete(e, &request, nullptr);
}

/// The status that tells how much came: the program's, or room of the event's when it wants none.
void* status_of(Event& e) {
  give_statuses(e);
  return e.given_statuses;
}

int receive_now(Event& e, const MessagePart& part, const MessageEnvelope& from, bool decided) {
  const bool takes = e.comm_handle == 0;  // MPI_Mrecv: the message says from where
  void* status = e.given_statuses;
  begin_blocking(e);
  if (!under_way() && !decided)
    return takes ? backend->staging->mrecv(part, e.message, status) : backend->staging->recv(part, from, status);
  end_blocking(e);
  uint64_t request;
  const int result =
      takes ? backend->staging->imrecv(part, e.message, &request) : backend->staging->irecv(part, from, &request);
  return result != 0 ? result : complete(e, &request, status, decided ? &from : nullptr);
}

/// Both halves of an exchange at once. `failed`: the send's copy.
int exchange_now(Event& e, const MessagePart& send_part, const MessageEnvelope& to, Message* sender,
                 const MessagePart& receive_part, const MessageEnvelope& from) {
  Thread& thread = *e.thread;
  uint64_t receiving, sending;
  // A receive from MPI_PROC_NULL does not block; MPICH's tests of one give a wrong status.
  const bool nothing = from.peer == ring::kProcNull;
  if (const int code = nothing ? backend->staging->recv(receive_part, from, e.given_statuses)
                               : backend->staging->irecv(receive_part, from, &receiving);
      code != 0)
    return code;
  flush(thread);
  int result = sender != nullptr && !wait_down(*sender) ? failure(to.comm) : 0;
  if (sender != nullptr && result == 0) tell_sending(e, sender);
  if (result == 0) result = backend->staging->isend(SendMode::kStandard, send_part, to, &sending);
  if (result != 0) {
    if (!nothing) backend->messages->cancel(&receiving);
    return result;
  }
  int sent = 0;
  bool sending_done = false, receiving_done = nothing;
  wait_while_working(thread, [&] {
    int flag = 0;
    if (!receiving_done) {
      result = backend->messages->test(&receiving, &flag, e.given_statuses);
      receiving_done = flag != 0 || result != 0;
    }
    if (!sending_done) {
      flag = 0;
      sent = backend->messages->test(&sending, &flag, nullptr);
      sending_done = flag != 0 || sent != 0;
    }
    return sending_done && receiving_done;
  });
  return result != 0 ? result : sent;
}

/// Is the message of this call finished? The library may be asked about it, or completes it here and now. `result`:
/// what it says then; 0 before.
bool watched(Thread& thread, Message& op, void* status, int* result) {
  if (finished(op) || op.closed || may_ask(op) || !wire_claim(&op)) return finished(op);
  int flag = 0;
  *result = backend->messages->test(&op.handle, &flag, status);
  if (flag == 0 && *result == 0) {
    wire_append(&op);
    return false;
  }
  op.closed = true;
  StatusInfo info = {ring::kNoPeer, 0, 0, false, 0};
  if (!op.sends && (*result == 0 || backend->messages->error_kind(*result) == ErrorKind::kTruncated))
    backend->messages->status_read(status, 0, &info);
  wire_done(thread, &op, info);
  return finished(op);
}

/// The message is finished: what the library says of it, and then resil.
int end_of(Message& op, void* status, Event& e, int result) {
  int flag = 0;
  if (!op.closed) result = backend->messages->test(&op.handle, &flag, status);
  if (op.came != 0) backend->staging->set_bytes(e, 0, op.came);
  if (result == 0 && op.failed) return backend->staging->raise(op.comm, error_of(op));
  return result;
}

/// As a nonblocking one that is waited for: a send that can be cut.
bool send_cut(Event& e, Message* op, SendMode mode, MessagePart part, const MessageEnvelope& to) {
  Thread& thread = *e.thread;
  if (!chunked_send_begins(thread, op, mode, to, &part)) return false;
  e.result = backend->staging->send_init(mode, part, to, &op->handle);
  if (e.result == 0) {
    op->persistent = op->in_send_queue = true;
    op->send_queue = send_queue_of(to);
    send_queue_append(thread, op);
    wait_while_working(thread, [&] { return watched(thread, *op, nullptr, &e.result); });
    if (op->failed && e.result == 0) e.result = backend->staging->raise(to.comm, error_of(*op));
    backend->staging->free(&op->handle);
  }
  return true;
}

/// A receive that may get a head.
void receive_watched(Event& e, Message* op, const MessagePart& part, const MessageEnvelope& from) {
  Thread& thread = *e.thread;
  if (e.comm_handle == 0) {
    chunked_matched(e, op);
    e.result = backend->staging->imrecv(part, e.message, &op->handle);
  } else {
    e.result = backend->staging->irecv(part, from, &op->handle);
  }
  if (e.result != 0) return;
  wire_append(op);
  int result = 0;
  wait_while_working(thread, [&] { return watched(thread, *op, e.given_statuses, &result); });
  e.result = end_of(*op, e.given_statuses, e, result);
}

/// Both halves of an exchange as messages that are waited for; either may be in host memory. False: no memory, nothing
/// has been done.
bool exchange_watched(Event& e, const Half& send, Message*& sender, MessagePart send_part, const Half& receive,
                      Message*& receiver, const MessagePart& receive_part, bool in_place) {
  Thread& thread = *e.thread;
  const bool sends = send.envelope.peer != ring::kProcNull, receives = receive.envelope.peer != ring::kProcNull;
  if (receiver == nullptr && receives && (receiver = message_take()) != nullptr) receiver->comm = e.comm_handle;
  if (sender == nullptr && sends && (sender = message_take()) != nullptr) {
    sender->sends = true;
    sender->comm = e.comm_handle;
    if (in_place && receives && !copy_of(thread, *sender, &send_part)) return false;
  }
  if ((sends && sender == nullptr) || (receives && receiver == nullptr)) return false;
  e.result = receives ? backend->staging->irecv(receive_part, receive.envelope, &receiver->handle)
                      : backend->staging->recv(receive_part, receive.envelope, e.given_statuses);
  if (e.result == 0 && sends) {
    e.result = start_send(thread, sender, SendMode::kStandard, send_part, send.envelope);
    if (e.result != 0 && receives) backend->messages->cancel(&receiver->handle);
  }
  if (e.result != 0) return true;
  if (in_place && sends && sender->staged)  // what comes goes where that data is
    chunked_wait_left(*sender);
  if (receives) wire_append(receiver);
  if (sends && sender->in_send_queue) send_queue_append(thread, sender);
  else if (sends) wire_append(sender);
  int sent = 0, received = 0;
  wait_while_working(thread, [&] {
    const bool sending = sends && !watched(thread, *sender, nullptr, &sent);
    return (!receives || watched(thread, *receiver, e.given_statuses, &received)) && !sending;
  });
  if (sends && sender->failed && sent == 0) sent = backend->staging->raise(send.envelope.comm, error_of(*sender));
  if (sends && sender->persistent) {
    backend->staging->free(&sender->handle);
  } else if (sends && !sender->closed) {
    int flag = 0;
    const int result = backend->messages->test(&sender->handle, &flag, nullptr);
    sent = sent != 0 ? sent : result;
  }
  if (receives) e.result = end_of(*receiver, e.given_statuses, e, received);
  e.result = e.result != 0 ? e.result : sent;
  return true;
}

}  // namespace

bool blocking_send(Event& e, SendMode mode) {
  Thread& thread = *e.thread;
  const Half half = send_half(e);
  MessagePart part;
  Message* op = open_message(thread, half, true, &part);
  if (op == nullptr) {
    begin_blocking(e);
    chunked_before_send(thread, half);
    return false;
  }
  if (send_cut(e, op, mode, part, half.envelope)) {
    message_retire(thread, op);
    return true;
  }
  chunked_before_send(thread, half);
  if (begin_down(*op) && wait_down(*op)) e.result = send_now(e, mode, part, half.envelope);
  else e.result = failure(half.envelope.comm);
  message_retire(thread, op);
  return true;
}

bool blocking_receive(Event& e) {
  Thread& thread = *e.thread;
  Half half = receive_half(e);
  MessagePart part;
  Message* op = open_receive(thread, half, &part);
  if (op == nullptr) {
    begin_blocking(e);
    return false;
  }
  tell_posting(e, op);
  void* status = status_of(e);
  if (chunked_granted != 0) {
    receive_watched(e, op, part, half.envelope);
    message_retire(thread, op);
    return true;
  }
  bool decided = false;
  if (e.comm_handle != 0) decide(e, &half, &decided);
  e.result = receive_now(e, part, half.envelope, decided);
  // A message that was too long has filled the buffer (and says so); another error says nothing about what came.
  const bool came = e.result == 0 || backend->messages->error_kind(e.result) == ErrorKind::kTruncated;
  if (came && !copy_up(thread, *op, received(*op, status))) e.result = failure(op->comm);
  message_retire(thread, op);
  return true;
}

bool blocking_exchange(Event& e, bool in_place) {
  Thread& thread = *e.thread;
  const Half send = send_half(e);
  Half receive = receive_half(e);
  if (in_place) receive.buffer = send.buffer, receive.count = send.count, receive.type = send.type;
  MessagePart send_part = {const_cast<void*>(send.buffer), send.count, send.type};
  MessagePart receive_part = {const_cast<void*>(receive.buffer), receive.count, receive.type};
  Message* sender = open_message(thread, send, true, &send_part);
  Message* receiver = open_receive(thread, receive, &receive_part);
  if (sender == nullptr && receiver == nullptr) {
    begin_blocking(e);
    chunked_before_send(thread, send);
    return false;
  }
  if (in_place && (sender == nullptr || receiver == nullptr)) {
    // One half with MPI_PROC_NULL is nothing; else memory has run out for one of them, and the library does it all.
    const bool alone = send.envelope.peer == ring::kProcNull || receive.envelope.peer == ring::kProcNull;
    const bool host = receiver != nullptr && !receiver->staged;
    if (!alone && !host) {
      message_retire(thread, sender != nullptr ? sender : receiver);
      begin_blocking(e);
      return false;
    }
  }
  bool decided = false;
  decide(e, &receive, &decided);
  if (receiver != nullptr) tell_posting(e, receiver);
  void* status = status_of(e);
  if ((chunked_granted != 0 || chunked_held != 0 ||
       (sender != nullptr && sender->packet.bytes >= 2 * chunk_bytes && chunked_usable())) &&
      exchange_watched(e, send, sender, send_part, receive, receiver, receive_part, in_place)) {
    // carried out
  } else if (sender != nullptr && !begin_down(*sender)) {
    e.result = failure(send.envelope.comm);
  } else {
    e.result = exchange_now(e, send_part, send.envelope, sender, receive_part, receive.envelope);
    const bool came = e.result == 0 || backend->messages->error_kind(e.result) == ErrorKind::kTruncated;
    if (receiver != nullptr && came && !copy_up(thread, *receiver, received(*receiver, status)))
      e.result = failure(receive.envelope.comm);
  }
  if (sender != nullptr) message_retire(thread, sender);
  if (receiver != nullptr) message_retire(thread, receiver);
  return true;
}

}  // namespace resil::staging
