// SPDX-License-Identifier: Apache-2.0
//
// See ledger.h: what is announced and expected, coverage, strict waiting, and when records are sent and taken.

#include "checksum/ledger/ledger.h"

#include <cstdlib>
#include <cstring>

#include "checksum/collective/collective.h"
#include "checksum/ledger/blame.h"
#include "checksum/ledger/calls.h"
#include "checksum/ledger/inbox.h"
#include "checksum/ledger/lives.h"
#include "checksum/ledger/parts_internal.h"
#include "checksum/ledger/setup.h"
#include "checksum/messages.h"
#include "shim/abi/handler_change.h"
#include "shim/call/runtime.h"
#include "shim/call/thread.h"
#include "shim/config/config.h"
#include "shim/report/log.h"
#include "shim/runtime/mailbox.h"
#include "shim/runtime/progress.h"

namespace resil::ledger {

bool is_concurrent = true, is_full, is_strict, is_straight, is_plain;
SpinLock ledger_lock;
Coverage coverage;
void (*space_handlers[static_cast<int>(Space::kCount)])(Thread&, Peer&, const Record&);
void (*mismatch_handlers[static_cast<int>(Space::kCount)])(Thread&, Peer&, const Record&, const Record&);
void (*kind_handlers[16])(Thread&, Peer&, const void*, size_t);
int32_t until_look = 32;  // approximate under MPI_THREAD_MULTIPLE

namespace {

constexpr int32_t kLookEvery = 32;  // records of this rank between two looks at what has arrived
constexpr int32_t kPollAtLeast = 8;  // of these looks, one at the messages
constexpr uint64_t kOldTicksShare = 100;  // unsent records are old after a hundredth of a second

bool is_connected, is_abort;
Backoff backoff;
int32_t poll_every = 1, until_poll = 1;  // approximate under MPI_THREAD_MULTIPLE

/// Every so many records: takes what is in the streams; now and then also what has arrived in messages, and sends what
/// is old.
void count_down(Thread& thread) {
  // Threads may count over one another: then a look comes early or late, but it comes (the counts are signed).
  const int32_t left = __atomic_load_n(&until_look, __ATOMIC_RELAXED) - 1;
  __atomic_store_n(&until_look, left, __ATOMIC_RELAXED);
  if (left <= 0) [[unlikely]]
    look_around(thread);
}

/// Strict mode, below MPI_THREAD_MULTIPLE: ranks that packets have come from since they were last waited for.
Peer* owed_first;

}  // namespace

void owe(Peer& from) {
  if (from.owed) return;
  from.owed = true;
  from.next_owed = owed_first;
  owed_first = &from;
}

void look_around(Thread& thread) {
  __atomic_store_n(&until_look, kLookEvery, __ATOMIC_RELAXED);
  const int32_t turns = __atomic_load_n(&until_poll, __ATOMIC_RELAXED) - 1;
  __atomic_store_n(&until_poll, turns, __ATOMIC_RELAXED);
  if (turns > 0) {
    if (is_connected) transport_take_streams(thread);
    return;
  }
  const uint64_t begin = ticks();
  if (!backoff.is_due(begin)) {
    if (is_connected) transport_take_streams(thread);
    return __atomic_store_n(&until_poll, 1, __ATOMIC_RELAXED);
  }
  // Each poll makes MPI walk what it has pending: fewer while nothing comes.
  const uint64_t before = __atomic_load_n(&messages_taken, __ATOMIC_RELAXED);
  progress(thread);
  const int32_t every = __atomic_load_n(&poll_every, __ATOMIC_RELAXED);
  const bool nothing = __atomic_load_n(&messages_taken, __ATOMIC_RELAXED) == before;
  if (nothing) backoff.in_vain(begin, ticks(), old_ticks);
  const int32_t next = !nothing ? 1 : every < kPollAtLeast ? every * 2 : kPollAtLeast;
  __atomic_store_n(&poll_every, next, __ATOMIC_RELAXED);
  __atomic_store_n(&until_poll, next, __ATOMIC_RELAXED);
}

bool connected() { return is_connected; }
bool strict() { return is_strict; }
bool full_blame() { return is_full; }
bool abort_wanted() { return is_abort; }
bool concurrent() { return is_concurrent; }

bool setup_memory() {
  is_strict = config_has("RESIL_CHECKSUM", "strict");
  is_full = config_has("RESIL_BLAME", "full");
  is_abort = !config_has("RESIL_ON_MISMATCH", "log");
  const char* why;
  if (!inbox_create(&why) && why != nullptr) add_note(messages::checksum::no_shared_memory);
  return match_queues_create() && transport_create();
}

bool setup_connection(bool multiple) {
  is_concurrent = multiple;
  inbox_connect();
  old_ticks = static_cast<uint64_t>(runtime.header->ticks_per_second) / kOldTicksShare;
  if (!mailbox::is_open() || !peers_create(runtime.size)) return false;
  is_connected = true;
  is_connected = transport_start();
  is_straight = is_connected && !is_concurrent && !is_full;
  is_plain = is_straight && !is_strict;
  return is_connected;
}

void setup_end() {
  transport_stop();
  is_connected = is_straight = is_plain = false;
}

uint64_t announce(Thread& thread, Peer& to, const Record& record) {
  // Exact but for two threads at once, whose matching queues are multisets anyway.
  const uint64_t ordinal = __atomic_load_n(&to.announced, __ATOMIC_RELAXED);
  if (peer_is_self(to)) [[unlikely]] {
    if (space_handlers[record.space] != nullptr) {
      space_handlers[record.space](thread, to, record);
      return ordinal;
    }
    Difference difference;
    {
      Guard guard;
      __atomic_store_n(&to.announced, to.announced + 1, __ATOMIC_RELAXED);  // to itself nothing is lost: no sums
      match_queue_sent(to, record, ordinal, &difference);
    }
    if (difference.found) raise_difference(thread, to, difference);
    return ordinal;
  }
  transport_append(thread, to, record, is_strict);
  count_down(thread);
  return ordinal;
}

bool records_dropped(const Peer& to) { return to.dropped; }

void take_back(Peer& to, const Record& record) {
  if (peer_is_self(to)) return;  // no sums
  Guard guard;
  to.summed -= 1;
  if (!(record.flags & kUnchecked)) to.sum_out -= record_sum(record);
}

void expect_quietly(Peer& from, const Record& record, uint64_t evidence, Difference* difference) {
  Guard guard;
  from.expected += 1;
  if (record.flags & kUnchecked) from.sums_hold_in = false;
  else from.sum_in += record_sum(record);
  match_queue_received(from, record, evidence, difference);
  if (is_strict && !is_concurrent) [[unlikely]]
    owe(from);
}

void expected(Thread& thread) { count_down(thread); }
void count_untracked() { add_to(coverage.untracked, 1); }

void expect(Thread& thread, Peer& from, const Record& record, uint64_t evidence) {
  Difference difference;
  expect_quietly(from, record, evidence, &difference);
  if (difference.found) [[unlikely]]
    raise_difference(thread, from, difference);
  count_down(thread);
}

namespace {

/// Packets whose records have not come, without those that are waited for no more. A look without the lock: whoever
/// sees an old count looks again.
__attribute__((no_sanitize("thread"))) uint64_t outstanding(const Peer& from) {
  const volatile Peer& now = from;
  const uint64_t pending = now.own_pending, deferred = now.deferred;
  return pending > deferred ? pending - deferred : 0;
}

}  // namespace

void await(Thread& thread, Peer& from) {
  if (!is_strict || outstanding(from) == 0 || !is_connected) return;
  Peer* peer = &from;
  // The record was sent with the packet: mostly it is here, or about to be.
  constexpr unsigned kQuickLooks = 256;
  for (unsigned look = 0; look < kQuickLooks; ++look) {
    const uint64_t left = outstanding(from);
    if (left == 0) break;
    if (!transport_take_stream(thread, from, left) || look % 64 == 63) transport_poll(thread, 1);
  }
  if (outstanding(from) == 0 && !(is_abort && blame::open_cases() != 0)) [[likely]]
    return;
  const double timeout = config_real("RESIL_DRAIN_SECONDS");
  bool done = progress_until(
      thread, __atomic_load_n(&from.overdue, __ATOMIC_RELAXED) && timeout > kShortTimeout ? kShortTimeout : timeout,
      [](void* of) {
        const Peer& waited = *static_cast<Peer*>(of);
        return outstanding(waited) == 0 || waited.lost;
      },
      peer);
  __atomic_store_n(&from.overdue, !done, __ATOMIC_RELAXED);
  if (!done) {
    Guard guard;
    add_to(coverage.deferred, from.own_pending - from.deferred);
    __atomic_store_n(&from.deferred, from.own_pending, __ATOMIC_RELAXED);
  }
  // The job ends before the program can use wrong data; with `log` the case is closed when the sender answers.
  if (is_abort && blame::open_cases() != 0) blame::settle(thread, config_real("RESIL_DRAIN_SECONDS"));
}

void await_all(Thread& thread) {
  if (!is_strict || !is_connected) return;
  if (!is_concurrent) {
    while (owed_first != nullptr) {
      Peer& peer = *owed_first;
      owed_first = peer.next_owed;
      peer.owed = false;
      await(thread, peer);
    }
    return;
  }
  Peer* peer;  // another thread may be waiting for packets of this one, too, and returns as late as it must
  for (uint32_t i = 0; (peer = peer_by_index(i)) != nullptr; ++i) await(thread, *peer);
}

void count_checked(uint64_t messages, uint64_t bytes) {
  add_to(coverage.checked_messages, messages);
  add_to(coverage.checked_bytes, bytes);
}

void count_uncovered(Reason reason, uint64_t messages, uint64_t bytes) {
  add_to(coverage.uncovered_messages[static_cast<unsigned>(reason)], messages);
  add_to(coverage.uncovered_bytes[static_cast<unsigned>(reason)], bytes);
}

void count_mismatch() { add_to(coverage.mismatches, 1); }
uint64_t checked_messages() { return __atomic_load_n(&coverage.checked_messages, __ATOMIC_RELAXED); }

void handle_space(Space space, void (*handler)(Thread&, Peer&, const Record&)) {
  space_handlers[static_cast<unsigned>(space)] = handler;
}

void handle_mismatch(Space space, void (*handler)(Thread&, Peer&, const Record&, const Record&)) {
  mismatch_handlers[static_cast<unsigned>(space)] = handler;
}

void handle_kind(Kind kind, void (*handler)(Thread&, Peer&, const void*, size_t)) {
  kind_handlers[static_cast<unsigned>(kind)] = handler;
}

void note_shared_memory() {
  static std::atomic<bool> said;
  if (!said.exchange(true, std::memory_order_relaxed)) add_note(messages::checksum::overlapped_receives);
}

namespace {

/// MPICH from 5.0 on calls the program's own error handler for a message that is longer than its receive, and returns
/// MPI_SUCCESS with the length of what was received.
bool may_be_truncated(const Difference& difference) {
  static constexpr char kMpich[] = "MPICH Version:";
  return difference.received.space == static_cast<uint8_t>(Space::kMessage) &&
         difference.sent.bytes > difference.received.bytes && handlers_were_set.load(std::memory_order_relaxed) &&
         runtime.header != nullptr && strncmp(runtime.header->mpi, kMpich, sizeof(kMpich) - 1) == 0 &&
         strtol(runtime.header->mpi + sizeof(kMpich) - 1, nullptr, 10) >= 5;
}

}  // namespace

void raise_difference(Thread& thread, Peer& from, const Difference& difference) {
  const Record& received = difference.received;
  if (may_be_truncated(difference)) {
    count_uncovered(Reason::kError, 1, received.bytes);
    if (difference.evidence != 0) blame::drop(difference.evidence);
    return;
  }
  const bool block = received.space == static_cast<uint8_t>(Space::kBlock);
  if ((block || received.space == static_cast<uint8_t>(Space::kMessage)) &&
      life_shared_by_digest(block ? life_name(received.comm, received.tag) : received.digest)) {
    note_shared_memory();
    count_uncovered(Reason::kOverlapped, 1, received.bytes);
    if (difference.evidence != 0) blame::drop(difference.evidence);
    return;
  }
  if (difference.calls && calls_told(difference.sent, received)) {
    if (difference.evidence != 0) blame::drop(difference.evidence);
    return;
  }
  if (auto* handler = mismatch_handlers[difference.received.space]; handler != nullptr)
    handler(thread, from, difference.sent, difference.received);
  else blame::open_case(thread, from, difference.sent, difference.ordinal, difference.received, difference.evidence);
}

void put_back(Thread& thread, Peer& from, const Record& received, uint64_t evidence) {
  Difference difference;
  {
    Guard guard;
    match_queue_put_back(from, received, evidence, &difference);
    if (is_strict && !is_concurrent) owe(from);
  }
  if (difference.found) raise_difference(thread, from, difference);
}

void progress(Thread& thread) {
  if (!is_connected) return;
  transport_poll(thread);
  if (const uint64_t since = transport_oldest(); since != 0 && ticks() - since > old_ticks) transport_flush(thread);
  if (blame::open_cases() != 0) [[unlikely]]
    blame::progress(thread);
  collective::progress(thread);
}

void take_come(Thread& thread, bool messages) {
  if (!is_connected) return;
  if (messages) transport_poll(thread, 1);
  else transport_take_streams(thread);
}

void flush(Thread& thread) {
  if (is_connected && transport_dirty() != 0) transport_flush(thread);
}

bool progress_until(Thread& thread, double seconds, bool (*done)(void*), void* argument) {
  if (done(argument)) return true;
  const uint64_t limit = static_cast<uint64_t>(seconds * runtime.header->ticks_per_second), start = ticks();
  for (Wait wait(thread, kByProgress);;) {
    wait.pause();
    if (done(argument)) return true;
    if (ticks() - start > limit) return false;
  }
}

}  // namespace resil::ledger
