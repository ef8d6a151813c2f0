// SPDX-License-Identifier: Apache-2.0
//
// Blocking messages with device buffers. While nothing else is under way the library's own blocking call does the
// waiting; else tests, between which everything else is looked after.

#include "pipeline/staging/p2p.h"
#include "pipeline/staging/staging.h"
#include "shim/backend.h"
#include "shim/dispatch.h"
#include "shim/thread.h"

namespace resil::staging {

namespace {

int failure(uint64_t comm) { return backend->staging->raise(comm, backend->staging->error_other); }

/// Completes a request of staging's own; `status` may be null.
int complete(Thread& thread, uint64_t* request, void* status) {
  int result = 0;
  wait_while_working(thread, [&] {
    int flag = 0;
    result = backend->messages->test(request, &flag, status);
    return flag != 0 || result != 0;
  });
  return result;
}

uint64_t received(const void* status) {
  StatusInfo info{};
  backend->messages->status_read(status, 0, &info);
  return info.cancelled ? 0 : info.bytes;
}

int send_now(Thread& thread, SendMode mode, const MessagePart& part, const MessageEnvelope& to) {
  flush(thread);
  if (!under_way() || mode == SendMode::kBuffered)
    return backend->staging->send(mode, part, to);
  uint64_t request;
  const int result = backend->staging->isend(mode, part, to, &request);
  return result != 0 ? result : complete(thread, &request, nullptr);
}

/// The status that tells how much came: the program's, or room of the event's when it wants none.
void* status_of(Event& e) {
  give_statuses(e);
  return e.given_statuses;
}

int receive_now(Event& e, const MessagePart& part, const MessageEnvelope& from) {
  Thread& thread = *e.thread;
  const bool takes = e.comm_handle == 0;  // MPI_Mrecv: the message says from where
  void* status = e.given_statuses;
  flush(thread);
  if (!under_way())
    return takes ? backend->staging->mrecv(part, e.message, status) : backend->staging->recv(part, from, status);
  uint64_t request;
  const int result = takes ? backend->staging->imrecv(part, e.message, &request) : backend->staging->irecv(part, from, &request);
  return result != 0 ? result : complete(thread, &request, status);
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
  if (result == 0)
    result = backend->staging->isend(SendMode::kStandard, send_part, to, &sending);
  if (result != 0) {
    if (!nothing)
      backend->messages->cancel(&receiving);
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

}  // namespace

bool blocking_send(Event& e, SendMode mode) {
  Thread& thread = *e.thread;
  const Half half = send_half(e);
  MessagePart part;
  Message* op = open_message(thread, half, true, &part);
  if (op == nullptr) {
    flush(thread);
    return false;
  }
  if (begin_down(*op) && wait_down(*op))
    e.result = send_now(thread, mode, part, half.envelope);
  else
    e.result = failure(half.envelope.comm);
  message_retire(thread, op);
  return true;
}

bool blocking_receive(Event& e) {
  Thread& thread = *e.thread;
  const Half half = receive_half(e);
  MessagePart part;
  Message* op = open_message(thread, half, false, &part);
  if (op == nullptr) {
    flush(thread);
    return false;
  }
  void* status = status_of(e);
  e.result = receive_now(e, part, half.envelope);
  // A message that was too long has filled the buffer (and says so); another error says nothing about what came.
  const bool came = e.result == 0 || backend->messages->error_kind(e.result) == ErrorKind::kTruncated;
  if (came && !copy_up(thread, *op, received(status)))
    e.result = failure(op->comm);
  message_retire(thread, op);
  return true;
}

bool blocking_exchange(Event& e, bool in_place) {
  Thread& thread = *e.thread;
  const Half send = send_half(e);
  Half receive = receive_half(e);
  if (in_place)
    receive.buffer = send.buffer, receive.count = send.count, receive.type = send.type;
  MessagePart send_part = {const_cast<void*>(send.buffer), send.count, send.type};
  MessagePart receive_part = {const_cast<void*>(receive.buffer), receive.count, receive.type};
  Message* sender = open_message(thread, send, true, &send_part);
  Message* receiver = open_message(thread, receive, false, &receive_part);
  if (sender == nullptr && receiver == nullptr) {
    flush(thread);
    return false;
  }
  if (in_place && (sender == nullptr || receiver == nullptr)) {
    // One half with MPI_PROC_NULL is nothing; else memory has run out for one of them, and the library does it all.
    const bool alone = send.envelope.peer == ring::kProcNull || receive.envelope.peer == ring::kProcNull;
    if (!alone) {
      message_retire(thread, sender != nullptr ? sender : receiver);
      flush(thread);
      return false;
    }
  }
  void* status = status_of(e);
  if (sender != nullptr && !begin_down(*sender)) {
    e.result = failure(send.envelope.comm);
  } else {
    e.result = exchange_now(e, send_part, send.envelope, sender, receive_part, receive.envelope);
    const bool came = e.result == 0 || backend->messages->error_kind(e.result) == ErrorKind::kTruncated;
    if (receiver != nullptr && came && !copy_up(thread, *receiver, received(status)))
      e.result = failure(receive.envelope.comm);
  }
  if (sender != nullptr)
    message_retire(thread, sender);
  if (receiver != nullptr)
    message_retire(thread, receiver);
  return true;
}

}  // namespace resil::staging
