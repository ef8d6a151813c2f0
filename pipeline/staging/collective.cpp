// SPDX-License-Identifier: Apache-2.0
//
// Collectives with device buffers. A call's shadows take the place of the program's buffers on the way in, before any
// other module looks, and are the event's buffers from then on: reductions, checksums, the recording and fault
// injection see host memory. What the call wrote there, and nothing else, is copied to the device on the way out.
//
// Which arguments mean what on this rank is fault::Layout's.

#include "checksum/collective/plan.h"
#include "pipeline/staging/operation.h"
#include "pipeline/staging/sides.h"
#include "shim/abi/backend.h"
#include "shim/call/event.h"
#include "shim/runtime/accelerators/host_memory.h"
#include "shim/runtime/block_pool.h"
#include "shim/tables/tables.h"

namespace resil::staging {

namespace {

bool in_place(const void* buffer) { return backend->is_in_place(buffer); }

bool is_neighbourhood(Collective form) {
  return form == Collective::kNeighborAllgather || form == Collective::kNeighborAlltoall;
}

/// Who sends to this rank; null: not known. To be released with memory::blocks.release.
int* sources_of(const Event& e) {
  int in = 0, out = 0;
  if (!backend->comm_degree(e.comm_handle, &in, &out)) return nullptr;
  auto* ranks = static_cast<int*>(memory::blocks.allocate(static_cast<size_t>(in + out + 1) * sizeof(int)));
  if (ranks == nullptr || backend->messages->neighbors(e.comm_handle, in, out, ranks, ranks + in)) return ranks;
  memory::blocks.release(ranks);
  return nullptr;
}

/// Does the receive side hold what this rank gives?
bool gives_in_place(const Event& e, Collective form) {
  if (is_reduction(form)) return collective::reduces_in_place(e);
  return (form == Collective::kAllgather || form == Collective::kAlltoall) && in_place(e.send.buffer);
}

/// Opens what lies on a device. kHostBuffer: nothing does; else why not, and nothing is held.
Refusal open_sides(Event& e, Operation* o) {
  const Collective form = collective_of(e.id);
  fault::Layout send = kNothing, receive = kNothing;
  const bool known_receive = fault::receive_layout(e, &receive);
  o->in_place = gives_in_place(e, form);
  bool known_send = true;
  if (is_reduction(form)) known_send = fault::contribution_layout(e, &send);  // the receive buffer when in place
  else if (!o->in_place) known_send = fault::send_layout(e, &send);
  if (!known_send && send.type != nullptr) send.blocks = 0;
  if (!known_receive && receive.type != nullptr) receive.blocks = 0;
  Written written;
  uint64_t result_bytes = ~uint64_t{0};
  if (o->in_place && is_reduction(form)) {  // one shadow, as large as the contribution
    result_bytes = receive.blocks > 0 && receive.type != nullptr ? type_bytes(*receive.type, receive.count) : 0;
    receive = send;
    send = kNothing;
  }
  Refusal refusal = side_open(*e.thread, send, nullptr, &o->send, &written);
  if (refusal != Refusal::kNone && refusal != Refusal::kHostBuffer) return refusal;
  int* sources = is_neighbourhood(form) && receive.blocks > 0 ? sources_of(e) : nullptr;
  const Refusal second = side_open(*e.thread, receive, sources, &o->receive, &written);
  memory::blocks.release(sources);
  if (second != Refusal::kNone && second != Refusal::kHostBuffer) {
    packet_close(&o->send);
    return second;
  }
  o->written = written.bytes < result_bytes ? written.bytes : result_bytes;
  o->own_first = form == Collective::kAllgather && o->in_place ? written.blocks : 0;
  o->own_last = o->receive.block_count;
  if (is_neighbourhood(form) && sources == nullptr)
    o->in_place = true;  // what may not be written goes down and up again
  return second == Refusal::kNone ? second : refusal;
}

bool is_bcast(const Event& e) { return collective_of(e.id) == Collective::kBcast; }

/// The shadows take the buffers' places.
void give(Event& e, const Operation& o) {
  if (o.send.host != nullptr) e.send.buffer = e.given_send = packet_given(o.send);
  if (o.receive.host == nullptr) return;
  const void* shadow = packet_given(o.receive);
  if (is_bcast(e)) {
    e.send.buffer = e.given_send = shadow;
    return;
  }
  if (o.in_place && !in_place(e.send.buffer) && is_reduction(collective_of(e.id)))
    e.send.buffer = e.given_send = shadow;  // the same buffer twice
  e.receive.buffer = e.given_receive = shadow;
}

bool known_to_be_host(const Event& e) {
  const bool send = in_place(e.send.buffer) || host_memory_known(e.send.buffer, 1);
  return send && e.send.counts == nullptr && e.send.types == nullptr &&
         (is_bcast(e) || (e.receive.counts == nullptr && e.receive.types == nullptr &&
                          (in_place(e.receive.buffer) || host_memory_known(e.receive.buffer, 1))));
}

}  // namespace

bool collective_handles(CallId id) { return moves_data(collective_of(id)); }

void collective_before(Event& e) {
  if (e.comm == nullptr || known_to_be_host(e)) return;
  Operation room = {};
  const Refusal refusal = open_sides(e, &room);
  if (refusal == Refusal::kHostBuffer) return;
  if (refusal != Refusal::kNone) return count_uncovered(reason_of(refusal), e.bytes);
  room.path = e.attributes & kCallPersistent ? Path::kPersistent : Path::kCollective;
  if (const Operation* o = operation_begin(e, room); o != nullptr) give(e, *o);
}

void collective_after(Event& e) {
  const ThreadState* state = thread_state(*e.thread);
  if (state == nullptr || state->calls == nullptr || state->calls->frame != e.frame) return;
  if (e.result == 0 && !(e.attributes & kCallStarts))
    operation_up(*state->calls, ~uint64_t{0});  // the other modules look at the shadow meanwhile
}

}  // namespace resil::staging
