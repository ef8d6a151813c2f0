// SPDX-License-Identifier: Apache-2.0
//
// See agreement.h. Handlers only note; agreement_tend() asks and decides. A case lives for RESIL_DRAIN_SECONDS at most.

#include "checksum/collective/agreement.h"

#include <atomic>
#include <cstring>

#include "checksum/collective/form.h"
#include "checksum/collective/tree.h"
#include "checksum/ledger/blame_internal.h"
#include "shim/config.h"
#include "shim/runtime.h"
#include "shim/spinlock.h"
#include "shim/tables.h"

namespace resil::collective {

namespace {

using ledger::Kind;
using ledger::Peer;
using ledger::Reason;
using ledger::Record;

constexpr uint32_t kKept = 1024, kCases = 16, kVoters = 16;
constexpr double kAskAgain = 0.02;  // seconds

struct Result {
  Name name;
  uint64_t digest;
  bool orders, nan;
};

enum class Known : uint8_t { kNotAsked, kAsked, kNo, kYes };

struct Question {
  uint64_t comm;
  uint32_t tag, place;  ///< of the case
  uint64_t serial;      ///< of the case
};

struct Reply {
  Question question;
  Known known;          ///< kAsked: not yet
  bool nan;
  uint64_t digest;
  char site[112];
};

struct Voter {
  Peer* peer;
  Known known;
  bool nan;
  uint64_t digest;
};

struct Case {
  enum State : uint8_t { kFree, kNew, kOpen } state;
  bool found;           ///< `own` is this rank's result, else it had been forgotten
  bool everybody;       ///< all ranks of the communicator are among the voters
  uint64_t serial;
  Peer* child;
  Record sent, received;
  Result own;
  uint64_t deadline, next_ask;
  uint32_t voter_count, child_place, root_place;  ///< places among the voters, ~0: not there
  Voter voters[kVoters];
  char child_site[112];
};

Result history[kKept];
uint64_t noted;
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
    if (result.name.comm != comm)
      continue;
    if (result.name.tag == tag)
      return &result;
    *newer = *newer || static_cast<int32_t>(result.name.tag - tag) > 0;
  }
  return nullptr;
}

