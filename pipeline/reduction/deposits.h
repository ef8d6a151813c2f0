// SPDX-License-Identifier: Apache-2.0
//
// Where contributions to nonblocking and persistent reductions lie while the ranks of a node fold them: each rank has a
// pool that the node's other ranks have mapped since MPI_Init, and takes a deposit from it for each reduction. What
// finds no room there lies in a second pool, as large as can be, which is made and mapped when it is needed. Pools are
// memory without a name (memfd): the size of /dev/shm does not matter, and nothing of them outlives their processes.
//
// Context: application's thread, in MPI_Init or inside a reduction.
#pragma once

#include "pipeline/reduction/call.h"

namespace resil::reduction {

/// First bytes of a deposit; the contribution follows. Of one reduction all ranks use the counters in the first rank's.
struct Deposit {
  uint32_t left;  ///< ranks that may still read here
  uint32_t claimed, folded;  ///< blocks of the vector: given to a rank to fold; folded, visible to who acquires it
  uint32_t unused;
  uint64_t bytes;  ///< with this
  Deposit* next;  ///< the owner's list, by address
  char fill[32];

  char* cells() { return reinterpret_cast<char*>(this + 1); }
};
static_assert(sizeof(Deposit) == 64);

/// What a rank tells the others of its deposit.
struct DepositPlace {
  uint64_t bytes;  ///< of the contribution; 0: unknown
  uint64_t begin;  ///< in its pool
  uint64_t inode, pool_bytes;  ///< of the second pool; 0: in the first
  int64_t descriptor;  ///< of the second pool
};

/// What a rank tells of its first pool.
struct PoolShown {
  uint64_t bytes, inode;
  int32_t descriptor;  ///< open in that process during MPI_Init; -1: there is none
  int32_t pid;
  uint64_t pid_namespace;
};

/// Before MPI_Init, if this rank is not alone on its node: makes the pool.
void deposits_prepare(PoolShown* shown);
/// After it, all ranks of the job at once: maps the pools of this node's `node_ranks` ranks. `shown_by(rank)`: what
/// that rank tells; null: it is on another node.
void deposits_connect(const PoolShown* (*shown_by)(int world_rank), int node_ranks);

/// Do all ranks of this communicator reach each other's deposits? The same answer on all of them. `ranks`: room for
/// kNodeRanks; theirs in the world.
bool deposits_reach(const Call& call, int* ranks);

/// This rank's, to be read by `readers` ranks, itself among them. Never null: ends the job when there is no memory.
Deposit* deposit_take(uint64_t bytes, uint32_t readers, DepositPlace* place);
/// Another rank's or this one's. Never null, likewise.
Deposit* deposit_open(int world_rank, const DepositPlace& place);
/// This rank has read what it needs of it.
void deposit_close(Deposit* deposit);

}  // namespace resil::reduction
