// SPDX-License-Identifier: Apache-2.0
//
// See layout.h. Buffers and their order: MPI 4.0, chapters 3 and 6.

#include "checksum/fault/layout.h"

#include <cstring>

#include "checksum/fault/pool.h"
#include "shim/abi/backend.h"
#include "shim/call/event.h"
#include "shim/runtime/accelerators/host_memory.h"
#include "shim/tables/tables.h"

namespace resil::fault {

namespace {

bool is_bcast(CallId id) { return collective_of(id) == Collective::kBcast; }
bool is_exscan(CallId id) { return collective_of(id) == Collective::kExscan; }
bool is_neighbour_gather(CallId id) { return collective_of(id) == Collective::kNeighborAllgather; }
bool is_replace(CallId id) { return class_of(id) == CallClass::kSendReceiveReplace; }

bool in_place(const void* buffer) { return backend->is_in_place(buffer); }
bool inter(const Event& e) { return e.comm->remote_size >= 0; }
int64_t partners(const Event& e) { return inter(e) ? e.comm->remote_size : e.comm->size; }
bool is_root(const Event& e) { return inter(e) ? e.peer == ring::kRootSelf : e.peer == e.comm->rank; }
bool is_bystander(const Event& e) { return inter(e) && e.peer == ring::kProcNull; }

int64_t degree(const Event& e, bool in) {
  int sources = 0, destinations = 0;
  return backend->comm_degree(e.comm_handle, &sources, &destinations) ? (in ? sources : destinations) : 0;
}

bool fill(Event& e, const Side& side, const void* buffer, int64_t blocks, int32_t peer, Layout* layout) {
  layout->buffer = static_cast<char*>(const_cast<void*>(buffer));
  layout->count = side.count;
  layout->blocks = blocks;
  layout->peer = peer;
  layout->own = -1;
  layout->comm = e.comm_handle != 0 ? e.comm : nullptr;
  layout->counts = layout->displacements = layout->types = nullptr;
  layout->copies = nullptr;
  layout->wide_counts = layout->wide_displacements = e.large;
  layout->in_bytes = layout->neighbours = false;
  if (blocks <= 0) return false;
  layout->type = type_map(*e.thread, side.type);
  return layout->type != nullptr;
}

/// Blocks of a V or W collective, or of equal counts.
bool fill_blocks(Event& e, const Side& side, int64_t blocks, Layout* layout) {
  const Shape shape = call_info(e.id).shape;
  const bool typed = shape == Shape::kAllToAllW || shape == Shape::kNeighborW;
  Side first = side;
  if (typed && blocks > 0) first.type = request_handle(side.types, 0);
  if (!fill(e, first, side.buffer, blocks, -1, layout)) return false;
  layout->counts = side.counts;
  layout->displacements = side.counts != nullptr ? side.displacements : nullptr;
  layout->types = typed ? side.types : nullptr;
  layout->in_bytes = typed;
  layout->wide_displacements = e.large || shape == Shape::kNeighborW;
  layout->neighbours = shape == Shape::kNeighborAllToAll || shape == Shape::kNeighborV || typed
                           ? shape != Shape::kAllToAllW
                           : is_neighbour_gather(e.id);
  return true;
}

bool receive_collective(Event& e, Layout* layout) {
  const Shape shape = call_info(e.id).shape;
  switch (shape) {
    case Shape::kRooted:
      if (is_bystander(e)) return false;
      if (is_bcast(e.id)) return !is_root(e) && fill(e, e.send, e.send.buffer, 1, e.peer, layout);
      return is_root(e) && fill(e, e.receive, e.receive.buffer, 1, -1, layout);
    case Shape::kPlain:
      if (is_neighbour_gather(e.id)) return fill_blocks(e, e.receive, degree(e, true), layout);
      return !(is_exscan(e.id) && e.comm->rank == 0) && fill(e, e.receive, e.receive.buffer, 1, -1, layout);
    case Shape::kGather:
      if (!is_root(e) || !fill_blocks(e, e.receive, partners(e), layout)) return false;
      layout->own = in_place(e.send.buffer) ? e.comm->rank : -1;
      return true;
    case Shape::kScatter:
      if (is_bystander(e) || (inter(e) && is_root(e)) || in_place(e.receive.buffer)) return false;
      return fill(e, e.receive, e.receive.buffer, 1, e.peer, layout);
    case Shape::kAllGather:
    case Shape::kAllToAll:
    case Shape::kAllToAllV:
    case Shape::kAllToAllW:
      if (!fill_blocks(e, e.receive, partners(e), layout)) return false;
      layout->own = in_place(e.send.buffer) ? e.comm->rank : -1;
      return true;
    case Shape::kReduceScatter: {
      Side own = e.receive;
      own.count = e.large ? static_cast<const int64_t*>(own.counts)[e.comm->rank]
                          : static_cast<const int*>(own.counts)[e.comm->rank];
      return fill(e, own, own.buffer, 1, -1, layout);
    }
    case Shape::kReduceScatterBlock: return fill(e, e.receive, e.receive.buffer, 1, -1, layout);
    case Shape::kNeighborAllToAll:
    case Shape::kNeighborV:
    case Shape::kNeighborW: return fill_blocks(e, e.receive, degree(e, true), layout);
    default: return false;
  }
}

/// Calls that compute are left out: whether a changed contribution shows in the result depends on the operation.
bool send_collective(Event& e, Layout* layout) {
  switch (call_info(e.id).shape) {
    case Shape::kRooted: return is_bcast(e.id) && is_root(e) && fill(e, e.send, e.send.buffer, 1, -1, layout);
    case Shape::kPlain: return is_neighbour_gather(e.id) && fill(e, e.send, e.send.buffer, 1, -1, layout);
    case Shape::kGather:
      if (is_bystander(e) || (inter(e) && is_root(e)) || in_place(e.send.buffer)) return false;
      return fill(e, e.send, e.send.buffer, 1, e.peer, layout);
    case Shape::kScatter: {
      if (!is_root(e) || !fill_blocks(e, e.send, partners(e), layout)) return false;
      layout->own = in_place(e.receive.buffer) ? e.comm->rank : -1;
      return true;
    }
    case Shape::kAllGather: return !in_place(e.send.buffer) && fill(e, e.send, e.send.buffer, 1, -1, layout);
    case Shape::kAllToAll:
    case Shape::kAllToAllV:
    case Shape::kAllToAllW: return !in_place(e.send.buffer) && fill_blocks(e, e.send, partners(e), layout);
    case Shape::kNeighborAllToAll:
    case Shape::kNeighborV:
    case Shape::kNeighborW: return fill_blocks(e, e.send, degree(e, false), layout);
    default: return false;
  }
}

bool has_packet(const Event& e) {
  return call_info(e.id).shape == Shape::kPlain && (e.attributes & kCallP2P) && !(e.attributes & kCallPartitioned);
}

int64_t element(const void* array, bool wide, int64_t index) {
  return wide ? static_cast<const int64_t*>(array)[index] : static_cast<const int*>(array)[index];
}

}  // namespace

bool receive_layout(Event& e, Layout* layout) {
  if (e.attributes & kCallCollective) return e.comm != nullptr && e.comm->size > 0 && receive_collective(e, layout);
  if (is_get(call_info(e.id)))
    return e.peer != ring::kProcNull && fill(e, e.receive, e.receive.buffer, 1, e.peer, layout);
  if (!has_packet(e)) return false;
  if (is_replace(e.id))
    return e.receive_peer != ring::kProcNull && fill(e, e.send, e.send.buffer, 1, e.receive_peer, layout);
  if (e.attributes & kCallBothWays)
    return e.receive_peer != ring::kProcNull && fill(e, e.receive, e.receive.buffer, 1, e.receive_peer, layout);
  return (e.attributes & kCallReceives) && e.peer != ring::kProcNull &&
         fill(e, e.receive, e.receive.buffer, 1, e.peer, layout);
}

bool send_layout(Event& e, Layout* layout) {
  if (e.attributes & kCallCollective) return e.comm != nullptr && e.comm->size > 0 && send_collective(e, layout);
  if (!has_packet(e) && !is_put(call_info(e.id))) return false;
  return !(e.attributes & kCallReceives) && !is_replace(e.id) && e.peer != ring::kProcNull &&
         fill(e, e.send, e.send.buffer, 1, e.peer, layout);
}

bool contribution_layout(Event& e, Layout* layout) {
  const Collective form = collective_of(e.id);
  if (!is_reduction(form) || e.comm == nullptr || (form == Collective::kReduce && inter(e) && e.peer < 0)) return false;
  Side side = in_place(e.send.buffer) ? e.receive : e.send;
  side.count = e.send.count;  // type and count of the call stand for both buffers
  if (is_reduce_scatter(form)) {
    const void* counts = e.receive.counts;
    side.count = counts == nullptr ? e.send.count * e.comm->size : 0;
    for (int64_t i = 0; counts != nullptr && i < e.comm->size; ++i) side.count += element(counts, e.large, i);
  }
  return fill(e, side, side.buffer, 1, -1, layout);
}

bool block_of(Thread& thread, const Layout& layout, int64_t index, Packet* packet) {
  packet->type = layout.types != nullptr ? type_map(thread, request_handle(layout.types, index)) : layout.type;
  packet->count = layout.counts != nullptr ? element(layout.counts, layout.wide_counts, index) : layout.count;
  if (packet->type == nullptr || packet->count <= 0) return false;
  int64_t offset = 0;
  if (layout.displacements != nullptr)
    offset =
        element(layout.displacements, layout.wide_displacements, index) * (layout.in_bytes ? 1 : packet->type->extent);
  else offset = index * packet->count * packet->type->extent;
  packet->buffer = layout.buffer + offset;
  packet->bytes = type_bytes(*packet->type, packet->count);
  return packet->bytes != 0;
}

bool block_at(Thread& thread, const Layout& layout, int64_t index, Packet* packet) {
  if (index == layout.own || !block_of(thread, layout, index, packet)) return false;
  int64_t low = 0, high = 0;
  type_span(*packet->type, packet->count, &low, &high);
  return host_memory(packet->buffer + low, static_cast<size_t>(high - low));
}

bool layout_keep(Layout* layout) {
  const size_t count_bytes = layout->wide_counts ? 8 : 4, place_bytes = layout->wide_displacements ? 8 : 4;
  const size_t blocks = static_cast<size_t>(layout->blocks),
               counts = layout->counts != nullptr ? blocks * count_bytes : 0;
  const size_t places = layout->displacements != nullptr ? blocks * place_bytes : 0;
  if (counts + places != 0) {
    const size_t first = (counts + 7) / 8 * 8;
    char* copies = static_cast<char*>(pool.allocate(first + places));
    if (copies == nullptr) return false;
    memcpy(copies, layout->counts, counts);
    layout->counts = counts != 0 ? copies : nullptr;
    if (places != 0) layout->displacements = memcpy(copies + first, layout->displacements, places);
    layout->copies = copies;
  }
  type_map_hold(layout->type);
  return true;
}

void layout_drop(Layout* layout) {
  type_map_release(layout->type);
  pool.release(layout->copies);
  layout->copies = nullptr;
}

int32_t partner(const Layout& layout, int64_t index) {
  const int64_t rank = layout.peer != -1 ? layout.peer : layout.blocks > 1 && !layout.neighbours ? index : -1;
  if (rank < 0) return -1;
  return layout.comm != nullptr ? comm_world_rank(*layout.comm, static_cast<int>(rank)) : static_cast<int32_t>(rank);
}

uint64_t total_bytes(Thread& thread, const Layout& layout) {
  uint64_t sum = 0;
  Packet packet;
  for (int64_t i = 0; i < layout.blocks; ++i) sum += block_at(thread, layout, i, &packet) ? packet.bytes : 0;
  return sum;
}

}  // namespace resil::fault
