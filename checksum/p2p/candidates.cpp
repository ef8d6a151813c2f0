// SPDX-License-Identifier: Apache-2.0
//
// See candidates.h.

#include "checksum/p2p/candidates.h"

#include "shim/call/runtime.h"
#include "shim/call/thread.h"
#include "shim/model/tells_others.h"
#include "shim/report/json.h"

namespace resil::p2p {

void Candidates::received(const WildReceive& receive, uint64_t told) {
  ++followed_;
  if (told > told_) {
    told_ = told;
    used_ = 0;
  }
  for (unsigned i = 0; i < used_;) {
    const Alike& one = alike_[i];
    if (one.comm == receive.comm && one.source != receive.source && one.last_posted < receive.posted &&
        (one.tag_wanted == receive.tag || one.tag_wanted == ring::kAnyTag)) {
      several_ += one.count;
      alike_[i] = alike_[--used_];
    } else {
      ++i;
    }
  }
  if (receive.posted <= told_) return;
  for (unsigned i = 0; i < used_; ++i) {
    Alike& one = alike_[i];
    if (one.comm != receive.comm || one.source != receive.source || one.tag_wanted != receive.tag_wanted) continue;
    ++one.count;
    one.last_posted = one.last_posted > receive.posted ? one.last_posted : receive.posted;
    return;
  }
  if (used_ < kMost) alike_[used_++] = {receive.comm, receive.posted, 1, receive.tag_wanted, receive.source};
}

namespace {

constexpr uint64_t kLookBack = 256;  // records: what is older counts as having told others
Candidates candidates;
uint64_t looked_at, last_told;  // of the one trace buffer: newest record that was looked at; the last call that told

/// Another thread may have told others: its calls have an order of their own.
bool is_only_caller(const ring::TraceBuffer& trace) {
  for (uint32_t i = 0; i < runtime.trace_count; ++i)
    if (&runtime.traces[i] != &trace && __atomic_load_n(&runtime.traces[i].head, __ATOMIC_RELAXED) != 0) return false;
  return true;
}

}  // namespace

void wild_received(const Event& e, const WildReceive& receive) {
  const ring::TraceBuffer& trace = *e.thread->trace;
  if (!is_only_caller(trace)) return;
  const uint64_t head = trace.head;
  const uint64_t oldest = head > kLookBack && head - kLookBack > looked_at ? head - kLookBack : looked_at;
  uint64_t number = head;
  while (number > oldest && !tells_others(ring::record_at(trace, number - 1))) --number;
  if (number > oldest) last_told = number;
  else if (oldest > looked_at) last_told = oldest;
  looked_at = head;
  candidates.received(receive, last_told);
}

void wild_report(JsonWriter& json) {
  if (candidates.followed() == 0) return;
  json.begin_object("any_source");
  json.integer("followed", candidates.followed());
  json.integer("several_candidates", candidates.several());
  json.end_object();
}

}  // namespace resil::p2p
