// SPDX-License-Identifier: Apache-2.0
//
// See agreement.h. Handlers only note; agreement_tend() asks and decides. A case lives for RESIL_DRAIN_SECONDS at most.
//
// RESIL_BLAME=full: of integer sums and exclusive-ors the linear digest of the right result is known, the sum of what
// all ranks gave: rank 0 of the communicator has it. So the rank that is wrong can be told even among two, and whether
// its data came late. Each rank says of its own result whether the call has written it, and whether it is the result of
// an earlier call.

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

constexpr uint32_t kKept = 1024, kCases = 64, kVoters = 16;
constexpr double kAskAgain = 0.02;  // seconds

struct Result {
  Name name;
  uint64_t digest;
  bool orders, nan;
  Outcome outcome;
};

/// At rank 0 of a communicator: contributions less result.
enum class RestState : uint8_t { kPending, kKnown, kNever };
struct Rest {
  uint64_t comm;
  uint32_t tag;
  RestState state;
  Linear words;
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
  bool earlier;         ///< an earlier result of that rank was the same
  RestState rest_state;
  uint64_t digest;
  Linear rest;
  Outcome outcome;
  char site[112];
};

struct Voter {
  Peer* peer;
  Known known;
  bool nan, earlier;
  RestState rest_state;
  uint64_t digest;
  Linear rest;
  Outcome outcome;
};

struct Case {
  enum State : uint8_t { kFree, kNew, kOpen } state;
  bool found;           ///< `own` is this rank's result, else it had been forgotten
  bool sum;             ///< found by a sum at rank 0, `rest`
  bool everybody;       ///< all ranks of the communicator are among the voters
  uint64_t serial;
  Peer* child;
  Record sent, received;
  Result own;
  Linear rest;
  uint64_t deadline, next_ask;
  uint32_t voter_count, child_place, root_place;  ///< places among the voters, ~0: not there
  Voter voters[kVoters];
  char child_site[112];
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
    if (result.name.comm != comm)
      continue;
    if (result.name.tag == tag)
      return &result;
    *newer = *newer || static_cast<int32_t>(result.name.tag - tag) > 0;
  }
  return nullptr;
}

/// Under the lock.
Rest find_rest(uint64_t comm, uint32_t tag) {
  for (uint64_t i = rests_noted, last = rests_noted > kKept ? rests_noted - kKept : 0; i-- > last;)
    if (rests[i % kKept].comm == comm && rests[i % kKept].tag == tag)
      return rests[i % kKept];
  return {};
}

/// Is it what an earlier collective on that communicator left here? Under the lock.
bool like_earlier(const Result& result) {
  for (uint64_t i = noted, last = noted > kKept ? noted - kKept : 0; i-- > last;) {
    const Result& other = history[i % kKept];
    if (other.digest == result.digest && other.name.base == result.name.base && other.name.bytes == result.name.bytes &&
        static_cast<int32_t>(other.name.tag - result.name.tag) < 0 && other.outcome.kept)
      return true;
  }
  return false;
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
    one.sum = false;
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
      reply.outcome = result->outcome;
      reply.earlier = result->outcome.kept && like_earlier(*result);
      const Rest rest = find_rest(reply.question.comm, reply.question.tag);
      reply.rest_state = rest.state;
      reply.rest = rest.words;
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
    voter.earlier = reply.earlier;
    voter.rest_state = reply.rest_state;
    voter.rest = reply.rest;
    voter.outcome = reply.outcome;
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
  one.voters[one.voter_count] = {peer, Known::kNotAsked, false, false, RestState::kPending, 0, {}, {}};
  return one.voter_count++;
}

