// SPDX-License-Identifier: Apache-2.0
//
// Who is wrong, and why, when results that should be equal are not, or a sum does not vanish. No state of its own.
//
// RESIL_BLAME=full: of integer sums and exclusive-ors the linear digest of the right result is known, the sum of what
// all ranks gave: rank 0 of the communicator has it. So the rank that is wrong can be told even among two, and whether
// its data came late. Each rank says of its own result whether the call has written it, and whether it is the result of
// an earlier call.

#include "checksum/collective/agreement_internal.h"
#include "checksum/ledger/blame_evidence.h"
#include "checksum/ledger/calls.h"
#include "checksum/messages.h"
#include "shim/call/runtime.h"
#include "shim/tables/tables.h"

namespace resil::collective {

namespace {

bool equal(const Linear& a, const Linear& b) { return a.words[0] == b.words[0] && a.words[1] == b.words[1]; }

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
  if (!outcome.kept) return {Verdict::kUndetermined, messages::checksum::result_not_kept};
  if (outcome.changed)
    return {Verdict::kEarly, later_right ? messages::checksum::result_late : messages::checksum::result_still_written};
  if (outcome.untouched) return {Verdict::kNothing, messages::checksum::result_untouched};
  if (earlier) return {Verdict::kOtherSlot, messages::checksum::result_earlier};
  return {Verdict::kTransit, messages::checksum::result_transit};
}

/// No majority: one of the two results has come in a way that results do not come in, the other one has not.
void single_out(const Case& one, const Voter& child, Disagreement& d) {
  auto odd = [](const Outcome& outcome, bool earlier, uint64_t other) {
    return outcome.untouched || earlier || (outcome.changed && outcome.last == other);
  };
  const bool earlier = like_earlier(one.own);
  if (!one.own.outcome.kept || !child.outcome.kept) return;
  const bool here = odd(one.own.outcome, earlier, d.that_digest),
             there = odd(child.outcome, child.earlier, d.this_digest);
  if (here != there) d.verdict = here ? Verdict::kThis : Verdict::kThat;
  d.singled_out = here != there;
}

/// Fills cause and how of a disagreement whose verdict is known.
void explain(const Case& one, Disagreement& d, bool this_later, bool that_later) {
  const Voter* child = one.child_place < one.voter_count ? &one.voters[one.child_place] : nullptr;
  const bool earlier = one.found && like_earlier(one.own);
  const Why here = why_wrong(one.found ? one.own.outcome : Outcome{}, this_later, earlier);
  const Why there = why_wrong(child != nullptr && child->known == Known::kYes ? child->outcome : Outcome{}, that_later,
                              child != nullptr && child->earlier);
  Why why = {blame::Verdict::kUndetermined, messages::checksum::result_undecided};
  if (d.verdict == Verdict::kThis) why = here;
  else if (d.verdict == Verdict::kThat) why = there;
  else if (d.verdict == Verdict::kBoth)
    why = here.verdict == there.verdict ? here : Why{blame::Verdict::kUndetermined, messages::checksum::result_both};
  d.cause = blame::verdict_text(why.verdict);
  d.how = why.how;
}

/// A sum did not vanish: whose result is it that is wrong?
void decide_sum(const Case& one) {
  const Name& name = one.own.name;
  const Collective form = collective_of(name.id);
  WrongSum s = {name, {one.rest.words[0], one.rest.words[1]}, -1, -1, 0, 0, nullptr, nullptr};
  if (!ledger::full_blame()) return publish_sum(s);
  const Outcome *outcome = nullptr, *suspect = nullptr;
  bool earlier = false;
  uint64_t digest = 0;
  uint32_t late = 0;
  auto look = [&](const Outcome& other, int rank) {
    if (other.input_changed) s.changed = rank;
    // Parts of one result: whoever's data came late by as much as is missing.
    if (other.kept && other.changed &&
        equal(linear_subtract(other.linear, other.last_sum, other.first_sum), one.rest)) {
      suspect = &other;
      late += 1;
      if (is_reduce_scatter(form)) s.wrong = rank;
    }
  };
  look(one.own.outcome, runtime.rank);
  for (uint32_t i = 0; i < one.voter_count; ++i) {
    const Voter& voter = one.voters[i];
    if (voter.known == Known::kYes) look(voter.outcome, ledger::world_rank_of(*voter.peer));
  }
  if (is_reduce_scatter(form)) {
    if (late == 1) outcome = suspect;
    else s.wrong = -1;
  } else if (form == Collective::kReduce && one.root_place < one.voter_count) {
    const Voter& root = one.voters[one.root_place];
    outcome = root.known == Known::kYes ? &root.outcome : nullptr;
    earlier = root.earlier;
    s.wrong = ledger::world_rank_of(*root.peer);
  } else if (one.found) {
    outcome = &one.own.outcome;
    earlier = like_earlier(one.own);
    s.wrong = runtime.rank;
    digest = one.own.digest;
    s.asked = s.agree = form == Collective::kAllreduce ? 1 : 0;
    for (uint32_t i = 0; form == Collective::kAllreduce && i < one.voter_count; ++i) {
      s.asked += one.voters[i].known == Known::kYes;
      s.agree += one.voters[i].known == Known::kYes && one.voters[i].digest == digest;
    }
  }
  Why why = {blame::Verdict::kUndetermined, messages::checksum::part_undecided};
  if (s.changed >= 0) why = {blame::Verdict::kModified, messages::checksum::contribution_changed};
  else if (s.asked > 1 && s.agree == s.asked) why = {blame::Verdict::kUndetermined, messages::checksum::all_alike};
  else if (outcome != nullptr)
    why = why_wrong(*outcome,
                    outcome->kept && outcome->changed &&
                        equal(linear_subtract(outcome->linear, outcome->last_sum, outcome->first_sum), one.rest),
                    earlier);
  s.cause = blame::verdict_text(why.verdict);
  s.how = why.how;
  publish_sum(s);
}

}  // namespace

