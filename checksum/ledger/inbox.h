// SPDX-License-Identifier: Apache-2.0
//
// Streams of records between the ranks of one node. Each rank owns an inbox in node-local memory with room for a number
// of streams; a rank that has a record for it opens the inbox and claims one. Both ends accept records by messages as
// well, so nothing is agreed: who finds no inbox, or no stream left in it, sends messages.
//
// Context: application's threads. See each function.
#pragma once

#include <cstddef>
#include <cstdint>

namespace resil::ledger {

struct Peer;

/// How an inbox is divided: at most 1 MiB and a page, whatever the number of ranks.
struct InboxShape {
  uint32_t streams, slots;  ///< per stream, a power of two
};
/// `local_size`: ranks on this node, 0 unknown.
InboxShape inbox_shape(int local_size);

/// Before MPI_Init, so that all inboxes are there when it returns. False: this rank has none (one rank on its node; no
/// node-local memory, then `why` says it).
bool inbox_create(const char** why);
/// After MPI_Init: an inbox made for a rank that MPI has given to another process is given up.
void inbox_connect();
/// MPI_Finalize, MPI_Abort: takes the name away. Open streams stay.
void inbox_discard();

/// The stream to a rank, on the first record for it; outside the ledger's lock (system calls). False: by messages.
bool inbox_open(Peer& to);
/// With the token: ranks that have opened a stream to this one since, each once; its reading end is open. Null: no
/// more.
Peer* inbox_next_sender();

}  // namespace resil::ledger
