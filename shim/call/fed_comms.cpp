// SPDX-License-Identifier: Apache-2.0
//
// See fed_comms.h. By handle, open addressing.

#include "shim/call/fed_comms.h"

#include <cstring>

#include "shim/base/hash.h"
#include "shim/call/parts.h"
#include "shim/runtime/block_pool.h"
#include "shim/runtime/memory.h"

namespace resil {

bool fed_any;

namespace {

FedComm* table;
uint32_t places, count;

uint32_t place_of(uint64_t handle) { return static_cast<uint32_t>(mix64(handle)) & (places - 1); }

FedComm* find(uint64_t handle) {
  for (uint32_t at = place_of(handle); table[at].handle != 0; at = (at + 1) & (places - 1))
    if (table[at].handle == handle) return &table[at];
  return nullptr;
}

void put(const FedComm& comm) {
  uint32_t at = place_of(comm.handle);
  while (table[at].handle != 0) at = (at + 1) & (places - 1);
  table[at] = comm;
}

/// At most half full.
bool grow() {
  if (2 * (count + 1) <= places) return true;
  const uint32_t before = places;
  FedComm* old = table;
  auto* larger = memory::map_array<FedComm>(before != 0 ? size_t{2} * before : 256);
  if (larger == nullptr) return false;
  table = larger;
  places = before != 0 ? 2 * before : 256;
  for (uint32_t i = 0; i < before; ++i)
    if (old[i].handle != 0) put(old[i]);
  memory::unmap_array(old, before);
  return true;
}

}  // namespace

bool fed_begin(uint64_t world) {
  FedComm comm = {world, part_place.members, part_place.rank, -1, -1, -1, nullptr};
  comm.members = memory::map_array<int32_t>(static_cast<size_t>(comm.size));
  if (comm.members == nullptr) return false;
  for (int32_t i = 0; i < comm.size; ++i) comm.members[i] = i;
  const bool added = fed_add(comm);
  memory::unmap_array(comm.members, static_cast<size_t>(comm.size));
  return fed_any = added;
}

bool fed_add(const FedComm& comm) {
  fed_remove(comm.handle);
  const int64_t all = int64_t{comm.size} + (comm.remote_size > 0 ? comm.remote_size : 0);
  FedComm kept = comm;
  kept.members = static_cast<int32_t*>(memory::blocks.allocate(static_cast<size_t>(all) * sizeof(int32_t)));
  if (kept.members == nullptr || !grow()) return false;
  memcpy(kept.members, comm.members, static_cast<size_t>(all) * sizeof(int32_t));
  put(kept);
  ++count;
  return true;
}

void fed_remove(uint64_t handle) {
  FedComm* comm = places != 0 ? find(handle) : nullptr;
  if (comm == nullptr) return;
  memory::blocks.release(reinterpret_cast<char*>(comm->members));
  --count;
  auto hole = static_cast<uint32_t>(comm - table);
  for (uint32_t at = (hole + 1) & (places - 1); table[at].handle != 0; at = (at + 1) & (places - 1)) {
    const uint32_t wanted = place_of(table[at].handle);
    if (((at - wanted) & (places - 1)) < ((at - hole) & (places - 1))) continue;  // it lies before the hole
    table[hole] = table[at];
    hole = at;
  }
  table[hole] = {};
}

bool comm_is_duplicated(CallId by) {
  return by == CallId::kMPI_Comm_dup || by == CallId::kMPI_Comm_dup_with_info || by == CallId::kMPI_Comm_idup ||
         by == CallId::kMPI_Comm_idup_with_info;
}

const FedComm* fed_find(uint64_t handle) { return places != 0 && handle != 0 ? find(handle) : nullptr; }

}  // namespace resil
