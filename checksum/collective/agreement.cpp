// SPDX-License-Identifier: Apache-2.0
//
// See agreement.h. Handlers only note; agreement_progress() asks and decides. A case lives for RESIL_DRAIN_SECONDS at
// most.

#include "checksum/collective/agreement_internal.h"

#include <atomic>
#include <cstring>

#include "checksum/collective/tree.h"
#include "checksum/ledger/blame_evidence.h"
#include "checksum/ledger/calls.h"
#include "checksum/ledger/peer.h"
#include "shim/base/clock.h"
#include "shim/base/own_stack.h"
#include "shim/base/spinlock.h"
#include "shim/call/runtime.h"
#include "shim/call/site_text.h"
#include "shim/config/config.h"
#include "shim/model/calls.h"
#include "shim/tables/tables.h"

namespace resil::collective {

namespace {

using ledger::Kind;
using ledger::Peer;
using ledger::Reason;
using ledger::Record;

constexpr uint32_t kKept = 1024, kCases = 64;
constexpr double kAskAgain = 0.02;  // seconds

struct Rest {
  uint64_t comm;
  uint32_t tag;
  RestState state;
  Linear words;
};

struct Question {
  uint64_t comm;
  uint32_t tag, place;  ///< of the case
  uint64_t serial;  ///< of the case
};

struct Reply {
  Question question;
  Known known;  ///< kAsked: not yet
  bool nan;
  bool earlier;  ///< an earlier result of that rank was the same
  RestState rest_state;
  uint64_t digest;
  Linear rest;
  Outcome outcome;
  ledger::Called called;
  char site[112];
};

Result history[kKept];
Rest rests[kKept];
uint64_t noted, rests_noted;
Case cases[kCases];
uint64_t serials;
std::atomic<uint32_t> open_count;
SpinLock lock;

struct Guard : OptionalGuard {
  Guard() : OptionalGuard(lock, ledger::concurrent()) {}
};

uint64_t ticks_of(double seconds) { return static_cast<uint64_t>(seconds * runtime.header->ticks_per_second); }

/// Under the lock. `newer`: the communicator's history goes beyond that number.
const Result* find(uint64_t comm, uint32_t tag, bool* newer) {
  *newer = false;
  for (uint64_t i = noted, last = noted > kKept ? noted - kKept : 0; i-- > last;) {
    const Result& result = history[i % kKept];
    if (result.name.comm != comm) continue;
    if (result.name.tag == tag) return &result;
    *newer = *newer || static_cast<int32_t>(result.name.tag - tag) > 0;
  }
  return nullptr;
}

/// Under the lock.
Rest find_rest(uint64_t comm, uint32_t tag) {
  for (uint64_t i = rests_noted, last = rests_noted > kKept ? rests_noted - kKept : 0; i-- > last;)
    if (rests[i % kKept].comm == comm && rests[i % kKept].tag == tag) return rests[i % kKept];
  return {};
}

/// See like_earlier(). Under the lock.
bool like_earlier_locked(const Result& result) {
  for (uint64_t i = noted, last = noted > kKept ? noted - kKept : 0; i-- > last;) {
    const Result& other = history[i % kKept];
    if (other.outcome.content == result.outcome.content && other.name.base == result.name.base &&
        other.name.bytes == result.name.bytes && static_cast<int32_t>(other.name.tag - result.name.tag) < 0 &&
        other.outcome.kept)
      return true;
  }
  return false;
}

/// Matching queues found a difference; inside progress() or expect().
void differs(Thread&, Peer& child, const Record& sent, const Record& received) {
  Guard guard;
  for (Case& one : cases) {
    if (one.state != Case::kFree) continue;
    bool newer;
    const Result* own = find(received.comm, received.tag, &newer);
    one.found = own != nullptr;
    one.sum = one.local = one.clash = false;
    if (own != nullptr) one.own = *own;
    one.serial = ++serials;
    one.child = &child;
    one.sent = sent;
    one.received = received;
    one.child_site[0] = 0;
    one.state = Case::kNew;
    open_count.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  ledger::count_mismatch();  // more at once than are looked into: counted
}

void asked(Thread& thread, Peer& from, const void* payload, size_t bytes) {
  Reply reply = {};
  if (bytes != sizeof(reply.question)) return;
  memcpy(&reply.question, payload, sizeof(reply.question));
  uint64_t site = 0;
  reply.called = ledger::calls_find(reply.question.comm, reply.question.tag);
  {
    Guard guard;
    bool newer;
    const Result* result = find(reply.question.comm, reply.question.tag, &newer);
    reply.known = result != nullptr ? Known::kYes : newer ? Known::kNo : Known::kAsked;
    if (result != nullptr) {
      reply.digest = result->digest;
      reply.nan = result->nan;
      reply.outcome = result->outcome;
      reply.earlier = result->outcome.kept && like_earlier_locked(*result);
      const Rest rest = find_rest(reply.question.comm, reply.question.tag);
      reply.rest_state = rest.state;
      reply.rest = rest.words;
      site = result->name.site;
    }
  }
  if (site != 0) site_text(site, reply.site, sizeof(reply.site));
  ledger::post(thread, from, Kind::kCollectiveReply, &reply, sizeof(reply));
}

void answered(Thread&, Peer& from, const void* payload, size_t bytes) {
  Reply reply;
  if (bytes != sizeof(reply)) return;
  memcpy(&reply, payload, sizeof(reply));
  reply.site[sizeof(reply.site) - 1] = 0;
  if (reply.question.place >= kCases) return;
  Guard guard;
  Case& one = cases[reply.question.place];
  if (one.state != Case::kOpen || one.serial != reply.question.serial) return;
  for (uint32_t i = 0; i < one.voter_count; ++i) {
    Voter& voter = one.voters[i];
    if (voter.peer != &from) continue;
    voter.known = reply.known == Known::kYes || reply.known == Known::kNo ? reply.known : Known::kNotAsked;
    voter.digest = reply.digest;
    voter.nan = reply.nan;
    voter.earlier = reply.earlier;
    voter.rest_state = reply.rest_state;
    voter.rest = reply.rest;
    voter.outcome = reply.outcome;
    voter.called = reply.called;
    memcpy(voter.site, reply.site, sizeof(voter.site));
    if (i == one.child_place) memcpy(one.child_site, reply.site, sizeof(one.child_site));
  }
}

/// Adds a rank that shall be asked; its place.
uint32_t add_voter(Case& one, Peer* peer) {
  if (peer == nullptr || ledger::world_rank_of(*peer) == runtime.rank) return ~0u;
  for (uint32_t i = 0; i < one.voter_count; ++i)
    if (one.voters[i].peer == peer) return i;
  if (one.voter_count == kVoters) return ~0u;
  one.voters[one.voter_count] = {};
  one.voters[one.voter_count].peer = peer;
  return one.voter_count++;
}

void begin(Case& one) {
  one.voter_count = 0;
  one.root_place = ~0u;
  one.everybody = false;
  one.child_place = one.sum || one.local ? ~0u : add_voter(one, one.child);
  one.deadline = ticks() + ticks_of(config_real("RESIL_DRAIN_SECONDS"));
  one.next_ask = 0;
  CommInfo* info = one.found || one.sum ? still_there(one.own.name) : nullptr;
  if (info == nullptr) return;
  Reason why;
  const Collective form = collective_of(one.own.name.id);
  if (form == Collective::kBcast || form == Collective::kReduce)
    one.root_place = add_voter(one, local_peer(*info, one.own.name.root, &why));
  else if (one.own.outcome.linear != LinearMode::kNone)  // has the sums
    one.root_place = add_voter(one, local_peer(*info, 0, &why));
  const int size = info->size;
  uint32_t reached = 0;
  for (int i = 0; i < size && one.voter_count < kVoters; ++i)  // spread over the communicator
    add_voter(
        one, local_peer(*info, static_cast<int>(int64_t{i} * size / (size < int{kVoters} ? size : int{kVoters}) % size),
                        &why));
  for (uint32_t i = 0; i < one.voter_count; ++i) reached += one.voters[i].peer != nullptr;
  one.everybody = static_cast<int>(reached) + 1 == size;
}

/// See rest_of(). Under the lock.
RestState rest_of_locked(const Name& name, Linear* words) {
  const Rest rest = find_rest(name.comm, name.tag);
  *words = rest.words;
  return rest.state;
}

/// All that can be known is known. Under the lock.
bool settled(const Case& one) {
  Linear sum;
  if (!one.sum && !one.local && right_sum(one, &sum, rest_of_locked) == RestState::kPending) return false;
  const bool calls_only = one.local || (one.sum && !ledger::full_blame());
  for (uint32_t i = 0; i < one.voter_count; ++i)
    if (!(calls_only && one.voters[i].called.known) && one.voters[i].known != Known::kYes &&
        one.voters[i].known != Known::kNo)
      return false;
  return true;
}

/// Taken under the lock, sent without it. No copy of the case, which is 4 KiB: a program's stack may not have them.
struct Inquiry {
  Question question;
  uint32_t count;
  Peer* peers[kVoters];
};

/// Under the lock.
void take(const Case& one, uint32_t place, Inquiry& inquiry) {
  inquiry.question = {one.received.comm, one.received.tag, place, one.serial};
  inquiry.count = 0;
  for (uint32_t i = 0; i < one.voter_count; ++i) {
    const Voter& voter = one.voters[i];
    if (voter.known == Known::kNotAsked || voter.known == Known::kAsked ||
        (i == one.root_place && voter.known == Known::kYes && voter.rest_state == RestState::kPending))
      inquiry.peers[inquiry.count++] = voter.peer;
  }
}

/// On a stack of its own: the copy is large.
[[gnu::noinline]] void close(Case& one, uint64_t serial) {
  Case copy;
  {
    Guard guard;
    if (one.state != Case::kOpen || one.serial != serial) return;  // another thread has closed it
    copy = one;
    one.state = Case::kFree;
    open_count.fetch_sub(1, std::memory_order_relaxed);
  }
  decide(copy);
}

}  // namespace

bool like_earlier(const Result& result) {
  Guard guard;
  return result.outcome.kept && like_earlier_locked(result);
}

RestState rest_of(const Name& name, Linear* words) {
  Guard guard;
  return rest_of_locked(name, words);
}

void agreement_connect() {
  ledger::handle_mismatch(ledger::Space::kAgreement, differs);
  ledger::handle_kind(Kind::kCollective, asked);
  ledger::handle_kind(Kind::kCollectiveReply, answered);
}

void agreement_note(const Name& name, uint64_t digest, bool orders, bool nan, const Outcome& outcome) {
  Guard guard;
  history[noted++ % kKept] = {name, digest, orders, nan, outcome};
}

void agreement_note_plainly(const Name& name, uint32_t tag, uint16_t calls, uint64_t digest) {
  Result& result = history[noted++ % kKept];  // its outcome is empty, as all are
  result.name = name;
  result.name.tag = tag;
  result.name.calls = calls;
  result.digest = digest;
  result.orders = result.nan = false;
}

namespace {

/// Under the lock: a case that no record of another rank has opened.
void open_own(Case& one, const Name& name) {
  one.serial = ++serials;
  one.child = nullptr;
  one.received = {name.comm, 0, name.bytes, name.site, name.tag, static_cast<uint16_t>(name.id), 0, 0};
  one.sent = one.received;
  one.child_site[0] = 0;
  one.state = Case::kNew;
  open_count.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace

void agreement_sum(const Name& name, LinearMode mode, const Linear& rest, Reason reason) {
  const bool clash = reason == Reason::kCallsDiffer;
  const bool wrong = (reason == Reason::kNone && !rest.zero()) || clash;
  if (!wrong && !ledger::full_blame()) [[likely]]
    return;
  {
    Guard guard;
    rests[rests_noted++ % kKept] = {name.comm, name.tag,
                                    reason == Reason::kNone ? RestState::kKnown : RestState::kNever, rest};
    if (!wrong) return;
    for (Case& one : cases) {
      if (one.state != Case::kFree) continue;
      bool newer;
      const Result* own = find(name.comm, name.tag, &newer);
      one.found = own != nullptr;
      one.own = own != nullptr ? *own : Result{name, 0, false, false, {}};
      one.own.outcome.linear = mode;
      one.sum = true;
      one.local = false;
      one.clash = clash;
      one.rest = rest;
      return open_own(one, name);
    }
  }
  if (clash) return ledger::count_uncovered(reason, 1, name.bytes);
  publish_sum({name, {rest.words[0], rest.words[1]}, -1, -1, 0, 0, nullptr, nullptr});
}

void agreement_contradicted(const Name& name, const Outcome& outcome, const char* text, int64_t element) {
  {
    Guard guard;
    for (Case& one : cases) {
      if (one.state != Case::kFree || still_there(name) == nullptr) continue;
      one.found = one.local = true;
      one.own = {name, outcome.first, false, false, outcome};
      one.sum = one.clash = false;
      one.text = text;
      one.element = element;
      return open_own(one, name);
    }
  }
  decide_local(name, outcome, text, element);
}

void agreement_progress(Thread& thread) {
  if (open_count.load(std::memory_order_relaxed) == 0) [[likely]]
    return;
  for (uint32_t place = 0; place < kCases; ++place) {
    Case& one = cases[place];
    Case::State state;
    {
      Guard guard;
      state = one.state;
    }
    if (state == Case::kFree) continue;
    const uint64_t now = ticks();
    if (state == Case::kNew) {
      begin(one);
      Guard guard;
      one.state = Case::kOpen;
    }
    Inquiry inquiry;
    bool open;
    {
      Guard guard;
      if (one.state != Case::kOpen) continue;
      inquiry.question.serial = one.serial;
      inquiry.count = 0;
      open = !settled(one) && now < one.deadline;
      if (open && now >= one.next_ask) {
        one.next_ask = now + ticks_of(kAskAgain);
        take(one, place, inquiry);
      }
    }
    for (uint32_t i = 0; i < inquiry.count; ++i)
      ledger::post(thread, *inquiry.peers[i], Kind::kCollective, &inquiry.question, sizeof(inquiry.question));
    if (!open) on_own_stack([&] { close(one, inquiry.question.serial); });
  }
}

void agreement_end(Thread& thread) {
  agreement_progress(thread);  // begins those that are new
  {
    Guard guard;
    for (Case& one : cases) one.deadline = 0;
  }
  agreement_progress(thread);
}

uint64_t agreement_pending() { return open_count.load(std::memory_order_relaxed); }

}  // namespace resil::collective
