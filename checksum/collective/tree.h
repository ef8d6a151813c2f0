// SPDX-License-Identifier: Apache-2.0
//
// With whom a rank compares notes: the binomial tree over the ranks of a communicator, and the edges of a topology.
#pragma once

#include <cstddef>
#include <cstdint>

#include "checksum/ledger/ledger.h"

namespace resil {
struct CommInfo;
}

namespace resil::collective {

constexpr uint32_t kMostChildren = 31;

/// Place of this rank in the binomial tree over the (local) group: the parent is the rank, counted from the root, with
/// the lowest set bit cleared. At most kMostChildren, half of all ranks have none.
struct Tree {
  uint64_t comm;  ///< job-wide id
  int32_t root;  ///< rank in the local group
  uint32_t child_count;  ///< of those that can be reached
  uint32_t missing;  ///< children that cannot
  ledger::Reason reason;  ///< why; kNone: all of the tree around this rank can be reached
  ledger::Peer* parent;  ///< null: this is the root, or it cannot be reached
  ledger::Peer* children[kMostChildren];
};

/// The tree, from a cache or worked out into `room`; valid until the next call of this function on this thread.
const Tree& tree_of(CommInfo& comm, int root, Tree& room);

/// Another rank of the local group, whatever the kind of communicator. Null and `why` as in ledger::peer_of.
ledger::Peer* local_peer(CommInfo& comm, int rank, ledger::Reason* why);

/// One edge of a topology.
struct Edge {
  ledger::Peer* peer;  ///< null: MPI_PROC_NULL (`why` is kNone), or unreachable
  ledger::Reason why;
  bool repeated;  ///< more than one edge in this direction joins the two ranks: their order is not defined
};

struct Neighbours {
  uint64_t comm;
  int32_t in, out;
  uint32_t users;  ///< calls that look at it now
  bool cached;
  size_t memory;
  Edge* sources() { return reinterpret_cast<Edge*>(this + 1); }
  Edge* destinations() { return sources() + in; }
};

/// Null: no topology, or no memory (`why`). Give it back.
Neighbours* neighbours_take(CommInfo& comm, ledger::Reason* why);
void neighbours_give(Neighbours* neighbours);

}  // namespace resil::collective