/// Lanes found a difference; inside progress() or expect().
void differs(Thread&, Peer& child, const Record& sent, const Record& received) {
  Guard guard;
  for (Case& one : cases) {
    if (one.state != Case::kFree)
      continue;
    bool newer;
    const Result* own = find(received.comm, received.tag, &newer);
    one.found = own != nullptr;
    if (own != nullptr)
      one.own = *own;
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
  if (bytes != sizeof(reply.question))
    return;
  memcpy(&reply.question, payload, sizeof(reply.question));
  uint64_t site = 0;
  {
    Guard guard;
    bool newer;
    const Result* result = find(reply.question.comm, reply.question.tag, &newer);
    reply.known = result != nullptr ? Known::kYes : newer ? Known::kNo : Known::kAsked;
    if (result != nullptr) {
      reply.digest = result->digest;
      reply.nan = result->nan;
      site = result->name.site;
    }
  }
  if (site != 0)
    blame::site_text(site, reply.site, sizeof(reply.site));
  ledger::post(thread, from, Kind::kCollectiveReply, &reply, sizeof(reply));
}

void answered(Thread&, Peer& from, const void* payload, size_t bytes) {
  Reply reply;
  if (bytes != sizeof(reply))
    return;
  memcpy(&reply, payload, sizeof(reply));
  reply.site[sizeof(reply.site) - 1] = 0;
  if (reply.question.place >= kCases)
    return;
  Guard guard;
  Case& one = cases[reply.question.place];
  if (one.state != Case::kOpen || one.serial != reply.question.serial)
    return;
  for (uint32_t i = 0; i < one.voter_count; ++i) {
    Voter& voter = one.voters[i];
    if (voter.peer != &from)
      continue;
    voter.known = reply.known == Known::kYes || reply.known == Known::kNo ? reply.known : Known::kNotAsked;
    voter.digest = reply.digest;
    voter.nan = reply.nan;
    if (i == one.child_place)
      memcpy(one.child_site, reply.site, sizeof(one.child_site));
  }
}

/// Adds a rank that shall be asked; its place.
uint32_t add_voter(Case& one, Peer* peer) {
  if (peer == nullptr || ledger::world_rank_of(*peer) == runtime.rank)
    return ~0u;
  for (uint32_t i = 0; i < one.voter_count; ++i)
    if (one.voters[i].peer == peer)
      return i;
  if (one.voter_count == kVoters)
    return ~0u;
  one.voters[one.voter_count] = {peer, Known::kNotAsked, false, 0};
  return one.voter_count++;
}

void begin(Case& one) {
  one.voter_count = 0;
  one.root_place = ~0u;
  one.everybody = false;
  one.child_place = add_voter(one, one.child);
  one.deadline = ticks() + ticks_of(config_real("RESIL_DRAIN_SECONDS"));
  one.next_ask = 0;
  CommInfo* info = one.found ? still_there(one.own.name) : nullptr;
  if (info == nullptr)
    return;
  Reason why;
  if (form_of(one.own.name.id) == Form::kBcast)
    one.root_place = add_voter(one, local_peer(*info, one.own.name.root, &why));
  const int size = info->size;
  uint32_t reached = 0;
  for (int i = 0; i < size && one.voter_count < kVoters; ++i)  // spread over the communicator
    add_voter(
        one, local_peer(*info, static_cast<int>(int64_t{i} * size / (size < int{kVoters} ? size : int{kVoters}) % size),
                        &why));
  for (uint32_t i = 0; i < one.voter_count; ++i)
    reached += one.voters[i].peer != nullptr;
  one.everybody = static_cast<int>(reached) + 1 == size;
}

/// All that can be known is known.
bool settled(const Case& one) {
  for (uint32_t i = 0; i < one.voter_count; ++i)
    if (one.voters[i].known != Known::kYes && one.voters[i].known != Known::kNo)
      return false;
  return true;
}

void ask(Thread& thread, const Case& one, uint32_t place) {
  const Question question = {one.received.comm, one.received.tag, place, one.serial};
  for (uint32_t i = 0; i < one.voter_count; ++i)
    if (one.voters[i].known == Known::kNotAsked || one.voters[i].known == Known::kAsked)
      ledger::post(thread, *one.voters[i].peer, Kind::kCollective, &question, sizeof(question));
}

/// Floating MIN and MAX: with a NaN in anybody's contribution the results may differ.
bool arbitrary(const Case& one) {
  bool nan = one.found && one.own.nan, all = one.found && one.everybody;
  for (uint32_t i = 0; i < one.voter_count; ++i) {
    nan = nan || one.voters[i].nan;
    all = all && one.voters[i].known == Known::kYes;
  }
  return nan || !all;
}

void decide(const Case& one) {
  Disagreement d = {};
  if (one.found)
    d.name = one.own.name;
  else
    d.name = {
        one.received.comm, one.received.comm, nullptr, one.received.tag, 0, static_cast<CallId>(one.received.call), 0,
        one.received.site, one.received.bytes};
  // Forgotten: it may have been one of those.
  const bool orders = one.found ? one.own.orders : form_of(d.name.id) == Form::kAllreduce;
  if (orders && arbitrary(one)) {
    ledger::count_uncovered(Reason::kReduction, 1, one.received.bytes);
    return;
  }
  d.that = one.child;
  d.this_digest = one.received.digest, d.that_digest = one.sent.digest;
  d.this_bytes = one.received.bytes, d.that_bytes = one.sent.bytes;
  d.that_site = one.sent.site;
  d.that_text = one.child_site;
  const Form form = form_of(d.name.id);
  d.chain = form == Form::kScan || form == Form::kExscan;
  d.asked = 2;
  d.agree_this = d.agree_that = 1;
  uint64_t counted = 0, best = 0;
  for (uint32_t i = 0; !d.chain && i < one.voter_count; ++i) {
    const Voter& voter = one.voters[i];
    if (i == one.child_place || voter.known != Known::kYes)
      continue;
    ++d.asked;
    d.agree_this += voter.digest == d.this_digest;
    d.agree_that += voter.digest == d.that_digest;
  }
  for (uint32_t i = 0; !d.chain && i < one.voter_count; ++i) {  // a third value may have the majority
    counted = 0;
    for (uint32_t j = 0; j < one.voter_count; ++j)
      counted += one.voters[i].known == Known::kYes && one.voters[j].known == Known::kYes &&
                 one.voters[j].digest == one.voters[i].digest;
    best = counted > best ? counted : best;
  }
  const bool root_here =
      form == Form::kBcast && one.found && still_there(d.name) != nullptr && d.name.info->rank == d.name.root;
  const bool root_known = one.root_place < one.voter_count && one.voters[one.root_place].known == Known::kYes;
  if (form == Form::kBcast && (root_here || root_known)) {
    const uint64_t truth = root_here ? d.this_digest : one.voters[one.root_place].digest;
    d.proved = true;
    d.verdict = truth == d.this_digest ? Verdict::kThat : truth == d.that_digest ? Verdict::kThis : Verdict::kBoth;
  } else if (!d.chain && 2 * d.agree_this > d.asked && d.asked > 2) {
    d.verdict = Verdict::kThat;
  } else if (!d.chain && 2 * d.agree_that > d.asked && d.asked > 2) {
    d.verdict = Verdict::kThis;
  } else if (!d.chain && 2 * best > d.asked && d.asked > 3) {
    d.verdict = Verdict::kBoth;
  }
  publish(d);
}

}  // namespace

void agreement_connect() {
  ledger::handle_mismatch(ledger::Space::kAgreement, differs);
  ledger::handle_kind(Kind::kCollective, asked);
  ledger::handle_kind(Kind::kCollectiveReply, answered);
}

void agreement_note(const Name& name, uint64_t digest, bool orders, bool nan) {
  Guard guard;
  history[noted++ % kKept] = {name, digest, orders, nan};
}

void agreement_tend(Thread& thread) {
  if (open_count.load(std::memory_order_relaxed) == 0) [[likely]]
    return;
  for (uint32_t place = 0; place < kCases; ++place) {
    Case& one = cases[place];
    Case::State state;
    {
      Guard guard;
      state = one.state;
    }
    if (state == Case::kFree)
      continue;
    const uint64_t now = ticks();
    if (state == Case::kNew) {
      begin(one);
      Guard guard;
      one.state = Case::kOpen;
    }
    Case copy;
    bool again;
    {
      Guard guard;
      copy = one;
      again = now >= one.next_ask;
      if (again)
        one.next_ask = now + ticks_of(kAskAgain);
    }
    if (!settled(copy) && now < copy.deadline) {
      if (again)
        ask(thread, copy, place);
      continue;
    }
    {
      Guard guard;
      one.state = Case::kFree;
      open_count.fetch_sub(1, std::memory_order_relaxed);
    }
    decide(copy);
  }
}

uint64_t agreement_pending() { return open_count.load(std::memory_order_relaxed); }

}  // namespace resil::collective
