// SPDX-License-Identifier: Apache-2.0
//
// What the files of the transport share. "With the token": by its holder only (transport.cpp).
#pragma once

#include "checksum/ledger/parts_internal.h"
#include "shim/runtime/mailbox.h"

namespace resil::ledger {

constexpr PrivateTag kTag = tags::kLedger[0];  ///< of everything the ledger sends on the private communicator

struct Incoming {
  MessageHeader header;
  union {
    Record records[kBatchRecords];
    char payload[kMessageBytes];
  };
  char host[kHostBytes];
};

// --- pages.cpp ---------------------------------------------------------------------------------------------------
/// Under the lock: an empty page, null: no memory, or the bound is reached.
Page* page_allocate();
void page_release(Page* page);
/// Sends a page, which belongs to MPI until its request is complete.
void launch(Page* page, Peer& to);
/// With the token: takes pages back whose messages are out.
void reap(bool now = false);
bool anything_in_flight();

// --- arrivals.cpp, all with the token ----------------------------------------------------------------------------
/// A message, after what its sender had put into its stream before.
void take(Thread& thread, const Incoming& message);
/// At most `most` records from a rank's stream, as far as their turn has come.
void take_stream(Thread& thread, Peer& from, uint32_t most);
/// What is in some of the streams; all have their turn.
void take_some_streams(Thread& thread);
/// Ranks that have begun to send through this node's memory.
void find_streams();

}  // namespace resil::ledger