void begin(Case& one) {
  one.voter_count = 0;
  one.root_place = ~0u;
  one.everybody = false;
  one.child_place = one.sum ? ~0u : add_voter(one, one.child);
  one.deadline = ticks() + ticks_of(config_real("RESIL_DRAIN_SECONDS"));
  one.next_ask = 0;
  CommInfo* info = one.found || one.sum ? still_there(one.own.name) : nullptr;
  if (info == nullptr)
    return;
  Reason why;
  const Form form = form_of(one.own.name.id);
  if (form == Form::kBcast || form == Form::kReduce)
    one.root_place = add_voter(one, local_peer(*info, one.own.name.root, &why));
  else if (one.own.outcome.linear != LinearMode::kNone)  // has the sums
    one.root_place = add_voter(one, local_peer(*info, 0, &why));
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

/// The linear digest of the right result, of full blame and operators that have one.
RestState right_sum(const Case& one, Linear* sum) {
  const Outcome* outcome = &one.own.outcome;
  RestState state = RestState::kNever;
  Linear rest = {};
  if (!one.found || outcome->linear == LinearMode::kNone || form_of(one.own.name.id) != Form::kAllreduce)
    return state;
  if (one.root_place < one.voter_count) {
    const Voter& voter = one.voters[one.root_place];
    if (voter.known != Known::kYes)
      return voter.known == Known::kNo ? state : RestState::kPending;
    outcome = &voter.outcome;
    state = voter.rest_state;
    rest = voter.rest;
  } else if (still_there(one.own.name) != nullptr && one.own.name.info->rank == 0) {
    Guard guard;
    const Rest known = find_rest(one.own.name.comm, one.own.name.tag);
    state = known.state;
    rest = known.words;
  }
  if (state == RestState::kKnown && !outcome->kept)
    state = RestState::kNever;
  if (state == RestState::kKnown)
    *sum = linear_add(outcome->linear, rest, outcome->first_sum);
  return state;
}

bool equal(const Linear& a, const Linear& b) { return a.words[0] == b.words[0] && a.words[1] == b.words[1]; }

/// All that can be known is known.
bool settled(const Case& one) {
  Linear sum;
  if (!one.sum && right_sum(one, &sum) == RestState::kPending)
    return false;
  for (uint32_t i = 0; i < one.voter_count; ++i)
    if (one.voters[i].known != Known::kYes && one.voters[i].known != Known::kNo)
      return false;
  return true;
}

void ask(Thread& thread, const Case& one, uint32_t place) {
  auto asks = [&one](uint32_t i) {
    const Voter& voter = one.voters[i];
    return voter.known == Known::kNotAsked || voter.known == Known::kAsked ||
           (i == one.root_place && voter.known == Known::kYes && voter.rest_state == RestState::kPending);
  };
  const Question question = {one.received.comm, one.received.tag, place, one.serial};
  for (uint32_t i = 0; i < one.voter_count; ++i)
    if (asks(i))
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

/// RESIL_BLAME=full: why a result is wrong. `later_right`: the right one was there at the last look.
struct Why {
  blame::Verdict verdict;
  const char* how;
};

Why why_wrong(const Outcome& outcome, bool later_right, bool earlier) {
  using blame::Verdict;
  if (!outcome.kept)
    return {Verdict::kUndetermined, "nothing was kept of the result's buffer"};
  if (outcome.changed)
    return {Verdict::kEarly, later_right ? "The right result was there some time after the call had completed without it"
                                         : "The result's buffer was still being written when the call was complete"};
  if (outcome.untouched)
    return {Verdict::kNothing, "The call has left the result's buffer as it had been before"};
  if (earlier)
    return {Verdict::kOtherSlot, "What is there is the result of an earlier call"};
  return {Verdict::kTransit,
          "The call has written the buffer, what it wrote did not change any more and is no earlier result: transit, "
          "staging, or the library's arithmetic"};
}

/// Fills cause and how of a disagreement whose verdict is known.
void explain(const Case& one, Disagreement& d, bool this_later, bool that_later) {
  const Voter* child = one.child_place < one.voter_count ? &one.voters[one.child_place] : nullptr;
  bool earlier = false;
  {
    Guard guard;
    earlier = one.found && like_earlier(one.own);
  }
  const Why here = why_wrong(one.found ? one.own.outcome : Outcome{}, this_later, earlier);
  const Why there = why_wrong(child != nullptr && child->known == Known::kYes ? child->outcome : Outcome{}, that_later,
                              child != nullptr && child->earlier);
  Why why = {blame::Verdict::kUndetermined, "which of the two is right is not known"};
  if (d.verdict == Verdict::kThis)
    why = here;
  else if (d.verdict == Verdict::kThat)
    why = there;
  else if (d.verdict == Verdict::kBoth)
    why = here.verdict == there.verdict ? here : Why{blame::Verdict::kUndetermined, "both are wrong, each in its own way"};
  d.cause = blame::verdict_text(why.verdict);
  d.how = why.how;
}

/// A sum did not vanish: whose result is it that is wrong?
void decide_sum(const Case& one) {
  const Name& name = one.own.name;
  const Form form = form_of(name.id);
  WrongSum s = {name, {one.rest.words[0], one.rest.words[1]}, -1, -1, 0, 0, nullptr, nullptr};
  if (!ledger::full_blame())
    return publish_sum(s);
  const Outcome *outcome = nullptr, *suspect = nullptr;
  bool earlier = false;
  uint64_t digest = 0;
  uint32_t late = 0;
  auto look = [&](const Outcome& other, int rank) {
    if (other.input_changed)
      s.changed = rank;
    // Parts of one result: whoever's data came late by as much as is missing.
    if (other.kept && other.changed && equal(linear_subtract(other.linear, other.last_sum, other.first_sum), one.rest)) {
      suspect = &other;
      late += 1;
      if (form == Form::kReduceScatter)
        s.wrong = rank;
    }
  };
  look(one.own.outcome, runtime.rank);
  for (uint32_t i = 0; i < one.voter_count; ++i) {
    const Voter& voter = one.voters[i];
    if (voter.known == Known::kYes)
      look(voter.outcome, ledger::world_rank_of(*voter.peer));
  }
  if (form == Form::kReduceScatter) {
    if (late == 1)
      outcome = suspect;
    else
      s.wrong = -1;
  } else if (form == Form::kReduce && one.root_place < one.voter_count) {
    const Voter& root = one.voters[one.root_place];
    outcome = root.known == Known::kYes ? &root.outcome : nullptr;
    earlier = root.earlier;
    s.wrong = ledger::world_rank_of(*root.peer);
  } else if (one.found) {
    outcome = &one.own.outcome;
    Guard guard;
    earlier = like_earlier(one.own);
    s.wrong = runtime.rank;
    digest = one.own.digest;
    s.asked = s.agree = form == Form::kAllreduce ? 1 : 0;
    for (uint32_t i = 0; form == Form::kAllreduce && i < one.voter_count; ++i) {
      s.asked += one.voters[i].known == Known::kYes;
      s.agree += one.voters[i].known == Known::kYes && one.voters[i].digest == digest;
    }
  }
  Why why = {blame::Verdict::kUndetermined, "which rank's part is wrong is not known"};
  if (s.changed >= 0)
    why = {blame::Verdict::kModified, "A contribution was not the same when the operation was complete"};
  else if (s.asked > 1 && s.agree == s.asked)
    why = {blame::Verdict::kUndetermined,
           "all ranks have the same wrong result: a contribution was damaged on its way, or the library adds wrongly"};
  else if (outcome != nullptr)
    why = why_wrong(*outcome, outcome->kept && outcome->changed &&
                                  equal(linear_subtract(outcome->linear, outcome->last_sum, outcome->first_sum), one.rest),
                    earlier);
  s.cause = blame::verdict_text(why.verdict);
  s.how = why.how;
  publish_sum(s);
}

void decide(const Case& one) {
  if (one.sum)
    return decide_sum(one);
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
  } else if (Linear sum; right_sum(one, &sum) == RestState::kKnown && one.own.outcome.kept &&
                         one.child_place < one.voter_count && one.voters[one.child_place].outcome.kept) {
    const Outcome &here = one.own.outcome, &there = one.voters[one.child_place].outcome;
    const bool this_right = equal(here.first_sum, sum), that_right = equal(there.first_sum, sum);
    d.proved = d.summed = this_right != that_right;
    d.verdict = this_right == that_right ? (this_right ? Verdict::kUndetermined : Verdict::kBoth)
                : this_right             ? Verdict::kThat
                                         : Verdict::kThis;
    explain(one, d, equal(here.last_sum, sum), equal(there.last_sum, sum));
  } else if (!d.chain && 2 * d.agree_this > d.asked && d.asked > 2) {
    d.verdict = Verdict::kThat;
  } else if (!d.chain && 2 * d.agree_that > d.asked && d.asked > 2) {
    d.verdict = Verdict::kThis;
  } else if (!d.chain && 2 * best > d.asked && d.asked > 3) {
    d.verdict = Verdict::kBoth;
  }
  if (ledger::full_blame() && d.cause == nullptr) {
    const Voter* child = one.child_place < one.voter_count ? &one.voters[one.child_place] : nullptr;
    explain(one, d, one.found && one.own.outcome.last == d.that_digest,
            child != nullptr && child->outcome.last == d.this_digest);
  }
  publish(d);
}

}  // namespace

