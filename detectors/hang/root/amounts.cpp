// SPDX-License-Identifier: Apache-2.0
//
// Collectives whose amounts differ are a line in hang.log, since many libraries let them pass. Where ranks do not
// return from that very call, they are the cause.

#include "detectors/hang/root/root_verdict.h"

namespace resil::hang {

namespace {

constexpr double kAmountsAfter = 12;

/// Is that verdict about the call in which amounts differ?
bool is_that_call(const Root& root, const Verdict& verdict) {
  return verdict.type == HangClass::kInsideMpi && verdict.comm != 0 && root.amounts.statement_count != 0 &&
         root.amounts.statements[0].id == Message::kMismatchBytes && root.amounts.comm == verdict.comm &&
         root.amounts.sequence == verdict.sequence;
}

}  // namespace

bool amounts_explain(const Root& root, double blocked, const Verdict& verdict) {
  const double limit = root.learned.limit > kAmountsAfter ? root.learned.limit : kAmountsAfter;
  return blocked >= limit && is_that_call(root, verdict);
}

void promote_amounts(const Root& root, Verdict* verdict) {
  if (!is_that_call(root, *verdict)) return;
  Statement waits = {};
  for (uint32_t i = 0; i < verdict->statement_count; ++i)
    if (verdict->statements[i].id == Message::kNotReturned) waits = verdict->statements[i];
  const uint64_t signature = verdict->signature;
  *verdict = root.amounts;
  verdict->confidence = Confidence::kVerified;
  verdict->signature = signature;
  if (waits.ranks.total != 0) verdict->add(waits.id) = waits;
}

}  // namespace resil::hang
