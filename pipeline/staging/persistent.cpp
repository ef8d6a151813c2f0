// SPDX-License-Identifier: Apache-2.0
//
// Requests with an operation: of nonblocking collectives, and persistent ones of any kind. A persistent request gets
// its shadows when it is made and keeps them until it is freed; data goes down at each start and up at each completion.

#include "pipeline/staging/buffer_arguments.h"
#include "pipeline/staging/message.h"
#include "pipeline/staging/operation.h"
#include "shim/abi/backend.h"
#include "shim/model/event.h"
#include "shim/tables/tables.h"

namespace resil::staging {

constinit uint32_t persistent_receives;

namespace {

bool is_start(CallId id) { return class_of(id) == CallClass::kStart; }

bool is_message(const Operation& o) { return (call_info(o.id).attributes & kCallP2P) != 0; }
bool receives(const Operation& o) { return is_message(o) && o.receive.host != nullptr; }

Operation* operation_of(uint64_t word) { return reinterpret_cast<Operation*>(word); }

/// Bytes that came, as the status at that place says; 0 when there was an error or nothing came.
uint64_t arrived(const Event& e, const Operation& o, int64_t place) {
  const bool in_status = e.result != 0 && backend->messages->error_kind(e.result) == ErrorKind::kInStatus;
  if (e.result != 0 && !in_status) return 0;
  if (!receives(o) && !in_status) return ~uint64_t{0};
  if (e.given_statuses == nullptr || backend->messages->status_ignored(e.given_statuses))
    return receives(o) ? 0 : ~uint64_t{0};
  StatusInfo status = {};
  backend->messages->status_read(e.given_statuses, place, &status);
  if (status.cancelled || (in_status && status.error != 0)) return 0;
  return receives(o) ? status.bytes : ~uint64_t{0};
}

/// A collective's that is freed while it is active, which MPI does not allow, or no memory for what follows a message:
/// the library may use the shadow at any time, and nobody will be told when data has come.
void leave_behind(Operation& o) {
  if (o.receive.host != nullptr) count_uncovered(Uncovered::kOther, o.receive.bytes);
}

}  // namespace

void persistent_before(Event& e) {
  const bool receive = (e.attributes & kCallReceives) != 0;
  FlatTransfer flat;  // a datatype that is not known is argument_open's to find
  receive ? flat_received(e, &flat) : flat_sent(e, &flat);
  Operation room = {};
  Written written;
  const Refusal refusal = argument_open(*e.thread, flat, nullptr, receive ? &room.receive : &room.send, &written);
  if (refusal != Refusal::kNone) return count_refused(refusal, e.bytes);
  room.path = Path::kPersistent;
  room.written = written.bytes;
  const Operation* o = operation_begin(e, room);
  if (o == nullptr) return;
  if (receive) {
    e.receive.buffer = e.given_receive = packet_given(o->receive);
    __atomic_fetch_add(&persistent_receives, 1, __ATOMIC_RELAXED);
  } else {
    e.send.buffer = e.given_send = packet_given(o->send);
  }
}

bool persistent_freed(Event& e) {
  const uint64_t handle = request_handle(e.requests, 0);
  const uint64_t* words = request_cookies(*e.thread, handle);
  Operation* o = words != nullptr ? operation_of(words[kWord]) : nullptr;
  if (o == nullptr || o->path != Path::kPersistent || !o->active || !is_message(*o)) return false;
  if (o->delivered) {  // the program knows that it is complete
    o->active = false;
    return false;
  }
  Message* op = message_take();
  if (op == nullptr) return false;
  op->sends = o->send.host != nullptr;
  Packet& packet = op->sends ? o->send : o->receive;
  if (!op->sends) __atomic_fetch_sub(&persistent_receives, 1, __ATOMIC_RELAXED);
  op->handle = handle;
  op->comm = o->comm != 0 ? o->comm : backend->comm_world();
  op->packet = packet;
  op->staged = true;
  op->marks.store(kDetached, std::memory_order_relaxed);
  packet = {};
  o->active = false;
  wire_append(op);
  backend->staging->set_request(e.requests, 0, backend->request_null());
  e.result = 0;
  return true;
}

void collective_activating(Event& e, uint64_t*) {
  ThreadState* state = thread_state(*e.thread);
  if (!is_start(e.id) || state == nullptr || state->started_frame == e.frame) return;
  // At the first request of the call: all copies are enqueued, then waited for, since the other modules look at what is
  // given as soon as this hook has returned.
  state->started_frame = e.frame;
  auto each = [&](auto&& work) {
    for (int64_t i = 0; i < e.request_count; ++i) {
      const uint64_t* words = request_cookies(*e.thread, request_handle(e.requests, i));
      if (Operation* o = words != nullptr ? operation_of(words[kWord]) : nullptr; o != nullptr) work(*o);
    }
  };
  each([](Operation& o) {
    o.active = true;
    count_staged(Path::kPersistent, o.send.bytes + o.receive.bytes);
    operation_down(o);
  });
  each([&](Operation& o) {
    if (!operation_down_done(o)) refuse(*state, e, o.comm);
  });
}

void start_entered(Thread& thread) {
  if (ThreadState* state = thread_state(thread); state != nullptr) state->started_frame = 0;
}

void collective_completed(Event& e, int64_t place, uint64_t* cookie, bool freed) {
  Operation* o = operation_of(*cookie);
  ThreadState* state = thread_state(*e.thread);
  if (o == nullptr || state == nullptr) return;
  const bool persistent = o->path == Path::kPersistent;
  if (freed || !persistent) *cookie = 0;
  if (freed && persistent && receives(*o)) __atomic_fetch_sub(&persistent_receives, 1, __ATOMIC_RELAXED);
  if (freed) {
    if (persistent && !o->active) return operation_close(o);
    return leave_behind(*o);
  }
  if (!o->delivered) operation_up(*o, arrived(e, *o, place));
  o->active = false;
  o->next = state->finishing;
  state->finishing = o;
}

void operations_finished(Event& e, ThreadState& state) {
  while (state.finishing != nullptr) {
    Operation* o = state.finishing;
    state.finishing = o->next;
    if (!operation_up_done(*o) && e.result == 0) e.result = raise_error(0);
    if (o->path != Path::kPersistent) operation_close(o);
  }
}

void look_at_status(Event& e) {
  if (e.result != 0 || e.flag == nullptr || *e.flag == 0) return;
  const uint64_t* words = request_cookies(*e.thread, request_handle(e.requests, 0));
  Operation* o = words != nullptr ? operation_of(words[kWord]) : nullptr;
  if (o == nullptr || o->delivered || (o->path == Path::kPersistent && !o->active)) return;
  operation_up(*o, arrived(e, *o, 0));
  if (!operation_up_done(*o)) e.result = raise_error(0);
}

}  // namespace resil::staging
