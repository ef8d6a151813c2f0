// SPDX-License-Identifier: Apache-2.0
//
// Requests with an operation: of nonblocking collectives, and persistent ones of any kind. A persistent request gets its
// shadows when it is made and keeps them until it is freed; data goes down at each start and up at each completion.

#include "checksum/fault/layout.h"
#include "pipeline/staging/operation.h"
#include "pipeline/staging/sides.h"
#include "shim/backend.h"
#include "shim/event.h"
#include "shim/tables.h"

namespace resil::staging {

constinit uint32_t persistent_receives;

namespace {

bool is_start(CallId id) { return id == CallId::kMPI_Start || id == CallId::kMPI_Startall; }

bool is_message(const Operation& o) { return (call_info(o.id).attributes & kCallP2P) != 0; }
bool receives(const Operation& o) { return is_message(o) && o.receive.host != nullptr; }

Operation* operation_of(uint64_t word) {
  return pipeline::is_staged(word) ? reinterpret_cast<Operation*>(word & ~pipeline::kStaged) : nullptr;
}

/// Bytes that came, as the status at that place says; 0 when there was an error or nothing came.
uint64_t arrived(const Event& e, const Operation& o, int64_t place) {
  const bool in_status = e.result != 0 && backend->messages->error_kind(e.result) == ErrorKind::kInStatus;
  if (e.result != 0 && !in_status)
    return 0;
  if (!receives(o) && !in_status)
    return ~uint64_t{0};
  if (e.given_statuses == nullptr || backend->messages->status_ignored(e.given_statuses))
    return receives(o) ? 0 : ~uint64_t{0};
  StatusInfo status = {};
  backend->messages->status_read(e.given_statuses, place, &status);
  if (status.cancelled || (in_status && status.error != 0))
    return 0;
  return receives(o) ? status.bytes : ~uint64_t{0};
}

/// Freed before it is complete: the library may use the memory at any time, and nobody will be told when data has come.
void leave_behind(Operation& o) {
  if (o.receive.host != nullptr)
    count_uncovered(Uncovered::kOther, o.receive.bytes);
}

}  // namespace

void persistent_before(Event& e) {
  fault::Layout layout = kNothing;
  const bool receive = (e.attributes & kCallReceives) != 0;
  const bool known = receive ? fault::receive_layout(e, &layout) : fault::send_layout(e, &layout);
  if (!known && layout.type != nullptr)
    return;
  Operation room = {};
  Written written;
  const Refusal refusal = side_open(*e.thread, layout, nullptr, receive ? &room.receive : &room.send, &written);
  if (refusal == Refusal::kHostBuffer)
    return;
  if (refusal != Refusal::kNone)
    return count_uncovered(reason_of(refusal), e.bytes);
  room.path = Path::kPersistent;
  room.written = written.bytes;
  const Operation* o = operation_begin(e, room);
  if (o == nullptr)
    return;
  if (receive) {
    e.receive.buffer = e.given_receive = packet_given(o->receive);
    __atomic_fetch_add(&persistent_receives, 1, __ATOMIC_RELAXED);
  } else {
    e.send.buffer = e.given_send = packet_given(o->send);
  }
}

void collective_activating(Event& e, uint64_t* cookie) {
  Operation* o = operation_of(*cookie);
  ThreadState* state = thread_state(*e.thread);
  if (o == nullptr || !is_start(e.id) || state == nullptr)
    return;
  o->active = true;
  count_staged(Path::kPersistent, o->send.bytes + o->receive.bytes);
  operation_down(*o);
  if (is_message(*o)) {
    o->next = state->starting;
    state->starting = o;
  } else if (!operation_down_done(*o, e)) {  // others look at what is given right now
    state->refused = o;
  }
}

void operations_started(Event& e, ThreadState& state) {
  for (; state.starting != nullptr; state.starting = state.starting->next)
    if (!operation_down_done(*state.starting, e))
      state.refused = state.starting;
}

bool start_refused(Event& e) {
  ThreadState* state = thread_state(*e.thread);
  if (state == nullptr || state->refused == nullptr)
    return false;
  state->refused->active = false;
  e.result = raise_error(state->refused->comm);
  state->refused = nullptr;
  return true;
}

void collective_completed(Event& e, int64_t place, uint64_t* cookie, bool freed) {
  Operation* o = operation_of(*cookie);
  ThreadState* state = thread_state(*e.thread);
  if (o == nullptr || state == nullptr)
    return;
  const bool persistent = o->path == Path::kPersistent;
  if (freed || !persistent)
    *cookie = o->reductions;
  if (freed && persistent && receives(*o))
    __atomic_fetch_sub(&persistent_receives, 1, __ATOMIC_RELAXED);
  if (freed) {
    if (persistent && !o->active)
      return operation_close(o);
    return leave_behind(*o);
  }
  if (!o->delivered) {
    const uint64_t bytes = arrived(e, *o, place);
    o->written_now = bytes;
    operation_up(*o, bytes);
  }
  o->active = false;
  o->next = state->finishing;
  state->finishing = o;
}

void operations_finished(Event& e, ThreadState& state) {
  while (state.finishing != nullptr) {
    Operation* o = state.finishing;
    state.finishing = o->next;
    if (!operation_up_done(*o, o->written_now, e) && e.result == 0)
      e.result = raise_error(0);
    if (o->path != Path::kPersistent)
      operation_close(o);
  }
}

void look_at_status(Event& e) {
  if (e.result != 0 || e.flag == nullptr || *e.flag == 0)
    return;
  const uint64_t* words = request_cookies(*e.thread, request_handle(e.requests, 0));
  Operation* o = words != nullptr ? operation_of(words[pipeline::kCookie]) : nullptr;
  if (o == nullptr || o->delivered || (o->path == Path::kPersistent && !o->active))
    return;
  o->written_now = arrived(e, *o, 0);
  operation_up(*o, o->written_now);
  if (!operation_up_done(*o, o->written_now, e))
    e.result = raise_error(0);
}

}  // namespace resil::staging
