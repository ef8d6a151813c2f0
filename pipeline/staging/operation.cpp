// SPDX-License-Identifier: Apache-2.0
//
// See operation.h.

#include "pipeline/staging/operation.h"
#include "pipeline/staging/message.h"

#include "pipeline/gpu/gpu.h"
#include "pipeline/staging/messages.h"
#include "shim/abi/backend.h"
#include "shim/model/event.h"
#include "shim/report/log.h"
#include "shim/runtime/block_pool.h"

namespace resil::staging {

namespace {

bool on_device(const Packet& packet) { return packet.host != nullptr; }

/// Does only a part of what lies there belong to this rank before the call?
bool partly(const Operation& o) { return o.own_first != 0 || o.own_last != o.receive.block_count; }

}  // namespace

void say_refused(CallId id, const char* what) {
  static bool said;
  if (!__atomic_exchange_n(&said, true, __ATOMIC_RELAXED))
    log_format(messages::staging::copy_refused, call_info(id).name, what, gpu::last_error());
  add_note_format(messages::staging::copy_refused_note, what, gpu::last_error());
}

void operation_down(Operation& o) {
  o.failed = o.delivered = false;
  if (on_device(o.send)) packet_down(&o.send);
  if (!on_device(o.receive) || !o.in_place) return;
  if (partly(o)) packet_down_blocks(&o.receive, o.own_first, o.own_last);
  else packet_down(&o.receive);
}

bool operation_down_done(Operation& o) {
  if (on_device(o.send) && packet_wait(&o.send) == PacketState::kFailed) o.failed = true;
  if (on_device(o.receive) && o.in_place && packet_wait(&o.receive) == PacketState::kFailed) o.failed = true;
  if (o.failed) say_refused(o.id, "from");
  return !o.failed;
}

void operation_up(Operation& o, uint64_t bytes) {
  o.delivered = true;
  if (!on_device(o.receive)) return;
  packet_up(&o.receive, bytes < o.written ? bytes : o.written);
}

bool operation_up_done(Operation& o) {
  if (!on_device(o.receive) || packet_wait(&o.receive) != PacketState::kFailed) return true;
  o.failed = true;
  say_refused(o.id, "to");
  return false;
}

void operation_close(Operation* o) {
  packet_close(&o->send);
  packet_close(&o->receive);
  memory::blocks.release(o);
}

Operation* operation_begin(Event& e, const Operation& opened) {
  ThreadState* state = thread_state(*e.thread);
  auto* o = state != nullptr ? static_cast<Operation*>(memory::blocks.allocate(sizeof(Operation))) : nullptr;
  if (o == nullptr) {
    Operation copy = opened;
    packet_close(&copy.send);
    packet_close(&copy.receive);
    count_uncovered(Uncovered::kPinnedMemory, e.bytes);
    return nullptr;
  }
  *o = opened;
  o->id = e.id;
  o->frame = e.frame;
  o->comm = e.comm_handle;
  if (o->path != Path::kPersistent) {
    operation_down(*o);
    if (!operation_down_done(*o)) {
      refuse(*state, e, o->comm);
      operation_close(o);
      return nullptr;
    }
    count_staged(o->path, o->send.bytes + o->receive.bytes);
  }
  if (!e.nested)
    state->calls = nullptr;  // of calls that were left by an exception or longjmp: the library may still use them
  o->next = state->calls;
  state->calls = o;
  return o;
}

namespace {

/// The request is in the shim's table: its word becomes the operation.
void tie(Event& e, Operation* o) {
  if (e.cookies != nullptr) [[likely]] {
    e.cookies[kWord] = reinterpret_cast<uint64_t>(o);
    return;
  }
  if (o->path == Path::kPersistent) {
    if (e.request_key != 0) {
      log_line(messages::staging::too_many_requests);
      backend->messages->abort(93);
    }
    return operation_close(o);
  }
  // Complete at once; or more are pending than the tables can follow, then it must be complete before the program has
  // it.
  if (e.request_key != 0) wait_while_working(*e.thread, [&] { return backend->collectives->is_complete(e.requests); });
  operation_up(*o, ~uint64_t{0});
  if (!operation_up_done(*o)) e.result = raise_error(o->comm);
  operation_close(o);
}

}  // namespace

void operation_end(Event& e, Operation* o) {
  if (e.result != 0) return operation_close(o);
  if (e.attributes & kCallStarts) return tie(e, o);
  if (!o->delivered) operation_up(*o, ~uint64_t{0});
  if (!operation_up_done(*o)) e.result = raise_error(o->comm);
  operation_close(o);
}

void refuse(ThreadState& state, const Event& e, uint64_t comm) {
  state.refused_frame = e.frame;
  state.refused_comm = comm;
}

bool refused(Event& e) {
  auto* state = thread_state(*e.thread);
  if (state == nullptr || state->refused_frame != e.frame) return false;
  state->refused_frame = 0;
  e.result = raise_error(state->refused_comm);
  return true;
}

int raise_error(uint64_t comm) {
  return backend->staging->raise(comm != 0 ? comm : backend->comm_world(), backend->staging->error_other);
}

}  // namespace resil::staging
