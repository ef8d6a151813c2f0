// SPDX-License-Identifier: Apache-2.0
//
// Entries of the kind peer (chunked.h): the sender's device writes into the receiver's. The receiver gives device
// memory of resil's own, never the program's buffer: which receive gets a message is known only when its head has
// matched. So the copy needs nobody but its sender, who may have completed it before the receiver comes by; the
// receiver then copies from there into the program's buffer, on its own device.
//
// Copies between devices are *deferred*: they begin when the program has started all it wants to start, and behind all
// copies to the host that are under way, so that what has to cross the network is not held up by what has not.
//
// Inside chunked*.cpp only; chunked.h says when.
#pragma once

#include "pipeline/staging/chunked.h"

namespace resil::staging {

/// RESIL_STAGE_PEER, bytes of device memory that entries may take; 0: none. Set before MPI_Init returns.
extern constinit uint64_t chunked_peer_memory;

/// Same for all processes of one running system; with RESIL_NODE_RANKS, of one pretended node. 0: not known.
uint64_t chunked_node();

// --- Receiver -------------------------------------------------------------------------------------------------------

/// May a rank of that node be given device memory for so much? Looks at what is left of it.
bool chunked_peer_wanted(int32_t from, uint64_t node, uint64_t bytes, gpu::Device& device);
/// Takes it for the entry (its `cut`, `from` and `device` are set), with a handle for another process. False: it cannot
/// be had, or cannot be shared; nothing is held.
bool chunked_peer_take(Entry& entry, gpu::IpcHandle* handle);
/// Gives it back. `shared`: its sender may have opened it: it is kept.
void chunked_peer_give(Entry& entry, bool shared);
/// That sender cannot open what this rank exports.
void chunked_peer_refused(int32_t from);
/// The word has come: starts what brings the message from the entry's memory to the program's, or to the host. False:
/// the runtime refused; the message has failed.
bool chunked_peer_empty(Entry& entry, Message& op);
/// Has the entry's memory been read? Once only when it has.
gpu::State chunked_peer_emptied(Entry& entry);
/// It has: what was needed on the host is given back.
void chunked_peer_clear(Entry& entry);

// --- Sender ---------------------------------------------------------------------------------------------------------

/// The grant's memory can be written from that device; else it never can.
bool chunked_peer_open(Grant& grant, gpu::Device& device);
/// To be copied, but not yet.
void chunked_peer_defer(Sending& sending);
/// Starts all that has been deferred.
void chunked_peers_begin();
/// Is the copy done? `wait`: until it is; starts it if it has not been.
gpu::State chunked_peer_state(Sending& sending, bool wait);
/// Before the sending is given back, if its copy may be under way.
void chunked_peer_leave(Sending& sending);
/// MPI_Finalize.
void chunked_peer_close(Grant& grant);

}  // namespace resil::staging