void agreement_connect() {
  ledger::handle_mismatch(ledger::Space::kAgreement, differs);
  ledger::handle_kind(Kind::kCollective, asked);
  ledger::handle_kind(Kind::kCollectiveReply, answered);
}

void agreement_note(const Name& name, uint64_t digest, bool orders, bool nan, const Outcome& outcome) {
  Guard guard;
  history[noted++ % kKept] = {name, digest, orders, nan, outcome};
}

void agreement_sum(const Name& name, LinearMode mode, const Linear& rest, Reason reason) {
  const bool wrong = reason == Reason::kNone && !rest.zero();
  if (!wrong && !ledger::full_blame()) [[likely]]
    return;
  {
    Guard guard;
    rests[rests_noted++ % kKept] = {name.comm, name.tag,
                                    reason == Reason::kNone ? RestState::kKnown : RestState::kNever, rest};
    if (!wrong)
      return;
    for (Case& one : cases) {
      if (one.state != Case::kFree)
        continue;
      bool newer;
      const Result* own = find(name.comm, name.tag, &newer);
      one.found = own != nullptr;
      one.own = own != nullptr ? *own : Result{name, 0, false, false, {}};
      one.own.outcome.linear = mode;
      one.sum = true;
      one.rest = rest;
      one.serial = ++serials;
      one.child = nullptr;
      one.received = {name.comm, 0, name.bytes, name.site, name.tag, static_cast<uint16_t>(name.id), 0, 0};
      one.sent = one.received;
      one.child_site[0] = 0;
      one.state = Case::kNew;
      open_count.fetch_add(1, std::memory_order_relaxed);
      return;
    }
  }
  publish_sum({name, {rest.words[0], rest.words[1]}, -1, -1, 0, 0, nullptr, nullptr});
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
