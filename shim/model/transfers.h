// SPDX-License-Identifier: Apache-2.0
//
// Which data a call moves on this rank, one description for each direction: the argument that is significant here, its
// blocks, the ranks at their other end, and what MPI_IN_PLACE makes of them (MPI 4.1, chapters 3, 4, 6, 8, 12 and 14).
// Looks at significant arguments only: others may be uninitialised. No MPI call, no table: what is needed of the
// communicator is an argument.
//
// Three corners, on purpose:
//   - A block of no elements stays a block, but nobody may ask for its datatype or touch its address.
//   - MPI_Exscan on rank 0 receives nothing: its receive buffer is not significant. It contributes like all others.
//   - The call that makes a persistent or partitioned request is described as each start of it: it moves nothing
//   itself.
// Arguments that MPI refuses (MPI_IN_PLACE on an intercommunicator, or not at the root) move nothing.
#pragma once

#include <cstdint>

#include "shim/model/calls.h"
#include "shim/model/event.h"
#include "shim/ring/ring_format.h"

namespace resil {

/// A handle of an array of the program, by the ABI's size of handles (shim/tables/request_table.cpp).
uint64_t request_handle(const void* array, int64_t index);

/// A communicator as this rank sees it.
struct Members {
  int32_t rank, size;
  int32_t remote_size;  ///< -1: an intracommunicator
  int32_t indegree, outdegree;  ///< for neighborhood collectives; 0: no topology

  constexpr bool inter() const { return remote_size >= 0; }
  /// Ranks that a collective exchanges data with: those of the remote group, or all with this one.
  constexpr int64_t partners() const { return inter() ? remote_size : size; }
};

/// Is this MPI_IN_PLACE? (Backend::is_in_place.) Asked of significant arguments only.
using InPlace = bool (*)(const void* buffer);

/// Is this rank the root of the call? `root` as Event::peer.
constexpr bool is_root(int32_t root, const Members& m) { return m.inter() ? root == ring::kRootSelf : root == m.rank; }
inline bool is_root(const Event& e, const Members& m) { return is_root(e.peer, m); }
/// In the root's group without being the root: only communicator and root are significant, and nothing moves.
inline bool is_bystander(const Event& e, const Members& m) { return m.inter() && e.peer == ring::kProcNull; }

/// Element of an array of counts or displacements: int, or MPI_Count and MPI_Aint when `wide`.
inline int64_t array_element(const void* array, bool wide, int64_t index) {
  return wide ? static_cast<const int64_t*>(array)[index] : static_cast<const int*>(array)[index];
}
inline int64_t count_at(const Event& e, const DataArgument& side, int64_t index) {
  return array_element(side.counts, e.large, index);
}

/// Who is at the other end of a transfer's blocks.
enum class Partner : uint8_t {
  kRank,  ///< `peer`, for all blocks; negative: any source, or not known (MPI_Mrecv)
  kEach,  ///< block i: rank i (of the remote group)
  kNeighbor,  ///< block i: neighbor i
  kSeveral,  ///< more than one for the same data: broadcast and allgathered data, contributions, results; or a file
};

/// One direction of a call. Points into the arguments of the call.
struct Transfer {
  const void* buffer;
  int64_t count;  ///< elements of each block, unless `counts`
  uint64_t type;  ///< of all blocks, unless `types`
  const void* counts;  ///< int[], or MPI_Count[] when `wide_counts`; null: `count`
  const void* displacements;  ///< int[], or MPI_Aint[] when `wide_displacements`; null: block after block
  const void* types;  ///< handles; then displacements are in bytes. Null: `type`, and they are in its extents
  int64_t first, end;  ///< the blocks [first, end); none: nothing moves in this direction
  int64_t own;  ///< this rank's own block, when it stays where it is (MPI_IN_PLACE); -1: none
  int32_t peer;
  Partner partner;
  bool wide_counts, wide_displacements;
  bool in_place;  ///< what is sent lies in the receive buffer, where the result overwrites it

