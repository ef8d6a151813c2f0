// SPDX-License-Identifier: Apache-2.0
//
// What the files of blame share: looks at the history and at what is kept, questions and answers, cases. Nothing here
// is called from outside blame*.cpp but by its tests.
#pragma once

#include <time.h>

#include <cstddef>
#include <cstdint>

#include "checksum/ledger/blame.h"
#include "checksum/ledger/blame_evidence.h"
#include "checksum/ledger/blame_history.h"
#include "checksum/ledger/calls.h"
#include "checksum/ledger/parts_internal.h"
#include "checksum/ledger/peer.h"
#include "checksum/ledger/touch.h"
#include "shim/base/clock.h"
#include "shim/base/spinlock.h"
#include "shim/report/finding.h"
#include "shim/runtime/work_memory.h"

namespace resil::blame {

using ledger::Peer;
using ledger::Record;

constexpr uint64_t kStoreBytes = 16u << 20;
constexpr uint64_t kMostRest = (4u << 20) - kKeptBytes;  ///< of each packet, behind its start (told in findings)
constexpr uint64_t kRestBytes = 64u << 20;  ///< of all packets
constexpr uint32_t kSlots = 4096;  ///< receives with evidence at a time
constexpr uint32_t kCases = 256;  ///< open cases

/// Settings, read once in prepare() and connect().
struct Mode {
  bool full, concurrent;
};
extern Mode mode;

/// A lock that costs nothing below MPI_THREAD_MULTIPLE. Held for short copies, never across an MPI call.
struct Guard : OptionalGuard {
  explicit Guard(SpinLock& lock) : OptionalGuard(lock, mode.concurrent) {}
};

// --- blame_store.cpp ---------------------------------------------------------------------------------------------

/// Packs `bytes` bytes of the view's stream, from byte `from` on. Returns how many there were.
uint64_t copy_of(const View& view, uint64_t from, uint64_t bytes, char* to);
/// Reads the first `bytes` of the view's stream.
void capture(const View& view, uint64_t bytes, Content* content);

// --- blame_history.cpp -------------------------------------------------------------------------------------------

bool history_create();
/// The packet announced to `peer` under that ordinal.
void history_find(int32_t peer, uint64_t ordinal, const Record& sent, Known* known);

/// The packet of a handle; false: overwritten.
bool history_entry(uint64_t handle, Entry* entry);
void history_void(uint64_t serial, bool is);
/// Is the next packet of its matching queue, that was not withdrawn, like this one?
bool history_next_is(const Entry& entry, const Record& like);

/// Other packets of this process with that digest and length.
struct Likeness {
  uint32_t total, earlier, later;  ///< earlier and later than the packet in question, when that is known
  bool found;
  Entry best;  ///< same matching queue before same rank before others, then the nearest
};
void history_search(const Known& known, int32_t peer, const Record& sent, uint64_t ordinal, const Record& received,
                    Likeness* likeness);
/// Did a blocking call receive into the buffer that it sent from? The program's thread was inside it all the time.
bool is_overwritten(const Entry& entry);
/// Has this process itself announced such a packet to anyone?
bool history_has(const Record& like);

// --- blame_receive.cpp -------------------------------------------------------------------------------------------

bool receives_create();
/// The data is wrong: looks at it for as long as it takes, if it has not been yet. Not under a lock.
void look_to_end(uint64_t evidence);
// --- blame_slots.cpp ---------------------------------------------------------------------------------------------

bool slots_create();
/// Of the collective whose block from `from` should be `sent` and is `received`: another rank whose block, as it came
/// here, is one of the two contents. Null: none. That rank then has to say whether `received` was meant for its slot.
Peer* slot_with(const Peer& from, const Record& sent, const Record& received);

// --- blame_answer.cpp --------------------------------------------------------------------------------------------

void cancel_reset();
enum class SenderState : uint8_t { kUnknown, kVoid, kPending, kKnown };
/// Of a packet that was compared with `received`: was a cancelled send taken for it? kKnown: no.
SenderState cancel_state(int32_t peer, const Entry& asked, const Record& received);

struct Query {
  uint64_t id;  ///< the case
  uint64_t ordinal;
  Record sent, received;
  uint32_t window;  ///< from which byte of the packet on
  uint32_t reserved;
};

/// Followed by leaf_count digests and window_bytes of the copy.
struct Answer {
  uint64_t id;
  SenderState state;
  bool read_again;  ///< at_end holds
  bool overwritten;  ///< it cannot: the blocking call has put its result there (MPI_Sendrecv_replace, MPI_IN_PLACE)
  bool history_whole;  ///< every packet that the sender ever announced is still known to it
  bool concurrent;  ///< more than one thread may call MPI there
  bool found;  ///< the packet is known to the sender: `own` and `called` hold
  Record own;  ///< its own record of it
  ledger::Called called;  ///< of a block: the collective
  uint16_t leaf_count;
  uint16_t copy_bytes;  ///< kept of the start
  uint32_t window, window_bytes;
  uint32_t same_total, same_earlier, same_later;
  int32_t other_peer;  ///< world rank, with same_total != 0
  uint64_t at_end;
  uint64_t known_before;  ///< packets announced before this one that the sender still knows
  uint64_t other_ordinal;
  Record other;
  char site[112], other_site[112], host[64];
};
constexpr uint32_t kWindow = 2816;
static_assert(sizeof(Answer) + kKeptLeaves * 8 + kWindow <= ledger::kMessageBytes);
static_assert(kWindow * 2 >= kKeptBytes);

/// Answers from this process's own history. Returns the bytes used of `message` (kMessageBytes).
size_t make_answer(const Query& query, int32_t asker, char* message);
void on_query(Thread& thread, Peer& from, const void* payload, size_t bytes);
/// Sends answers that found no room.
void answer_owed(Thread& thread);
bool answers_owed();

// --- blame_verdict.cpp -------------------------------------------------------------------------------------------

/// Expected and found content, as far as both are kept: of the start, or of the first piece that differs.
struct Comparison {
  uint32_t from;  ///< 0, or where the leaf begins whose bytes were compared
  uint32_t compared;  ///< bytes
  uint32_t bytes_differ, bits_differ;
  uint32_t first, last;  ///< differing bytes
  bool zero;  ///< every differing byte was found to be zero
  bool copy_bad;  ///< the sender's copy does not have the digest that was announced
  uint32_t leaves_compared, leaves_differ, first_leaf;  ///< pieces
  uint8_t expected[8], found[8];  ///< around `first`, from word_at on
  uint32_t word_at, word_bytes;

