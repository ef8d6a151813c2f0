// SPDX-License-Identifier: Apache-2.0
//
// See compare.h.

#include "checksum/collective/compare.h"

#include <cstring>

#include "checksum/collective/agreement.h"
#include "checksum/collective/seen.h"
#include "checksum/collective/sums.h"
#include "checksum/ledger/blame.h"
#include "checksum/ledger/blame_evidence.h"
#include "checksum/ledger/lives.h"
#include "checksum/ledger/peer.h"
#include "checksum/messages.h"
#include "shim/base/hash.h"
#include "shim/runtime/work_memory.h"
#include "shim/tables/tables.h"

namespace resil::collective {

namespace {

using ledger::Reason;
using ledger::Record;
using ledger::Space;

void note(Plan& plan, Reason reason) {
  if (plan.outcome == Reason::kNone) plan.outcome = reason;
}

Record make_record(const Plan& plan, Space space, uint64_t bytes, uint64_t digest, uint16_t type, Reason reason,
                   bool repeated = false) {
  Record record = {plan.name.comm,
                   digest,
                   bytes,
                   plan.name.site,
                   plan.name.tag,
                   static_cast<uint16_t>(plan.name.id),
                   static_cast<uint8_t>(space),
                   static_cast<uint8_t>(repeated ? ledger::kUnordered : 0),
                   plan.name.calls,
                   type};
  if (reason != Reason::kNone) [[unlikely]] {
    record.digest = static_cast<uint64_t>(reason);
    record.flags |= ledger::kUnchecked;
  }
  return record;
}

uint16_t type_of(const View& view) {
  return view.type != nullptr ? signature_fold(type_signature(*view.type, view.bytes)) : uint16_t{0};
}

Reason first_of(Reason a, Reason b, Reason c = Reason::kNone) {
  return a != Reason::kNone ? a : b != Reason::kNone ? b : c;
}

void compare_blocks(Thread& thread, Plan& plan, Reason failed) {
  auto reason_of = [failed](const Block& block) { return first_of(failed, block.view.reason); };
  // All are read before any is compared: what one of them should be may have come into another one's place.
  for (uint32_t i = 0; i < plan.receives.count; ++i) {
    Block& block = plan.receives.items[i];
    if (block.peer == nullptr) continue;
    const Reason reason = reason_of(block);
    if (reason == Reason::kNone) block.digest = view_digest(block.view, block.view.bytes);
    else note(plan, reason);
    if (block.posted == 0) [[likely]]
      continue;
    if (reason == Reason::kNone) {
      block.evidence = blame::receive_complete(block.posted, block.view, block.view.bytes, block.digest);
      blame::block_received(
          *block.peer, make_record(plan, Space::kBlock, block.view.bytes, block.digest, type_of(block.view), reason));
    } else {
      blame::drop_posted(block.posted);
    }
    block.posted = 0;
  }
  for (uint32_t i = 0; i < plan.receives.count; ++i) {
    Block& block = plan.receives.items[i];
    if (block.peer == nullptr) continue;
    const uint64_t evidence = block.evidence;
    block.evidence = 0;
    ledger::expect(thread, *block.peer,
                   make_record(plan, Space::kBlock, block.view.bytes, block.digest, type_of(block.view),
                               reason_of(block), block.repeated),
                   evidence);
  }
  if (plan.unreachable_why != Reason::kNone) {
    note(plan, plan.unreachable_why);
    if (plan.unreachable != 0) ledger::count_uncovered(plan.unreachable_why, plan.unreachable, plan.unreachable_bytes);
  }
}

void compare_own(Plan& plan, Reason failed) {
  const Reason reason = first_of(failed, plan.own_given.reason, plan.own_got.reason);
  if (reason != Reason::kNone) {
    note(plan, reason);
    ledger::count_uncovered(reason, 1, plan.own_got.bytes);
    return;
  }
  if (plan.own_compared ||
      (view_digest(plan.own_got, plan.own_got.bytes) == plan.own_digest && plan.own_got.bytes == plan.own_given.bytes))
    ledger::count_checked(1, plan.own_got.bytes);
  else agreement_contradicted(plan.name, {}, messages::checksum::own_block_differs, -1);
}

/// Is the result of a broadcast what this rank gave?
bool is_root(const Plan& plan) {
  return plan.form == Collective::kBcast && plan.agrees && !plan.intercomm && plan.name.info->rank == plan.name.root;
}

uint64_t result_digest(const Plan& plan) {
  if (plan.inputs_read && is_root(plan))
    return plan.own_digest;  // as it was given: the program may have changed it since
  if (plan.reduces) return canonical_digest(plan.reduction, plan.result);
  if (!plan.result_parts) return view_digest(plan.result, plan.result.bytes);
  uint64_t digest = 0;
  for (uint32_t i = 0; i < plan.parts.count; ++i)
    if (const View& part = plan.parts.items[i].view; part.bytes != 0)
      digest = hash_combine(digest + i, view_digest(part, part.bytes));
  return digest;
}

bool is_prefix(const Plan& plan) { return plan.form == Collective::kScan || plan.form == Collective::kExscan; }

/// The first element of the result that this rank's own contribution contradicts; -1: none, or it says nothing.
int64_t contradicted(const Plan& plan, Reason failed) {
  const Reduction& r = plan.reduction;
  const bool tells = failed == Reason::kNone && plan.gets_result && !plan.in_place && !is_prefix(plan) &&
                     !plan.intercomm && r.comparable && r.linear == LinearMode::kNone && r.input.type != nullptr &&
                     r.output.type != nullptr && r.input.reason == Reason::kNone && r.output.reason == Reason::kNone;
  return tells ? bound_violated(r) : -1;
}

/// Why the arithmetic of this reduction cannot be looked at now.
Reason input_reason(const Plan& plan, Reason failed) {
  const Reduction& r = plan.reduction;
  return first_of(failed, r.input.reason, r.has_input ? Reason::kNone : Reason::kCollective);
}

/// Is it this rank that takes the result off the sum of what was given?
bool subtracts_result(const Plan& plan) {
  return plan.form == Collective::kAllreduce ? plan.name.info->rank == 0 : plan.gets_result;
}

/// Whether a result is known to be right before all that is said of it has come; see seen.h and sums.h.
struct ResultLook {
  Thread& thread;
  const Plan& plan;
  Around around;
  uint32_t turns;
};

bool result_is_right(void* of) {
  auto& look = *static_cast<ResultLook*>(of);
  const Plan& plan = look.plan;
  const Reduction& r = plan.reduction;
  constexpr uint32_t kMessagesEvery = 16;
  ledger::take_come(look.thread, ++look.turns % kMessagesEvery == 0);
  if (plan.agrees) return seen_by_all(plan.name, look.around, plan.how.first);
  return subtracts_result(plan) && input_reason(plan, Reason::kNone) == Reason::kNone &&
         sums_vanish_with(plan.name, *plan.tree, r.linear,
                          linear_subtract(r.linear, r.contribution, plan.how.first_sum));
}

bool nothing_to_ask(void*) { return true; }

/// Full blame: reads the result of a reduction, and reads it again; and what this rank gave.
void look_at_result(Thread& thread, Plan& plan, Reason failed) {
  Reduction& r = plan.reduction;
  Outcome& how = plan.how;
  how = {};
  const uint64_t posted = plan.result_posted;
  plan.result_posted = 0;
  how.linear = failed == Reason::kNone ? r.linear : LinearMode::kNone;
  if (how.linear != LinearMode::kNone && r.has_input && !plan.in_place && !plan.blocking &&
      r.input.reason == Reason::kNone) {
    const Linear before = r.contribution;
    reduction_read_input(r);
    how.input_changed = !linear_subtract(r.linear, r.contribution, before).zero();
    r.contribution = before;
  }
  if (posted == 0) return;
  if (failed != Reason::kNone) return blame::drop_posted(posted);
  auto read = [&](uint64_t* digest, Linear* sum) {
    *digest = r.comparable ? canonical_digest(r, r.output) : view_digest(r.output, r.output.bytes);
    if (how.linear != LinearMode::kNone) *sum = reduction_result(r);
  };
  read(&how.first, &how.first_sum);
  how.content = r.comparable ? view_digest(r.output, r.output.bytes) : how.first;
  // Of a result that is compared with nothing, only the own contribution can say that it is wrong.
  const bool compared = plan.tree != nullptr && (plan.agrees || plan.sums);
  blame::Right right = {nothing_to_ask, nullptr};
  ResultLook look = {thread, plan, compared ? Around(*plan.tree) : Around(Tree{}), 0};
  if (compared) right = {result_is_right, &look};
  if (compared && plan.agrees) seen_tell(thread, plan.name, look.around, how.first);
  const bool asks = contradicted(plan, failed) < 0;
  const uint64_t handle = blame::receive_complete(posted, r.output, r.output.bytes, how.content, blame::LookWhen::kNow,
                                                  asks ? &right : nullptr);
  read(&how.last, &how.last_sum);
  blame::Evidence evidence;
  Work<blame::Content> content;
  how.kept = blame::receive_evidence(handle, &evidence, content.get());
  how.untouched = how.kept && evidence.untouched;
  how.changed = how.kept && (evidence.changed || how.first != how.last);
  blame::drop(handle);
}

void compare_agreement(Thread& thread, Plan& plan, Reason failed) {
  const Tree& tree = *plan.tree;
  const Reason reason = first_of(failed, plan.result.reason);
  const uint64_t digest = reason != Reason::kNone ? 0 : plan.how.kept ? plan.how.first : result_digest(plan);
  const uint64_t bytes = plan.result.bytes;
  const Record record = make_record(plan, Space::kAgreement, bytes, digest, plan.name.type, reason);
  if (reason == Reason::kNone)
    agreement_note(plan.name, digest, plan.reduces && plan.reduction.orders, plan.reduces && plan.reduction.nan_seen,
                   plan.how);
  else note(plan, reason);
  // A copy: the tree may lie in a cache, and what follows may come back here.
  const uint32_t children = tree.child_count;
  ledger::Peer* expected[kMostChildren];
  for (uint32_t i = 0; i < children; ++i) expected[i] = tree.children[i];
  if (tree.reason != Reason::kNone) {
    note(plan, tree.reason);
    if (tree.missing != 0) ledger::count_uncovered(tree.reason, tree.missing, tree.missing * bytes);
  }
  if (tree.parent != nullptr) ledger::announce(thread, *tree.parent, record);
  for (uint32_t i = 0; i < children; ++i) ledger::expect(thread, *expected[i], record);
  if (plan.blocking && ledger::strict())
    for (uint32_t i = 0; i < children; ++i) ledger::await(thread, *expected[i]);
}

void compare_sum(Thread& thread, Plan& plan, Reason failed) {
  const Reduction& r = plan.reduction;
  const bool subtracts = subtracts_result(plan);
  Reason reason = input_reason(plan, failed);
  if (reason == Reason::kNone && subtracts && r.output.bytes != 0) reason = r.output.reason;
  Linear part = r.contribution;
  if (reason != Reason::kNone) note(plan, reason);
  else if (subtracts && r.output.bytes != 0)
    part = linear_subtract(r.linear, part, plan.how.kept ? plan.how.first_sum : reduction_result(r));
  if (ledger::full_blame() && reason == Reason::kNone && plan.form != Collective::kAllreduce)
    agreement_note(plan.name, plan.how.first, false, false, plan.how);
  sums_own(thread, plan.name, *plan.tree, r.linear, part, reason);
}

uint64_t folded(const Linear& linear) { return hash_combine(linear.words[0], linear.words[1]); }

/// Prefix sums: the result of a rank is its predecessor's and its own contribution.
void compare_chain(Thread& thread, Plan& plan, Reason failed) {
  const Reduction& r = plan.reduction;
  const bool inclusive = plan.form == Collective::kScan;
  Reason reason = first_of(input_reason(plan, failed), plan.gets_result ? r.output.reason : Reason::kNone);
  Linear result = {}, through = {}, before = {};  // through: sum of all ranks up to this one
  if (reason == Reason::kNone) {
    if (plan.gets_result) result = reduction_result(r);
    through = inclusive ? result : linear_add(r.linear, result, r.contribution);
    before = inclusive ? linear_subtract(r.linear, result, r.contribution) : result;
  } else {
    note(plan, reason);
  }
  const uint64_t bytes = r.input.bytes;
  if (plan.chain_next != nullptr)
    ledger::announce(thread, *plan.chain_next,
                     make_record(plan, Space::kAgreement, bytes, folded(through), plan.name.type, reason));
  if (plan.chain_before != nullptr) {
    if (reason == Reason::kNone) agreement_note(plan.name, folded(before), false, false, {});
    ledger::expect(thread, *plan.chain_before,
                   make_record(plan, Space::kAgreement, bytes, folded(before), plan.name.type, reason));
    if (plan.blocking) ledger::await(thread, *plan.chain_before);
  } else if (inclusive && plan.unreachable == 0 && reason == Reason::kNone) {  // rank 0
    if (before.zero()) ledger::count_checked(1, bytes);
    else agreement_contradicted(plan.name, {}, messages::checksum::first_differs, -1);
  }
}

void compare_reduction(Thread& thread, Plan& plan, Reason failed) {
  Reduction& r = plan.reduction;
  const bool prefix = is_prefix(plan);
  if (const int64_t element = contradicted(plan, failed); element >= 0)
    agreement_contradicted(plan.name, plan.how, messages::checksum::element_contradicts, element);
  if (plan.sums) return compare_sum(thread, plan, failed);
  if (prefix && r.linear != LinearMode::kNone) return compare_chain(thread, plan, failed);
  if (plan.agrees) return;  // counted apart: see docs/CHECKSUM.md, agreement only
  note(plan, r.why);
  if (plan.gets_result && r.output.bytes != 0) ledger::count_uncovered(r.why, 1, r.output.bytes);
}

/// One buffer for many partners.
bool same_data(const View& a, const View& b) {
  return a.buffer == b.buffer && a.count == b.count && a.type == b.type && a.bytes == b.bytes;
}

/// Full blame, when the operation is complete: is what was given still the same?
void read_again(Plan& plan) {
  const Block* before = nullptr;
  uint64_t digest = 0;
  for (uint32_t i = 0; i < plan.sends.count; ++i) {
    Block& block = plan.sends.items[i];
    if (block.handle == 0) continue;
    if (before == nullptr || !same_data(before->view, block.view)) digest = view_digest(block.view, block.view.bytes);
    before = &block;
    blame::sent_complete(block.handle, block.view, digest);
    block.handle = 0;
  }
}

uint64_t start_of(const Block& block) { return reinterpret_cast<uint64_t>(block.view.buffer); }
uint64_t end_of(const Block& block) { return start_of(block) + block.view.bytes; }

/// Do parts of what this call receives share memory? MPI forbids it. Only those that lie in one piece are compared;
/// more than a few in another order than that of the ranks are not.
bool overlap(const Blocks& blocks) {
  constexpr uint32_t kFew = 64;
  const Block *before = nullptr, *items = blocks.items;
  bool rising = true, falling = true;
  for (uint32_t i = 0; i < blocks.count; ++i) {
    const Block& block = items[i];
    if (block.view.bytes == 0 || block.view.type == nullptr || !block.view.type->contiguous) continue;
    if (before != nullptr) {
      rising = rising && end_of(*before) <= start_of(block);
      falling = falling && end_of(block) <= start_of(*before);
    }
    before = &block;
  }
  if (rising || falling || blocks.count > kFew) return false;
  for (uint32_t i = 0; i < blocks.count; ++i)
    for (uint32_t j = i + 1; j < blocks.count; ++j) {
      const View &a = items[i].view, &b = items[j].view;
      if (a.bytes != 0 && b.bytes != 0 && a.type != nullptr && b.type != nullptr && a.type->contiguous &&
          b.type->contiguous && start_of(items[i]) < end_of(items[j]) && start_of(items[j]) < end_of(items[i]))
        return true;
    }
  return false;
}

}  // namespace

namespace {

bool is_same(const View& given, const View& got) {
  return given.bytes != 0 && given.bytes == got.bytes && given.reason == Reason::kNone && got.reason == Reason::kNone &&
         given.type->contiguous && got.type->contiguous && type_of(given) == type_of(got) &&
         memcmp(given.buffer, got.buffer, given.bytes) == 0;
}

Block* own_block(Blocks& blocks) {
  for (uint32_t i = 0; i < blocks.count; ++i)
    if (ledger::peer_is_self(*blocks.items[i].peer)) return &blocks.items[i];
  return nullptr;
}

}  // namespace

void compare_given_to_itself(Plan& plan) {
  if (ledger::full_blame() || plan.in_place || plan.reason != Reason::kNone) return;
  if (plan.own) plan.own_compared = is_same(plan.own_given, plan.own_got);
  if (plan.form == Collective::kNeighborAlltoall || plan.form == Collective::kNeighborAllgather) return;
  Block *given = own_block(plan.sends), *got = own_block(plan.receives);
  if (given == nullptr || got == nullptr || !is_same(given->view, got->view)) return;
  ledger::count_checked(1, got->view.bytes);
  given->peer = got->peer = nullptr;
}

void read_inputs(Plan& plan) {
  const Block* before = nullptr;
  for (uint32_t i = 0; i < plan.sends.count; ++i)
    if (Block& block = plan.sends.items[i]; block.peer != nullptr && block.view.reason == Reason::kNone) {
      block.digest = before != nullptr && same_data(before->view, block.view)
                         ? before->digest
                         : view_digest(block.view, block.view.bytes);
      before = &block;
    }
  if (is_root(plan) && plan.result.reason == Reason::kNone)
    plan.own_digest = view_digest(plan.result, plan.result.bytes);
  if (plan.own && !plan.own_compared && plan.own_given.reason == Reason::kNone && plan.own_given.type != nullptr)
    plan.own_digest = view_digest(plan.own_given, plan.own_given.bytes);
  if (Reduction& r = plan.reduction; plan.reduces && r.input.type != nullptr && r.input.reason == Reason::kNone)
    reduction_read_input(r);
  plan.inputs_read = true;
}

void read_before(Plan& plan) {
  for (uint32_t i = 0; i < plan.receives.count; ++i)
    if (Block& block = plan.receives.items[i]; block.view.reason == Reason::kNone)
      block.posted = blame::receive_posted(block.view);
  if (const View& result = plan.reduction.output; plan.reduces && plan.gets_result && !is_prefix(plan) &&
                                                  !plan.intercomm && result.bytes != 0 &&
                                                  result.reason == Reason::kNone)
    plan.result_posted = blame::receive_posted(result);
}

void tell_receivers(Thread& thread, Plan& plan) {
  for (uint32_t i = 0; i < plan.sends.count; ++i) {
    Block& block = plan.sends.items[i];
    if (block.peer == nullptr) continue;
    const Reason reason =
        first_of(plan.reason, block.view.reason, plan.inputs_read ? Reason::kNone : Reason::kCollective);
    const Record record =
        make_record(plan, Space::kBlock, block.view.bytes, block.digest, type_of(block.view), reason, block.repeated);
    if (reason != Reason::kNone) note(plan, reason);
    const uint64_t ordinal = ledger::announce(thread, *block.peer, record);
    if (reason != Reason::kNone) continue;
    const bool replaced = plan.in_place && plan.form == Collective::kAlltoall && ledger::full_blame();
    block.handle = blame::sent(ledger::world_rank_of(*block.peer), ordinal, record, replaced ? View{} : block.view);
    if (replaced) {  // the result is where the data was: nothing to read again
      blame::sent_complete(block.handle, {nullptr, 0, nullptr, 0, Reason::kCollective});
      block.handle = 0;
    }
  }
  if (plan.blocking && ledger::full_blame()) read_again(plan);
}

void compare_results(Thread& thread, Plan& plan, Reason failed) {
  failed = first_of(failed, plan.reason);
  if (failed == Reason::kNone && (overlap(plan.receives) || (plan.result_parts && overlap(plan.parts)))) [[unlikely]] {
    ledger::note_shared_memory();
    failed = Reason::kOverlapped;
  }
  if (failed != Reason::kNone) note(plan, failed);
  if (plan.reduces && ledger::full_blame()) look_at_result(thread, plan, failed);
  if (plan.own) compare_own(plan, plan.inputs_read ? failed : first_of(failed, Reason::kCollective));
  if (plan.tree != nullptr && plan.agrees) compare_agreement(thread, plan, failed);
  if (plan.reduces) compare_reduction(thread, plan, failed);
  if (!plan.blocking && ledger::full_blame() && failed == Reason::kNone) read_again(plan);
  compare_blocks(thread, plan, failed);
  if (ledger::strict())  // their senders have posted them: the records are on the way
    for (uint32_t i = 0; i < plan.receives.count; ++i)
      if (ledger::Peer* from = plan.receives.items[i].peer; from != nullptr) ledger::await(thread, *from);
}

}  // namespace resil::collective