  bool any() const { return first < end; }
  int64_t count_of(int64_t block) const {
    return counts != nullptr ? array_element(counts, wide_counts, block) : count;
  }
  /// Only of blocks with elements.
  uint64_t type_of(int64_t block) const { return types != nullptr ? request_handle(types, block) : type; }
  /// Bytes from the buffer's address to the block's. `extent`: of its type.
  int64_t offset_of(int64_t block, int64_t extent) const {
    if (displacements == nullptr) return block * count * extent;
    return array_element(displacements, wide_displacements, block) * (types != nullptr ? 1 : extent);
  }
  /// Rank in the communicator (of the remote group of an intercommunicator); negative: not one, or not known.
  int32_t rank_of(int64_t block) const {
    return partner == Partner::kRank ? peer : partner == Partner::kEach ? static_cast<int32_t>(block) : -1;
  }
};

namespace transfers_detail {

inline Transfer nothing() {
  return {nullptr, 0, 0, nullptr, nullptr, nullptr, 0, 0, -1, -1, Partner::kSeveral, false, false, false};
}

/// The argument as one block.
inline Transfer whole(const DataArgument& side, int64_t count, Partner partner, int32_t peer = -1) {
  return {side.buffer, count, side.type, nullptr, nullptr, nullptr, 0, 1, -1, peer, partner, false, false, false};
}

inline Transfer message(const DataArgument& side, int32_t peer, int64_t partitions) {
  return peer == ring::kProcNull ? nothing() : whole(side, side.count * partitions, Partner::kRank, peer);
}

/// The argument as blocks; v and w by their arrays. Displacements of w are MPI_Aint for neighborhoods.
inline Transfer blocks(const Event& e, const DataArgument& side, int64_t count, Partner partner) {
  return {side.buffer,
          side.counts != nullptr ? 0 : side.count,
          side.types != nullptr ? 0 : side.type,
          side.counts,
          side.counts != nullptr ? side.displacements : nullptr,
          side.types,
          0,
          count,
          -1,
          -1,
          partner,
          e.large,
          e.large || (side.types != nullptr && partner == Partner::kNeighbor),
          false};
}

/// What is sent in place lies among the received blocks.
inline Transfer from_received(const Event& e, const Members& m) {
  if (m.inter()) return nothing();
  Transfer t = blocks(e, e.receive, m.size, Partner::kEach);
  t.in_place = true;
  return t;
}

/// Type and count of a reduction stand for both buffers.
inline Transfer contribution(const Event& e, const Members& m, Collective operation, InPlace is_in_place) {
  if (operation == Collective::kReduce && m.inter() && e.peer < 0) return nothing();
  Transfer t = whole(e.send, e.send.count, Partner::kSeveral);
  if (is_reduce_scatter(operation)) {
    t.type = e.receive.type;
    t.count = operation == Collective::kReduceScatterBlock ? e.receive.count * m.size : 0;
    for (int64_t i = 0; operation == Collective::kReduceScatter && i < m.size; ++i)
      t.count += count_at(e, e.receive, i);
  }
  if (!is_in_place(e.send.buffer)) return t;
  if (operation == Collective::kReduce && !is_root(e, m)) return nothing();
  t.buffer = e.receive.buffer;
  t.in_place = true;
  return t;
}

inline Transfer collective_sent(const Event& e, const Members& m, Collective operation, InPlace is_in_place) {
  switch (operation) {
    case Collective::kNone:
    case Collective::kBarrier: return nothing();
    case Collective::kBcast: return is_root(e, m) ? whole(e.send, e.send.count, Partner::kSeveral) : nothing();
    case Collective::kGather:
      if (is_bystander(e, m) || (m.inter() && is_root(e, m)) || is_in_place(e.send.buffer)) return nothing();
      return whole(e.send, e.send.count, Partner::kRank, e.peer);
    case Collective::kScatter: {
      if (!is_root(e, m)) return nothing();
      Transfer t = blocks(e, e.send, m.partners(), Partner::kEach);
      if (!m.inter() && is_in_place(e.receive.buffer)) t.own = m.rank;
      return t;
    }
    case Collective::kAllgather: {
      if (!is_in_place(e.send.buffer)) return whole(e.send, e.send.count, Partner::kSeveral);
      Transfer t = from_received(e, m);
      if (t.any()) t.first = m.rank, t.end = m.rank + 1;
      t.partner = Partner::kSeveral;
      return t;
    }
    case Collective::kAlltoall: {
      if (!is_in_place(e.send.buffer)) return blocks(e, e.send, m.partners(), Partner::kEach);
      Transfer t = from_received(e, m);
      if (t.any()) t.own = m.rank;
      return t;
    }
    case Collective::kReduce:
    case Collective::kAllreduce:
    case Collective::kReduceScatter:
    case Collective::kReduceScatterBlock:
    case Collective::kScan:
    case Collective::kExscan: return contribution(e, m, operation, is_in_place);
    case Collective::kNeighborAllgather:
      return m.outdegree > 0 ? whole(e.send, e.send.count, Partner::kSeveral) : nothing();
    case Collective::kNeighborAlltoall: return blocks(e, e.send, m.outdegree, Partner::kNeighbor);
  }
  return nothing();
}

inline Transfer collective_received(const Event& e, const Members& m, Collective operation, InPlace is_in_place) {
  switch (operation) {
    case Collective::kNone:
    case Collective::kBarrier: return nothing();
    case Collective::kBcast:  // its one argument is filed under `send`
      return is_bystander(e, m) || is_root(e, m) ? nothing() : whole(e.send, e.send.count, Partner::kRank, e.peer);
    case Collective::kGather: {
      if (!is_root(e, m)) return nothing();
      Transfer t = blocks(e, e.receive, m.partners(), Partner::kEach);
      if (!m.inter() && is_in_place(e.send.buffer)) t.own = m.rank;
      return t;
    }
    case Collective::kScatter:
      if (is_bystander(e, m) || (m.inter() && is_root(e, m)) || is_in_place(e.receive.buffer)) return nothing();
      return whole(e.receive, e.receive.count, Partner::kRank, e.peer);
    case Collective::kAllgather:
    case Collective::kAlltoall: {
      Transfer t = blocks(e, e.receive, m.partners(), Partner::kEach);
      if (!m.inter() && is_in_place(e.send.buffer)) t.own = m.rank;
      return t;
    }
    case Collective::kReduce: return is_root(e, m) ? whole(e.receive, e.receive.count, Partner::kSeveral) : nothing();
    case Collective::kExscan:
      if (m.rank == 0) return nothing();
      [[fallthrough]];
    case Collective::kAllreduce:
    case Collective::kReduceScatterBlock:
    case Collective::kScan: return whole(e.receive, e.receive.count, Partner::kSeveral);
    case Collective::kReduceScatter: return whole(e.receive, count_at(e, e.receive, m.rank), Partner::kSeveral);
    case Collective::kNeighborAllgather:
    case Collective::kNeighborAlltoall: return blocks(e, e.receive, m.indegree, Partner::kNeighbor);
  }
  return nothing();
}

}  // namespace transfers_detail

/// Does what this rank gets overwrite what it gives? The same buffer twice is not allowed, but libraries that do not
/// look take it for MPI_IN_PLACE.
inline bool is_overwritten(const Event& e, InPlace is_in_place) {
  const CallInfo& info = call_info(e.id);
  if (info.call_class == CallClass::kSendReceiveReplace) return true;
  if (is_reduction(info.collective)) return is_in_place(e.send.buffer) || e.send.buffer == e.receive.buffer;
  return (info.collective == Collective::kAllgather || info.collective == Collective::kAlltoall) &&
         is_in_place(e.send.buffer);
}

/// What this rank gives by a call that is no collective: send buffer, origin, data for a file. Of MPI_Get_accumulate
/// and MPI_Fetch_and_op with MPI_NO_OP the origin is not significant; that is for the caller to find out.
[[gnu::always_inline]] inline Transfer single_sent(const Event& e, const CallInfo& info) {
  using namespace transfers_detail;
  switch (info.call_class) {
    case CallClass::kSend:
    case CallClass::kSendReceive:
    case CallClass::kSendReceiveReplace: return message(e.send, e.peer, 1);
    case CallClass::kPartitionedSend: return message(e.send, e.peer, e.partitions);  // they lie one after the other
    case CallClass::kRma: return info.rma != RmaOperation::kGet ? message(e.send, e.peer, 1) : nothing();
    case CallClass::kFile:
      return info.file == FileCall::kWrite && info.initiation != Initiation::kSplitEnd
                 ? whole(e.send, e.send.count, Partner::kSeveral)
                 : nothing();
    default: return nothing();
  }
}

/// What it gets, and where.
[[gnu::always_inline]] inline Transfer single_received(const Event& e, const CallInfo& info) {
  using namespace transfers_detail;
  switch (info.call_class) {
    case CallClass::kReceive:
    case CallClass::kMatchedReceive: return message(e.receive, e.peer, 1);
    case CallClass::kSendReceive: return message(e.receive, e.receive_peer, 1);
    case CallClass::kSendReceiveReplace: return message(e.send, e.receive_peer, 1);
    case CallClass::kPartitionedReceive: return message(e.receive, e.peer, e.partitions);
    case CallClass::kRma:
      return info.rma != RmaOperation::kPut && info.rma != RmaOperation::kAccumulate ? message(e.receive, e.peer, 1)
                                                                                     : nothing();
    case CallClass::kFile:
      return info.file == FileCall::kRead && info.initiation != Initiation::kSplitEnd
                 ? whole(e.receive, e.receive.count, Partner::kSeveral)
                 : nothing();
    default: return nothing();
  }
}

/// What this rank gives: that, or its data in a collective, contributions to reductions included.
inline Transfer sent(const Event& e, const Members& m, InPlace is_in_place) {
  const CallInfo& info = call_info(e.id);
  return info.call_class == CallClass::kCollective
             ? transfers_detail::collective_sent(e, m, info.collective, is_in_place)
             : single_sent(e, info);
}

/// What this rank gets, and where.
inline Transfer received(const Event& e, const Members& m, InPlace is_in_place) {
  const CallInfo& info = call_info(e.id);
  return info.call_class == CallClass::kCollective
             ? transfers_detail::collective_received(e, m, info.collective, is_in_place)
             : single_received(e, info);
}

}  // namespace resil
