// SPDX-License-Identifier: Apache-2.0
//
// What the ledger's files share among themselves: matching queues, transport, messages, handlers.
#pragma once

#include "checksum/ledger/peer.h"

namespace resil::ledger {

constexpr uint32_t kBatchRecords = 92;  ///< records in one message of the private communicator
constexpr uint64_t kCreditRecords = 8192;  ///< records on the way to one rank before it must have taken some
constexpr uint64_t kCreditEvery = 2048;  ///< records taken between two credits
constexpr double kShortTimeout = 0.05;  ///< seconds, for a rank that has been waited for in vain
constexpr uint32_t kReceiveRing =
    2;  ///< receives posted on the private communicator: MPICH searches all that are posted
constexpr uint32_t kMaxPages = 4096;  ///< 16 MiB of outgoing records and messages, all ranks together
constexpr uint32_t kMaxNodes = 1u << 20;  ///< 64 MiB of unmatched records, all matching queues together

/// First bytes of every message on the private communicator.
struct MessageHeader {
  uint8_t kind;  ///< Kind
  uint8_t has_host;  ///< the sender's host name follows the payload (first batch to a rank)
  uint16_t count;  ///< records
  int32_t source;  ///< world rank
  uint32_t bytes;  ///< payload
  uint32_t sums_hold;  ///< 1: `sum` covers all records so far
  uint64_t first;  ///< batch: ordinal of the first record; good-bye: records announced in all
  uint64_t total, sum;  ///< records for matching queues announced so far and the sum over them; credit: ordinal taken
};
static_assert(sizeof(MessageHeader) == 40);

/// One outgoing message. 4 KiB.
struct Page {
  Page* next;
  uint64_t request;
  MessageHeader header;
  union {
    Record records[kBatchRecords];
    char payload[kMessageBytes];
  };
  char host[kHostBytes];
};
static_assert(sizeof(Page) <= 4096 && kBatchRecords * sizeof(Record) <= kMessageBytes);

// --- match_queues.cpp: all under the lock ---------------------------------------------------------------------------
bool match_queues_create();
void match_queue_sent(Peer& from, const Record& record, uint64_t ordinal, Difference* difference);
void match_queue_received(Peer& from, const Record& record, uint64_t evidence, Difference* difference);
/// Takes records from the peer's stream, at most so many, while each meets the own record that waits for it and is
/// right, or may wait in the queue itself. Returns how many, and what the last one said of the sums; the next one is
/// for match_queue_sent().
uint32_t match_queues_take(Peer& from, uint32_t most, uint64_t* total, uint64_t* sum);
void match_queue_put_back(Peer& from, const Record& record, uint64_t evidence, Difference* difference);
/// Gives up all unmatched records of a peer; from now on its sums decide.
void match_queues_abandon(Peer& peer);
/// At a drain: pairs what is left in multiset matching queues of a peer, when both sides left as much. One at a time.
bool match_queues_pair_leftovers(Peer& peer, Difference* difference);
/// Takes out a block or result of a collective that this rank has, and the peer has announced none to it; `other`: what
/// the peer announced for the same call. False: there is none (any more).
bool match_queues_take_unanswered(Peer& peer, Record* own, Record* other, bool* has_other);
/// Could the sums decide what the matching queues of a lost peer cannot?
void sums_compare(Peer& peer);
// --- transport.cpp -----------------------------------------------------------------------------------------------
bool transport_create();  ///< before_init: memory
bool transport_start();  ///< after_init: posts receives
void transport_stop();  ///< before_finalize: takes them back
void transport_append(Thread& thread, Peer& to, const Record& record, bool at_once);
void transport_flush(Thread& thread);
uint64_t transport_oldest();  ///< ticks when the oldest unsent record was made, 0: none
bool transport_flush_peer(Thread& thread, Peer& peer);
extern uint64_t messages_taken;  ///< so far
/// Takes at most so many messages that have arrived, and what is in the streams of this node's ranks.
void transport_poll(Thread& thread, uint32_t messages = 64);
/// The streams only: no call into MPI. Each call looks at some of them.
void transport_take_streams(Thread& thread);
/// At most so many records of the stream from that rank: a look beyond them would take the next slot from the core that
/// is about to write it. False: there is no stream.
bool transport_take_stream(Thread& thread, Peer& from, uint64_t most);
/// Records sent so far, all ranks together: through shared memory, by messages.
void transport_records(uint64_t* shared, uint64_t* messages);
/// Unsent records, then "no more will come". False: not now.
bool transport_say_bye(Peer& peer);
bool transport_idle();  ///< nothing of ours is on its way out

// --- handlers ----------------------------------------------------------------------------------------------------
extern void (*space_handlers[static_cast<int>(Space::kCount)])(Thread&, Peer&, const Record&);
extern void (*mismatch_handlers[static_cast<int>(Space::kCount)])(Thread&, Peer&, const Record&, const Record&);
extern void (*kind_handlers[16])(Thread&, Peer&, const void*, size_t);

}  // namespace resil::ledger