  /// Counts what differs in `bytes` bytes of the packet, which begin at byte `at`.
  void add(const char* wanted, const char* got, uint32_t at, uint32_t bytes);
};

enum class CaseState : uint8_t { kFree, kOpen, kReady, kClosing };

struct Case {
  CaseState state;
  bool has_evidence, answered, withdrawn, timed_out, overflow;
  bool own_too;  ///< this rank has itself sent what it received now
  Peer* second;  ///< blocks of collectives: another rank that is asked too; null: none so far
  bool second_open, other_slot;  ///< its answer is awaited; it did give what arrived here
  uint64_t id;
  Peer* from;
  Record sent, received;
  uint64_t ordinal, evidence_handle;
  double opened, next_ask, interval;
  Evidence evidence;
  Answer answer;
  uint32_t expected_bytes, expected_leaves;
  uint32_t piece_at, piece_end;  ///< what is still asked of the first piece that differs; equal: nothing
  Comparison piece;
  Content found;
  Content expected;
};

struct Judgement {
  Verdict verdict;
  bool proved;
  bool received_zero;  ///< nothing but zeros arrived
  bool may_have_stored;  ///< the program ran while the receive was pending: it may have written into the buffer itself
  Comparison comparison;
  char how[400];  ///< one or two sentences
};
void judge(const Case& one, Judgement* judgement);

// --- blame_finding.cpp -------------------------------------------------------------------------------------------

/// The finding for a closed case; prints and keeps it.
void publish(const Case& one, const Judgement& judgement);

// --- blame_rate.cpp ----------------------------------------------------------------------------------------------

/// Counts a closed case; publishes the finding "systemic" when the rate asks for it, once.
void count_case(const Case& one, const Judgement& judgement);
void reset_counts();

}  // namespace resil::blame
