// SPDX-License-Identifier: Apache-2.0
//
// What one-sided operations bring (shim/tables/window_results.h), for recordings: and in verify, who came first at a
// counter.

#include "checksum/record/state.h"
#include "shim/tables/window_results.h"

namespace resil::record {

namespace {

constinit WindowResults results = {};

/// Verify: who came first at a counter is a decision as well. The only value that this call brings, if it is a number,
/// becomes the recorded one: each process gets the tickets that it got then.
void force_value(const View& view, bool decided, const CallRecord& then) {
  if (!decided || view.reason != Reason::kNone || !view.type->contiguous || view.bytes > 8 ||
      then.out_type == ValueType::kNone || then.out_type == ValueType::kDigest)
    return;
  __builtin_memcpy(const_cast<void*>(view.buffer), &then.out, view.bytes);
  counts.forced += 1;
  counts.unforced -= counts.unforced != 0;
}

}  // namespace

void window_get(Event& e) {
  if (!results.add(e)) counts.unread += 1;
}

Value window_sync(Event& e, const CallRecord* then) {
  View only;
  bool decided;
  if (then != nullptr && results.completed_by(e, &only, &decided) == 1) force_value(only, decided, *then);
  return results.take(e, true);
}

}  // namespace resil::record
