// SPDX-License-Identifier: Apache-2.0
//
// The other rank as the ledger knows it, and the usual case of announcing to it and expecting of it, inline: for the
// ledger, for messages (checksum/p2p) and for the usual collectives. Not for one-sided checks.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "checksum/ledger/ledger.h"
#include "checksum/ledger/stream.h"
#include "shim/base/spinlock.h"
#include "shim/tables/tables.h"

namespace resil::ledger {

constexpr size_t kHostBytes = 64;

enum Medium : uint8_t { kMediumUnknown, kMediumChosen, kMediumBeingChosen };
/// Records of one side in the order of the stream, while nothing of that rank waits in matching queues
/// (match_queues.cpp).
constexpr uint32_t kQueue = 256;
struct Queue {
  struct Item {
    Record record;
    uint64_t extra;  ///< own records: evidence; the sender's: ordinal
  };
  uint32_t head, count;
  bool own;  ///< whose records wait: this rank's (received), or the peer's (sent)
  alignas(64) Item items[kQueue];
};

struct Page;

struct Peer {
  int32_t world_rank;
  bool host_told;  ///< a message has been sent there
  bool bye_sent, bye_received;
  bool bye_in_stream;  ///< as a record
  bool addressed, heard;  ///< messages other than records went there, came from there
  bool asks;  ///< it waits for records of this rank
  bool last_told;  ///< it knows how many records this rank has announced in all
  bool gone;  ///< dead, in a job that goes on: nothing more comes, nothing is waited for
  bool last_known;  ///< `last` holds: it is in MPI_Finalize and announces no more
  bool dirty;  ///< in the list of ranks with unsent records
  bool lost;  ///< its records cannot be matched one by one now, only by sums
  bool overdue;  ///< strict: the last wait for its records was in vain
  bool dropped;  ///< records for it found no memory since the last page
  bool sums_hold_out, sums_hold_in;
  char host[kHostBytes];
  uint8_t medium;  ///< Medium of the records for it, once one had to be sent
  bool in_pages;  ///< the stream was full: records go by messages until those are out
  bool no_return;  ///< for good: a message failed, so that the other side cannot tell what is still to come
  bool owed;  ///< strict: in the list of ranks whose records are waited for
  Peer* next_owed;
  // Outgoing.
  StreamOut out;  ///< to a rank of this node
  Page* filling;  ///< partly filled page, null: none
  Page *held_first, *held_last;  ///< full pages that wait for credit
  Peer* next_dirty;
  uint64_t announced;  ///< records so far
  uint64_t summed, sum_out;  ///< of these, the ones for matching queues, and the sum over them
  uint64_t flushed, credited;  ///< ordinals: the records before it went to MPI; were taken by the other side
  // Incoming.
  StreamIn in;  ///< from a rank of this node
  Queue* queue;
  uint64_t match_queue_nodes;  ///< records of and for it that wait in matching queues
  uint64_t next_ordinal;  ///< of the next record expected in the stream
  uint64_t taken_by_messages, credit_given;  ///< records; the same, as the other side was told
  uint64_t expected, sum_in;  ///< own records of packets received from it
  uint64_t own_pending;  ///< of these, without the sender's record
  uint64_t deferred;  ///< strict: of these, given up waiting for
  uint64_t given_up;  ///< of these, those that a drain has waited for in vain
  uint64_t last;  ///< records that it has announced in all
  uint64_t pending_bytes;
  uint64_t total_there, sum_there;  ///< as its last message said
  bool sums_hold_there;
};

extern bool is_concurrent, is_full, is_strict;
extern bool is_straight;  ///< connected, one thread at a time, cheap blame: most runs
extern bool is_plain;  ///< and lazy
extern SpinLock ledger_lock;

/// The ledger's lock, free of charge below MPI_THREAD_MULTIPLE.
struct Guard : OptionalGuard {
  Guard() : OptionalGuard(ledger_lock, is_concurrent) {}
};

/// Looks that find nothing take a fiftieth of the time at most, because one may make MPI walk all that it has pending;
/// but the next one is never more than 10 ms off. Threads may overwrite each other's word: a look early or late.
class Backoff {
 public:
  bool is_due(uint64_t now) const { return now >= __atomic_load_n(&not_before_, __ATOMIC_RELAXED); }
  void in_vain(uint64_t begin, uint64_t end, uint64_t at_most) {
    const uint64_t pause = (end - begin) * 50;
    __atomic_store_n(&not_before_, end + (pause < at_most ? pause : at_most), __ATOMIC_RELAXED);
  }

