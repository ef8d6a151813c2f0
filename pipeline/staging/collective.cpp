// SPDX-License-Identifier: Apache-2.0
//
// Collectives with device buffers. A call's shadows take the place of the program's buffers on the way in, before any
// other module looks, and are the event's buffers from then on: reductions, checksums, the recording and fault
// injection see host memory. What the call wrote there, and nothing else, is copied to the device on the way out.
//
// Which arguments mean what on this rank: shim/model/transfers.h.

#include "pipeline/staging/buffer_arguments.h"
#include "pipeline/staging/operation.h"
#include "shim/abi/backend.h"
#include "shim/model/event.h"
#include "shim/runtime/accelerators/host_memory.h"
#include "shim/runtime/block_pool.h"
#include "shim/tables/tables.h"

namespace resil::staging {

namespace {

/// Who sends to this rank; null: not known. To be released with memory::blocks.release.
int* sources_of(const Event& e) {
  int in = 0, out = 0;
  if (!backend->comm_degree(e.comm_handle, &in, &out)) return nullptr;
  auto* ranks = static_cast<int*>(memory::blocks.allocate(static_cast<size_t>(in + out + 1) * sizeof(int)));
  if (ranks == nullptr || backend->messages->neighbors(e.comm_handle, in, out, ranks, ranks + in)) return ranks;
  memory::blocks.release(ranks);
  return nullptr;
}

/// Opens what lies on a device. kHostBuffer: nothing does; else why not, and nothing is held.
Refusal open_arguments(Event& e, Operation* o) {
  const Collective operation = call_info(e.id).collective;
  // A datatype that is not known is argument_open's to find.
  FlatTransfer send = flat_nothing(), receive;
  flat_received(e, &receive);
  o->in_place = is_overwritten(e, backend->is_in_place);
  if (!o->in_place || is_reduction(operation)) flat_sent(e, &send);
  Written written;
  uint64_t result_bytes = ~uint64_t{0};
  if (o->in_place && is_reduction(operation)) {  // one shadow, as large as the contribution
    result_bytes = receive.any() && receive.map != nullptr ? type_bytes(*receive.map, receive.count) : 0;
    receive = send;
    send = flat_nothing();
  }
  Refusal refusal = argument_open(*e.thread, send, nullptr, &o->send, &written);
  if (refusal != Refusal::kNone && refusal != Refusal::kHostBuffer) return refusal;
  int* sources = is_neighborhood(operation) && receive.any() ? sources_of(e) : nullptr;
  const Refusal second = argument_open(*e.thread, receive, sources, &o->receive, &written);
  memory::blocks.release(sources);
  if (second != Refusal::kNone && second != Refusal::kHostBuffer) {
    packet_close(&o->send);
    return second;
  }
  o->written = written.bytes < result_bytes ? written.bytes : result_bytes;
  o->own_first = operation == Collective::kAllgather && o->in_place ? written.blocks : 0;
  o->own_last = o->receive.block_count;
  if (is_neighborhood(operation) && sources == nullptr)
    o->in_place = true;  // what may not be written goes down and up again
  return second == Refusal::kNone ? second : refusal;
}

bool is_bcast(const Event& e) { return call_info(e.id).collective == Collective::kBcast; }

/// The shadows take the buffers' places.
void give(Event& e, const Operation& o) {
  if (o.send.host != nullptr) e.send.buffer = e.given_send = packet_given(o.send);
  if (o.receive.host == nullptr) return;
  const void* shadow = packet_given(o.receive);
  if (is_bcast(e)) {
    e.send.buffer = e.given_send = shadow;
    return;
  }
  if (o.in_place && !backend->is_in_place(e.send.buffer) && is_reduction(call_info(e.id).collective))
    e.send.buffer = e.given_send = shadow;  // the same buffer twice
  e.receive.buffer = e.given_receive = shadow;
}

bool known_to_be_host(const Event& e) {
  const bool send = backend->is_in_place(e.send.buffer) || host_memory_known(e.send.buffer, 1);
  return send && e.send.counts == nullptr && e.send.types == nullptr &&
         (is_bcast(e) || (e.receive.counts == nullptr && e.receive.types == nullptr &&
                          (backend->is_in_place(e.receive.buffer) || host_memory_known(e.receive.buffer, 1))));
}

}  // namespace

bool collective_handles(CallId id) { return call_info(id).collective > Collective::kBarrier; }

void collective_before(Event& e) {
  if (e.comm == nullptr || known_to_be_host(e)) return;
  Operation room = {};
  const Refusal refusal = open_arguments(e, &room);
  if (refusal != Refusal::kNone) return count_refused(refusal, e.bytes);
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
