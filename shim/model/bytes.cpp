// SPDX-License-Identifier: Apache-2.0
//
// How many bytes a call names, from its arguments. Only arguments that the standard calls significant on this rank
// are looked at: the others may be uninitialised, and asking MPI for the size of a garbage datatype is fatal.

#include "shim/abi/backend.h"
#include "shim/tables/tables.h"

namespace resil {

namespace {

int64_t count_at(const Event& e, const Side& side, int64_t index) {
  return e.large ? static_cast<const int64_t*>(side.counts)[index] : static_cast<const int*>(side.counts)[index];
}

uint64_t sum_counts(Event& e, const Side& side, int64_t length) {
  int64_t sum = 0;
  for (int64_t i = 0; i < length; ++i) sum += count_at(e, side, i);
  return sum > 0 ? static_cast<uint64_t>(sum) * static_cast<uint64_t>(type_size(*e.thread, side.type)) : 0;
}

uint64_t sum_typed(Event& e, const Side& side, int64_t length) {
  uint64_t sum = 0;
  for (int64_t i = 0; i < length; ++i)
    if (int64_t count = count_at(e, side, i); count > 0)
      sum += static_cast<uint64_t>(count) * static_cast<uint64_t>(type_size(*e.thread, request_handle(side.types, i)));
  return sum;
}

/// Ranks this one exchanges with: the remote group of an intercommunicator, else all.
int64_t partners(const Event& e) { return e.comm->remote_size >= 0 ? e.comm->remote_size : e.comm->size; }

int64_t neighbours(const Event& e) {
  CommInfo& comm = *e.comm;
  if (comm.degree_out == -1) {
    int in = 0, out = 0;
    bool topology = backend->comm_degree(comm.handle, &in, &out);
    comm.degree_in = topology ? in : -2;
    comm.degree_out = topology ? out : -2;
  }
  return comm.degree_out > 0 ? comm.degree_out : 0;
}

}  // namespace

uint64_t side_bytes(Event& e, const Side& side) {
  if (side.count <= 0) return 0;
  return static_cast<uint64_t>(side.count) * static_cast<uint64_t>(type_size(*e.thread, side.type));
}

uint64_t compute_bytes(Event& e) {
  const CallInfo& info = call_info(e.id);
  if (info.shape == Shape::kPlain) {
    // Point-to-point, I/O, neighbour allgather; one-sided calls with a result use its arguments (the origin's are not
    // significant with MPI_NO_OP). The generator sets the side that the call has.
    const bool receive = info.attributes & kCallReceives;
    return side_bytes(e, receive ? e.receive : e.send);
  }
  if (info.shape == Shape::kPartitioned)
    return side_bytes(e, info.attributes & kCallReceives ? e.receive : e.send) * static_cast<uint64_t>(e.partitions);
  if (e.comm == nullptr || e.comm->size < 0) return 0;
  const bool inter = e.comm->remote_size >= 0;
  const bool root = inter ? e.peer == ring::kRootSelf : e.peer == e.comm->rank;
  const bool bystander = inter && e.peer == ring::kProcNull;
  auto in_place = [](const void* buffer) { return backend->is_in_place(buffer); };
  switch (info.shape) {
    case Shape::kRooted: return bystander ? 0 : side_bytes(e, e.send);
    case Shape::kGather:
      if (bystander || (inter && root) || in_place(e.send.buffer))
        return 0;  // the root's own part stays in place; what it receives is counted by the senders
      return side_bytes(e, e.send);
    case Shape::kScatter:
      if (bystander || (inter && root) || in_place(e.receive.buffer)) return 0;
      return side_bytes(e, e.receive);
    case Shape::kAllGather:
      if (!in_place(e.send.buffer)) return side_bytes(e, e.send);
      return e.receive.counts == nullptr ? side_bytes(e, e.receive)
                                         : static_cast<uint64_t>(count_at(e, e.receive, e.comm->rank)) *
                                               static_cast<uint64_t>(type_size(*e.thread, e.receive.type));
    case Shape::kAllToAll:
      return side_bytes(e, in_place(e.send.buffer) ? e.receive : e.send) * static_cast<uint64_t>(partners(e));
    case Shape::kAllToAllV: return sum_counts(e, in_place(e.send.buffer) ? e.receive : e.send, partners(e));
    case Shape::kAllToAllW: return sum_typed(e, in_place(e.send.buffer) ? e.receive : e.send, partners(e));
    case Shape::kReduceScatter: return sum_counts(e, e.receive, e.comm->size);
    case Shape::kReduceScatterBlock: return side_bytes(e, e.receive) * static_cast<uint64_t>(e.comm->size);
    case Shape::kNeighborAllToAll: return side_bytes(e, e.send) * static_cast<uint64_t>(neighbours(e));
    case Shape::kNeighborV: return sum_counts(e, e.send, neighbours(e));
    case Shape::kNeighborW: return sum_typed(e, e.send, neighbours(e));
    default: return 0;
  }
}

int64_t type_size_slow(Thread& thread, uint64_t type) {
  uint32_t generation = handle_generation.load(std::memory_order_acquire);
  if (thread.type_generation != generation) {
    for (TypeCacheEntry& entry : thread.types) entry = {};
    thread.type_generation = generation;
  }
  int64_t bytes = 0;
  if (!backend->type_size(type, &bytes)) bytes = 0;
  thread.types[(type ^ (type >> 9)) % kTypeCache] = {type, bytes, nullptr};
  return bytes;
}

}  // namespace resil
