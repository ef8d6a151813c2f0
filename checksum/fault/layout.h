// SPDX-License-Identifier: Apache-2.0
//
// Which packets a call moves: where the blocks of its receive or send buffer lie and who is at their other end. Only
// arguments that are significant on this rank are looked at. May ask MPI for datatypes and topologies (local calls).
#pragma once

#include <cstdint>

#include "checksum/fault/packet.h"
#include "shim/model/calls.h"

namespace resil {
struct CommInfo;
struct Event;
struct Thread;
}

namespace resil::fault {

struct Layout {
  char* buffer;
  int64_t count;  ///< of each block, unless `counts`
  const void* counts;  ///< int[], or MPI_Count[] when `wide_counts`
  const void* displacements;  ///< int[], or MPI_Aint[] when `wide_displacements`; null: block after block
  const void* types;  ///< handles; null: `type`
  const TypeMap* type;
  int64_t blocks;  ///< 0: the call moves nothing here
  int64_t own;  ///< a block that stays where it is (MPI_IN_PLACE), -1: none
  int32_t peer;  ///< communicator rank at the other end of all blocks; -1: block i is rank i's
  bool wide_counts, wide_displacements, in_bytes, neighbours;
  char* copies;  ///< of the arrays: layout_keep
  CommInfo* comm;  ///< null: one-sided, MPI_Mrecv
};

/// One-sided calls with a packet of this rank. MPI_Rget is left out: its request says when the data is there.
constexpr bool is_put(const CallInfo& info) { return info.rma == RmaOperation::kPut; }
constexpr bool is_get(const CallInfo& info) { return info.rma == RmaOperation::kGet && !info.has(kCallStarts); }

/// False: nothing that could be damaged (no data, other family of calls, datatype not known).
bool receive_layout(Event& event, Layout* layout);
bool send_layout(Event& event, Layout* layout);
/// What this rank contributes to a reduction, MPI_IN_PLACE included: one block.
bool contribution_layout(Event& event, Layout* layout);

/// For what goes on after the call (nonblocking, persistent): holds the datatype and copies the arrays of counts and
/// displacements, which programs free as soon as the call has returned, as the libraries let them. Not for layouts with
/// `types`. False: no memory, nothing is kept. Takes memory from pool.h; any thread.
bool layout_keep(Layout* layout);
void layout_drop(Layout* layout);  ///< undoes layout_keep

/// Block `index`, also one that stays in place; false: empty, or (`packet->type` null) its datatype is not known.
bool block_of(Thread& thread, const Layout& layout, int64_t index, Packet* packet);
/// Block `index`; false: empty, in place or not host memory.
bool block_at(Thread& thread, const Layout& layout, int64_t index, Packet* packet);
/// World rank at the other end of a block; -1: not known.
int32_t partner(const Layout& layout, int64_t index);
uint64_t total_bytes(Thread& thread, const Layout& layout);

}  // namespace resil::fault