RestState right_sum(const Case& one, Linear* sum, RestState (*rest_at)(const Name& name, Linear* words)) {
  const Outcome* outcome = &one.own.outcome;
  RestState state = RestState::kNever;
  Linear rest = {};
  if (!one.found || outcome->linear == LinearMode::kNone || collective_of(one.own.name.id) != Collective::kAllreduce)
    return state;
  if (one.root_place < one.voter_count) {
    const Voter& voter = one.voters[one.root_place];
    if (voter.known != Known::kYes) return voter.known == Known::kNo ? state : RestState::kPending;
    outcome = &voter.outcome;
    state = voter.rest_state;
    rest = voter.rest;
  } else if (still_there(one.own.name) != nullptr && one.own.name.info->rank == 0) {
    state = rest_at(one.own.name, &rest);
  }
  if (state == RestState::kKnown && !outcome->kept) state = RestState::kNever;
  if (state == RestState::kKnown) *sum = linear_add(outcome->linear, rest, outcome->first_sum);
  return state;
}

/// Did ranks make calls that do not belong together? Then whatever came is the program's doing.
static bool calls_differ(const Case& one) {
  const ledger::Called own = ledger::calls_find(one.received.comm, one.received.tag);
  for (uint32_t i = 0; i < one.voter_count; ++i) {
    const Voter& voter = one.voters[i];
    const bool by_amount = i == one.child_place && !one.local && one.sent.bytes != one.received.bytes &&
                           voter.called.bytes == one.sent.bytes;
    if (!voter.called.known || !own.known || (ledger::calls_agree(own, voter.called) && !by_amount)) continue;
    ledger::CallsDiffer differ = {};
    differ.there = voter.peer;
    differ.own = one.received;
    differ.own.space = static_cast<uint8_t>(ledger::Space::kAgreement);
    differ.own.call = own.call;
    differ.own.upper = own.calls;
    differ.own.lower = own.type;
    differ.other = one.sent;
    differ.other.space = differ.own.space;
    differ.other.call = voter.called.call;
    differ.other.upper = voter.called.calls;
    differ.other.lower = voter.called.type;
    if (one.local || one.sum) differ.other.digest = ~one.received.digest;  // what came is wrong
    differ.own_called = own;
    differ.other_called = voter.called;
    differ.other_site = voter.site;
    differ.confirmed = true;
    ledger::calls_differ(differ);
    return true;
  }
  return false;
}

void decide(const Case& one) {
  if (calls_differ(one)) return;
  if (one.local) return decide_local(one.own.name, one.own.outcome, one.text, one.element);
  if (one.clash) return ledger::count_uncovered(Reason::kCallsDiffer, 1, one.received.bytes);
  if (one.sum) return decide_sum(one);
  Disagreement d = {};
  if (one.found) d.name = one.own.name;
  else
    d.name = {one.received.comm,
              one.received.comm,
              nullptr,
              one.received.tag,
              0,
              static_cast<CallId>(one.received.call),
              0,
              one.received.site,
              one.received.bytes,
              0,
              0};
  // Forgotten: it may have been one of those.
  const bool orders = one.found ? one.own.orders : collective_of(d.name.id) == Collective::kAllreduce;
  if (orders && arbitrary(one)) {
    ledger::count_uncovered(Reason::kReduction, 1, one.received.bytes);
    return;
  }
  d.that = one.child;
  d.this_digest = one.received.digest, d.that_digest = one.sent.digest;
  d.this_bytes = one.received.bytes, d.that_bytes = one.sent.bytes;
  d.that_site = one.sent.site;
  d.that_text = one.child_site;
  const Collective form = collective_of(d.name.id);
  d.chain = form == Collective::kScan || form == Collective::kExscan;
  d.asked = 2;
  d.agree_this = d.agree_that = 1;
  uint64_t counted = 0, best = 0;
  for (uint32_t i = 0; !d.chain && i < one.voter_count; ++i) {
    const Voter& voter = one.voters[i];
    if (i == one.child_place || voter.known != Known::kYes) continue;
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
      form == Collective::kBcast && one.found && still_there(d.name) != nullptr && d.name.info->rank == d.name.root;
  const bool root_known = one.root_place < one.voter_count && one.voters[one.root_place].known == Known::kYes;
  if (form == Collective::kBcast && (root_here || root_known)) {
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
    if (d.verdict == Verdict::kUndetermined && !d.chain && child != nullptr && child->known == Known::kYes && one.found)
      single_out(one, *child, d);
    explain(one, d, one.found && one.own.outcome.last == d.that_digest,
            child != nullptr && child->outcome.last == d.this_digest);
  }
  publish(d);
}

void decide_local(const Name& name, const Outcome& outcome, const char* text, int64_t element) {
  if (!outcome.kept) return publish_local(name, text, element, nullptr, nullptr);
  const bool earlier = like_earlier({name, outcome.first, false, false, outcome});
  const Why why = why_wrong(outcome, false, earlier);
  publish_local(name, text, element, blame::verdict_text(why.verdict), why.how);
}

}  // namespace resil::collective
