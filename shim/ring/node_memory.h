// SPDX-License-Identifier: Apache-2.0
//
// Memory of this rank that the other ranks of its node can map, by rank: a file in /dev/shm for each use. It is made
// before MPI_Init, so that it is there for all ranks when MPI_Init returns, and its name goes with the rank's report,
// or with the next job's sweep.
//
// Context: application's thread, in MPI_Init or on the first contact with a rank (system calls).
#pragma once

#include <cstddef>
#include <cstdint>

namespace resil {

constexpr char kNodeMemorySuffix[] = ".node";

/// First bytes of the memory; the rest is the owner's.
struct NodeMemory {
  uint64_t magic;  ///< last thing written
  uint64_t bytes;  ///< in all
  uint64_t pid_start, pid_namespace, nonce;  ///< as in the header of the ring file
  int32_t pid, rank, world_size, world;
  uint32_t held, reserved;
};
static_assert(sizeof(NodeMemory) <= 256);
constexpr size_t kNodeMemoryBegin = 256;  ///< the owner's part begins here, zeroed

/// What a rank's memories are for; it has at most one of each.
enum class NodeUse : uint8_t { kRecords, kReductions };
constexpr unsigned kNodeUses = 2;

/// This rank's. The ring must exist; rank and size are the launcher's. `reserved`: so many bytes from the start may be
/// stored into at once, 0: all. Null: no node-local memory (/dev/shm missing, full, or beyond the limit of file sizes),
/// or a launcher that does not tell the rank.
NodeMemory* node_memory_create(size_t bytes, NodeUse use = NodeUse::kRecords, size_t reserved = 0);
/// Takes room for a further part of it: a store into a part that has none kills the process where /dev/shm is full.
bool node_memory_reserve(NodeUse use, size_t offset, size_t bytes);
/// Another rank's, as that rank has published it. Null unless it is there and its process lives. Stays mapped.
NodeMemory* node_memory_open(int world_rank, NodeUse use = NodeUse::kRecords);
/// Takes the names away; what is mapped stays.
void node_memory_discard();
/// Removes a file of that kind if its process is gone; whether it did.
bool node_memory_sweep(int folder, const char* name);

}  // namespace resil
