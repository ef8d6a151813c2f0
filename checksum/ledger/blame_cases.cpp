// SPDX-License-Identifier: Apache-2.0
//
// Cases: from "these two digests differ" to a finding. A case asks the sender, asks again while the send is pending or
// the rest of the kept copy is missing, and is closed when all is there or its time is over.
//
// open_case() and the handler of answers only note; progress() does everything else: it asks, puts packets back,
// publishes and, under RESIL_ON_MISMATCH=abort, stops the job. One thread at a time is in progress(); the lock covers
// the list of cases and is never held while a message is posted or a finding is printed.
//
// Cases of one matching queue are closed in the order of their packets: when a packet turns out to have been withdrawn,
// then what was received in its place belongs to the next one, and so on; the cases behind it are paired anew
// (withdraw()).

#include <atomic>
#include <cstdio>
#include <cstring>

#include "checksum/ledger/blame_internal.h"
#include "checksum/messages.h"
#include "shim/base/own_stack.h"
#include "shim/call/runtime.h"
#include "shim/config/config.h"
#include "shim/runtime/memory.h"

namespace resil::blame {

Mode mode;

namespace {

constexpr double kAskAgain = 0.05, kAskAgainMost = 1.0;  // while there is no answer: doubled each time
constexpr double kPendingAgain = 0.02;  // while the send is pending
constexpr double kNoRoomAgain = 0.001;
constexpr double kBurst = 0.02;  // under abort, once a case is closed: wait so long for those that are still open

SpinLock lock;
Case* cases;
std::atomic<uint32_t> open_count;
std::atomic<bool> progressing;
uint64_t opened_total;
std::atomic<double> stop_at;  // 0: no case has been closed
std::atomic<bool> stopping;  // stop_job has begun
std::atomic<bool> corrupted;  // some case was corruption, not calls that do not match

/// In the order of the sender's stream, within one matching queue.
bool same_match_queue(const Case& a, const Case& b) {
  return a.from == b.from && a.sent.space == b.sent.space && a.sent.comm == b.sent.comm && a.sent.tag == b.sent.tag;
}

bool is_open(const Case& one) { return one.state == CaseState::kOpen || one.state == CaseState::kReady; }

/// Must another case be closed before this one? Under the lock.
bool waits_for_earlier(const Case& one) {
  for (uint32_t i = 0; i < kCases; ++i)
    if (is_open(cases[i]) && &cases[i] != &one && cases[i].ordinal < one.ordinal && same_match_queue(cases[i], one))
      return true;
  return false;
}

void fill(Case* one, Peer& from, const Record& sent, uint64_t ordinal, const Record& received, uint64_t evidence) {
  one->has_evidence = one->answered = one->withdrawn = one->timed_out = one->overflow = false;
  one->from = &from;
  one->sent = sent;
  one->received = received;
  one->ordinal = ordinal;
  one->evidence_handle = evidence;
  one->opened = monotonic_seconds();
  one->next_ask = one->opened;
  one->interval = kAskAgain;
  one->expected_bytes = one->expected_leaves = 0;
  one->piece_at = one->piece_end = 0;
  one->piece = {};
  one->second = nullptr;
  one->second_open = one->other_slot = false;
  one->own_too = history_has(received);
  one->has_evidence = receive_evidence(evidence, &one->evidence, &one->found);
}

/// Under abort: from now on the job has not long to live.
void closed_one() {
  double none = 0;
  stop_at.compare_exchange_strong(none, monotonic_seconds() + kBurst);
}

enum class Calls : uint8_t {
  kAgree,
  kDiffer,
  kDamaged,  ///< the record says that they differ, the sender that they do not
};

Calls calls_of(const Case& one) {
  const bool same_data = one.sent.digest == one.received.digest && one.sent.bytes == one.received.bytes;
  if ((!ledger::is_collective(one.received) && !same_data) || ledger::calls_agree(one.sent, one.received))
    return Calls::kAgree;
  if (!one.answered || !one.answer.found) return Calls::kDiffer;
  return ledger::calls_agree(one.answer.own, one.received) ? Calls::kDamaged : Calls::kDiffer;
}

/// The two calls do not belong together.
void close_calls(const Case& one) {
  const bool told = one.answered && one.answer.found;
  ledger::CallsDiffer differ = {};
  differ.there = one.from;
  differ.own = one.received;
  differ.other = told ? one.answer.own : one.sent;
  differ.own_called = ledger::calls_find(one.received.comm, one.received.tag);
  if (told) differ.other_called = one.answer.called;
  differ.other_site = one.answered ? one.answer.site : "";
  differ.confirmed = told;
  ledger::calls_differ(differ);
  drop(one.evidence_handle);
  if (ledger::calls_stop()) closed_one();
}

/// Counts and publishes.
[[gnu::noinline]] void close(const Case& one) {
  const Calls calls = calls_of(one);
  if (calls == Calls::kDiffer) return close_calls(one);
  corrupted.store(true, std::memory_order_relaxed);
  closed_one();
  on_own_stack([&] {
    Judgement judgement;
    judge(one, &judgement);
    if (calls == Calls::kDamaged) {
      judgement.verdict = Verdict::kTransit;
      judgement.proved = true;
      snprintf(judgement.how, sizeof(judgement.how), "%s", messages::checksum::record_damaged);
    }
    ledger::count_mismatch();
    publish(one, judgement);
    count_case(one, judgement);
    drop(one.evidence_handle);
  });
}

/// More cases than are kept open: published at once, without asking.
[[gnu::noinline]] void close_at_once(Peer& from, const Record& sent, uint64_t ordinal, const Record& received,
                                     uint64_t evidence) {
  on_own_stack([&] {
    Case one;
    one.state = CaseState::kClosing;
    one.id = 0;
    fill(&one, from, sent, ordinal, received, evidence);
    one.overflow = true;
    close(one);
  });
}

void release(Case& one) {
  one.state = CaseState::kFree;
  open_count.fetch_sub(1, std::memory_order_relaxed);
}

/// The packet of `one` (kClosing) never was: what arrived belongs to the next packet of the matching queue. Cases
/// behind it move up by one; a pair that agrees now was no case, and what is left over at the end goes back to the
/// matching queue.
void withdraw(Thread& thread, Case& one) {
  Record received = one.received;
  uint64_t evidence = one.evidence_handle, last = one.ordinal;
  Peer& from = *one.from;
  for (;;) {
    uint64_t agreed = 0, agreed_bytes = 0;
    {
      Guard guard(lock);
      Case* next = nullptr;
      for (uint32_t i = 0; i < kCases; ++i)
        if (is_open(cases[i]) && same_match_queue(cases[i], one) && cases[i].ordinal > last &&
            (next == nullptr || cases[i].ordinal < next->ordinal))
          next = &cases[i];
      if (next == nullptr) break;
      last = next->ordinal;
      const Record moved = next->received;
      const uint64_t moved_evidence = next->evidence_handle;
      if (next->sent.digest == received.digest && next->sent.bytes == received.bytes) {
        agreed = evidence;
        agreed_bytes = received.bytes;
        release(*next);
      } else {
        const uint64_t id = next->id;
        fill(next, from, next->sent, next->ordinal, received, evidence);
        next->id = id + kCases;  // answers about the old pair no longer count
        next->state = CaseState::kOpen;
        received = moved;
        evidence = moved_evidence;
        continue;
      }
      received = moved;
      evidence = moved_evidence;
    }
    drop(agreed);
    ledger::count_checked(1, agreed_bytes);
  }
  ledger::put_back(thread, from, received, evidence);
}

/// A block of a collective that no packet of its sender explains: asks the rank whose slot it may have been meant for.
/// Under the lock.
void ask_second(Case& one) {
  if (!mode.full || one.second != nullptr || one.withdrawn || one.answer.state != SenderState::kKnown ||
      one.answer.same_total != 0)
    return;
  one.second = slot_with(*one.from, one.sent, one.received);
  if (one.second == nullptr) return;
  one.second_open = true;
  one.state = CaseState::kOpen;
  one.next_ask = 0;
}

/// Did that rank give what arrived here, for another slot of the same collective? Under the lock.
void take_second(Case& one, const Answer& answer) {
  one.second_open = false;
  one.state = CaseState::kReady;
  if (answer.same_total == 0 || answer.other_peer != runtime.rank || answer.other.comm != one.sent.comm ||
      answer.other.tag != one.sent.tag || answer.other.space != one.sent.space)
    return;
  one.other_slot = true;
  one.answer.same_total = one.answer.same_later = 1;
  one.answer.other = answer.other;
  one.answer.other_ordinal = answer.other_ordinal;
  one.answer.other_peer = answer.other_peer;
  memcpy(one.answer.other_site, answer.other_site, sizeof(one.answer.other_site));
  one.answer.other_site[sizeof(one.answer.other_site) - 1] = 0;
}

/// All is known of the start, and it is the same on both sides: is there a piece behind it that is not, and of which
/// both may still have the bytes? Under the lock.
bool begin_piece(Case& one) {
  if (one.sent.bytes != one.received.bytes || one.expected_leaves == 0 || one.expected_leaves != one.found.leaves ||
      one.expected_bytes < kKeptBytes || one.found.bytes < kKeptBytes ||
      memcmp(one.expected.data, one.found.data, kKeptBytes) != 0)
    return false;
  uint32_t piece = 0;
  while (piece < one.expected_leaves && one.expected.leaf[piece] == one.found.leaf[piece]) ++piece;
  const uint64_t length = piece_bytes(one.sent.bytes), most = kKeptBytes + kMostRest;
  uint64_t begin = piece * length, end = begin + length;
  if (piece == 0) begin = kKeptBytes;
  if (end > one.sent.bytes) end = one.sent.bytes;
  if (end > most) end = most;
  if (piece == one.expected_leaves || begin >= end) return false;
  one.piece_at = static_cast<uint32_t>(begin);
  one.piece_end = static_cast<uint32_t>(end);
  return true;
}

/// A part of that piece. False: nothing more is to be had, or wanted: the leaf with the first difference is enough.
bool take_piece(Case& one, const Answer& answer, const char* data) {
  Work<WorkLeaf> room;
  if (answer.window != one.piece_at) return true;  // to another question
  const uint32_t wanted = one.piece_end - one.piece_at;
  const uint32_t bytes = receive_rest(one.evidence_handle, one.piece_at,
                                      answer.window_bytes < wanted ? answer.window_bytes : wanted, room->bytes);
  if (bytes == 0) return false;
  for (uint32_t done = 0; done < bytes && one.piece_at < one.piece_end;) {  // leaf by leaf
    const uint32_t leaf = one.piece_at / kLeafBytes * kLeafBytes, left = leaf + kLeafBytes - one.piece_at;
    const uint32_t length = left < bytes - done ? left : bytes - done;
    one.piece.add(data + done, room->bytes + done, one.piece_at, length);
    one.piece_at += length;
    done += length;
    if (one.piece.bytes_differ == 0) continue;
    one.piece.from = leaf;
    if (one.piece_end > leaf + kLeafBytes) one.piece_end = leaf + kLeafBytes;
  }
  return one.piece_at < one.piece_end;
}

/// Takes over what an answer says. Under the lock.
void take_answer(Case& one, const Answer& answer, const char* rest) {
  one.answer = answer;
  one.answer.site[sizeof(answer.site) - 1] = one.answer.other_site[sizeof(answer.other_site) - 1] = 0;
  one.answer.host[sizeof(answer.host) - 1] = 0;
  one.answered = true;
  if (one.piece_end != 0) {
    if (take_piece(one, answer, rest + answer.leaf_count * sizeof(uint64_t))) {
      one.next_ask = 0;
      return;
    }
    one.state = CaseState::kReady;
    return ask_second(one);
  }
  memcpy(one.expected.leaf, rest, answer.leaf_count * sizeof(uint64_t));
  one.expected_leaves = answer.leaf_count;
  if (answer.window_bytes != 0 && answer.window == one.expected_bytes && answer.window_bytes <= kKeptBytes &&
      answer.window + answer.window_bytes <= kKeptBytes) {
    memcpy(one.expected.data + answer.window, rest + answer.leaf_count * sizeof(uint64_t), answer.window_bytes);
    one.expected_bytes = answer.window + answer.window_bytes;
  }
  if (answer.state == SenderState::kPending) one.next_ask = monotonic_seconds() + kPendingAgain;
  else if (answer.state == SenderState::kVoid || answer.state == SenderState::kUnknown || answer.window_bytes == 0 ||
           ((one.expected_bytes >= answer.copy_bytes || one.expected_bytes >= one.found.bytes) && !begin_piece(one)))
    one.state = CaseState::kReady;
  else one.next_ask = 0;  // the rest of the copy, or the piece that differs
  one.withdrawn = answer.state == SenderState::kVoid;
  if (one.state == CaseState::kReady) ask_second(one);
}

void on_answer(Thread&, Peer& from, const void* payload, size_t bytes) {
  Answer answer;
  if (bytes < sizeof(answer) || cases == nullptr) return;
  memcpy(&answer, payload, sizeof(answer));
  if (answer.leaf_count > kKeptLeaves ||
      bytes != sizeof(answer) + answer.leaf_count * sizeof(uint64_t) + answer.window_bytes)
    return;
  Guard guard(lock);
  Case& one = cases[answer.id % kCases];
  if (one.state != CaseState::kOpen || one.id != answer.id) return;
  if (one.second_open && one.second == &from) take_second(one, answer);
  else if (!one.second_open && one.from == &from)
    take_answer(one, answer, static_cast<const char*>(payload) + sizeof(answer));
}

/// Asks the sender, which may be this rank itself.
void ask(Thread& thread, Peer& from, const Query& query) {
  if (ledger::world_rank_of(from) == runtime.rank) {
    Work<WorkLeaf> message;
    const size_t bytes = make_answer(query, runtime.rank, message->bytes);
    return on_answer(thread, from, message->bytes, bytes);
  }
  if (ledger::post(thread, from, ledger::Kind::kQuery, &query, sizeof(query))) return;
  Guard guard(lock);
  Case& one = cases[query.id % kCases];
  if (one.state == CaseState::kOpen && one.id == query.id) one.next_ask = monotonic_seconds() + kNoRoomAgain;
}

/// One case: what is due. True: it was closed or put back.
bool progress_case(Thread& thread, Case& one, double now, double timeout) {
  Query query;
  Peer* from = nullptr;
  {
    Guard guard(lock);
    if (!is_open(one)) return false;
    if (one.state == CaseState::kOpen && now < one.opened + timeout) {
      if (now < one.next_ask) return false;
      query = {one.id, one.ordinal, one.sent, one.received, one.piece_end != 0 ? one.piece_at : one.expected_bytes, 0};
      one.next_ask = now + one.interval;
      one.interval = one.interval * 2 < kAskAgainMost ? one.interval * 2 : kAskAgainMost;
      from = one.from;
      if (one.second_open) {
        from = one.second;
        query.ordinal = ~uint64_t{0};  // none of its own packets is the one in question
      }
    } else {
      one.timed_out = one.state == CaseState::kOpen;
      one.state = CaseState::kReady;
      if (waits_for_earlier(one)) return false;
      one.state = CaseState::kClosing;
    }
  }
  if (from != nullptr) {
    ask(thread, *from, query);
    return false;
  }
  if (one.withdrawn) {
    withdraw(thread, one);
  } else {
    close(one);
  }
  Guard guard(lock);
  release(one);
  return true;
}

void progress_all(Thread& thread, bool force) {
  const double now = monotonic_seconds(), timeout = force ? -1e9 : config_real("RESIL_DRAIN_SECONDS");
  // Closing one case may let another one go that waited for it.
  for (bool again = true; again && open_count.load(std::memory_order_relaxed) != 0;) {
    again = false;
    for (uint32_t i = 0; i < kCases; ++i) again = progress_case(thread, cases[i], now, timeout) || again;
  }
  if (stop_at == 0 || stopping || !ledger::abort_wanted()) return;
  if (open_count.load(std::memory_order_relaxed) == 0 || now >= stop_at) {
    stopping = true;
    stop_job(corrupted.load(std::memory_order_relaxed) ? 90 : 92);
  }
}

/// False: another thread does it, or this one already is in it.
bool progress_once(Thread& thread, bool force) {
  if (progressing.exchange(true, std::memory_order_acquire)) return false;
  progress_all(thread, force);
  progressing.store(false, std::memory_order_release);
  return true;
}

}  // namespace

bool prepare() {
  mode.full = ledger::full_blame();
  mode.concurrent = true;  // until it is known
  open_count.store(0);
  progressing.store(false);
  stop_at = 0;
  stopping = corrupted = false;
  opened_total = 0;
  reset_counts();
  cancel_reset();
  cases = memory::map_array<Case>(kCases);
  return cases != nullptr && history_create() && receives_create() && slots_create();
}

void connect() {
  mode.full = ledger::full_blame();
  mode.concurrent = ledger::concurrent();
  ledger::handle_kind(ledger::Kind::kQuery, on_query);
  ledger::handle_kind(ledger::Kind::kAnswer, on_answer);
}

void open_case(Thread&, Peer& from, const Record& sent, uint64_t ordinal, const Record& received, uint64_t evidence) {
  look_to_end(evidence);
  {
    Guard guard(lock);
    for (uint32_t i = 0; i < kCases; ++i) {
      Case& one = cases[i];
      if (one.state != CaseState::kFree) continue;
      fill(&one, from, sent, ordinal, received, evidence);
      one.id = (++opened_total << 20) + i;  // a multiple of kCases, and the place
      one.state = CaseState::kOpen;
      open_count.fetch_add(1, std::memory_order_relaxed);
      return;
    }
  }
  close_at_once(from, sent, ordinal, received, evidence);
}

void progress(Thread& thread) {
  if (answers_owed()) [[unlikely]]
    answer_owed(thread);
  if (open_count.load(std::memory_order_relaxed) == 0 && (stop_at == 0 || stopping)) [[likely]]
    return;
  progress_once(thread, false);
}

void settle(Thread& thread, double deadline_seconds) {
  if (cases == nullptr || stopping) return;
  const double until = monotonic_seconds() + deadline_seconds;
  while (open_count.load(std::memory_order_relaxed) != 0 || (stop_at != 0 && ledger::abort_wanted())) {
    const double left = until - monotonic_seconds();
    const bool mine = progress_once(thread, left <= 0);
    if (open_count.load(std::memory_order_relaxed) == 0 && mine) continue;
    if (left <= 0 && !mine) return;  // another thread is closing them, or this one is inside progress() already
    ledger::progress_until(
        thread, left < kPendingAgain ? left : kPendingAgain,
        [](void*) { return open_count.load(std::memory_order_relaxed) == 0; }, nullptr);
  }
}

unsigned open_cases() { return open_count.load(std::memory_order_relaxed); }

}  // namespace resil::blame