 private:
  uint64_t not_before_;
};
extern uint64_t old_ticks;  ///< 10 ms

// --- peers.cpp ---------------------------------------------------------------------------------------------------
bool peers_create(int world_size);
extern Peer** peer_table;  ///< by world rank; null: not connected
/// peer_of(comm, rank, why) for the usual case, MPI_COMM_WORLD and its duplicates in order.
inline Peer* fast_path_peer(CommInfo& comm, int rank, Reason* why) {
  if (comm.world_ranks_are_ranks && peer_table != nullptr && peer_table[rank] != nullptr) [[likely]]
    return peer_table[rank];
  return peer_of(comm, rank, why);
}
Peer* peer_find(int world_rank);  ///< null: not yet
Peer* peer_by_index(uint32_t index);  ///< in order of first contact; null: no more
bool peer_is_self(const Peer& peer);

struct Coverage {
  uint64_t checked_messages, checked_bytes, uncovered_messages[static_cast<int>(Reason::kCount)],
      uncovered_bytes[static_cast<int>(Reason::kCount)], mismatches, deferred, by_sum, untracked;
};
extern Coverage coverage;

// --- match_queues.cpp --------------------------------------------------------------------------------------------
/// What to do once the lock is free: a difference was found.
struct Difference {
  bool found = false;
  bool calls = false;  ///< the calls do not belong together (calls.h)
  Record sent, received;
  uint64_t ordinal, evidence;
};
/// What a record adds to the sums: matching queue, length and digest through a 64-bit mixer; no order.
inline uint64_t match_queue_sum(uint64_t match_queue, uint64_t digest, uint64_t bytes) {
  uint64_t mixed = (digest ^ match_queue) * 0xbf58476d1ce4e5b9;
  mixed = ((mixed ^ mixed >> 31) + bytes) * 0x94d049bb133111eb;
  return mixed ^ mixed >> 29;
}
inline uint64_t record_sum(const Record& record) {
  return match_queue_sum(record.comm + record.tag * 0x9e3779b97f4a7c15 + record.space, record.digest, record.bytes);
}
template <Space space>
inline uint64_t record_sum(const PlainRecord& record) {
  return match_queue_sum(
      record.comm + static_cast<uint32_t>(record.tail) * 0x9e3779b97f4a7c15 + static_cast<unsigned>(space),
      record.digest, record.bytes());
}

/// announce() for the usual case: below MPI_THREAD_MULTIPLE, a digest, room in the stream. False: not that case,
/// nothing was done. `space`: the record's, one without a handler of its own.
template <Space space = Space::kMessage>
[[gnu::always_inline]] inline bool announce_plain(Peer& to, const PlainRecord& record) {
  if (!to.out.is_open() || to.in_pages) [[unlikely]]
    return false;
  const uint64_t total = to.summed + 1, sum = to.sum_out + record_sum<space>(record);
  if (!to.out.put(record, to.announced, total | (to.sums_hold_out ? kSumsHold : 0), sum)) [[unlikely]]
    return false;
  to.announced += 1;
  to.summed = total;
  to.sum_out = sum;
  return true;
}

/// match_queue_received() and the counts of expect_quietly() for the usual case: below MPI_THREAD_MULTIPLE, a digest,
/// no evidence, nothing in matching queues, and the record of the sender right or not there. False: not that case,
/// nothing was done.
template <Space space = Space::kMessage>
[[gnu::always_inline]] inline bool expect_plain(Peer& from, const PlainRecord& record) {
  Queue* queue = from.queue;
  if (queue == nullptr || from.lost || from.match_queue_nodes != 0) [[unlikely]]
    return false;
  if (queue->count == 0 || queue->own) {
    if (queue->count == kQueue) [[unlikely]]
      return false;
    queue->own = true;
    Queue::Item& item = queue->items[(queue->head + queue->count++) % kQueue];
    record_store(item.record, record);
    item.extra = 0;
    from.own_pending += 1;
    from.pending_bytes += record.bytes();
  } else {
    const Record& sent = queue->items[queue->head].record;
    if (sent.digest != record.digest || sent.comm != record.comm) return false;
    if constexpr (space == Space::kMessage) {
      if (((record_tail(sent) ^ record.tail) & kPlainMatchQueue) != 0) return false;
      const uint64_t amount = record_word(sent, kAmountWord), place = record_word(sent, kPlaceWord);
      if ((amount != record.amount || ((place ^ record.place) >> kLowBits) != 0) &&
          (sent.bytes != record.bytes() || !types_match(sent.type(), record.type()))) [[unlikely]]
        return false;
    } else if (!same_collective(sent, record.amount, record.place, record.tail)) {
      return false;
    }
    queue->head = (queue->head + 1) % kQueue;
    queue->count -= 1;
    coverage.checked_messages += 1;
    coverage.checked_bytes += record.bytes();
  }
  from.expected += 1;
  from.sum_in += record_sum<space>(record);
  return true;
}

/// Strict: the same, where the sender's record is the next one of its stream, and right. Else nothing was done; then
/// expect_plain(), and owe().
[[gnu::always_inline]] inline bool expect_at_once(Peer& from, const PlainRecord& record) {
  Queue* queue = from.queue;
  if (queue == nullptr || queue->count != 0 || from.lost || from.match_queue_nodes != 0) [[unlikely]]
    return false;
  const StreamSlot* slot = from.in.next();  // nobody else reads: who holds the token is no caller of this
  if (slot == nullptr || slot->ordinal != static_cast<uint32_t>(from.next_ordinal)) return false;
  const Record& sent = slot->record;
  if (sent.digest != record.digest || sent.comm != record.comm || record_word(sent, kAmountWord) != record.amount ||
      (record_word(sent, kPlaceWord) ^ record.place) >> kLowBits != 0 ||
      ((record_tail(sent) ^ record.tail) & kPlainMatchQueue) != 0) [[unlikely]]
    return false;
  from.total_there = slot->total & ~kSumsHold;
  from.sum_there = slot->sum;
  from.sums_hold_there = (slot->total & kSumsHold) != 0;
  from.next_ordinal += 1;
  from.in.advance();
  from.expected += 1;
  from.sum_in += record_sum<Space::kMessage>(record);
  coverage.checked_messages += 1;
  coverage.checked_bytes += record.bytes();
  return true;
}

// --- transport.cpp -----------------------------------------------------------------------------------------------
uint32_t transport_dirty();  ///< ranks with unsent records
const uint32_t* transport_dirty_word();  ///< where that is

// --- ledger.cpp --------------------------------------------------------------------------------------------------
/// expect() without what may call MPI: for callers that hold a lock of their own. Then raise_difference, expected.
void expect_quietly(Peer& from, const Record& record, uint64_t evidence, Difference* difference);
void expected(Thread& thread);
extern int32_t until_look;  ///< records until the next look at what has arrived
void look_around(Thread& thread);
/// expected() where is_straight holds.
inline void expected_plainly(Thread& thread) {
  if (--until_look <= 0) [[unlikely]]
    look_around(thread);
}
/// A request that the shim's table had no room for.
void count_untracked();
/// What was announced has been withdrawn: the sums do without it.
void take_back(Peer& to, const Record& record);
/// Strict mode: await() for all ranks at once.
void await_all(Thread& thread);
/// Strict mode, below MPI_THREAD_MULTIPLE: await_all() is to wait for records of that rank.
void owe(Peer& from);

/// Strict mode: a packet from that rank is here, so its record is, or soon will be.
inline void foresee(const Peer& from) {
  if (is_strict && from.in.is_open()) from.in.prefetch();
}

// --- counters ----------------------------------------------------------------------------------------------------
uint64_t checked_messages();
/// A case was no case (the send had been withdrawn): the received packet goes back to the head of its matching queue.
void put_back(Thread& thread, Peer& from, const Record& received, uint64_t evidence);
/// Raises what was found, with no lock held.
void raise_difference(Thread& thread, Peer& from, const Difference& difference);

inline void add_to(uint64_t& counter, uint64_t value) {
  if (is_concurrent) __atomic_fetch_add(&counter, value, __ATOMIC_RELAXED);
  else counter += value;
}

}  // namespace resil::ledger
