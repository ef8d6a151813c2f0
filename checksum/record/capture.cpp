// SPDX-License-Identifier: Apache-2.0
//
// A call as a record: what both record and verify make of an event; and record's writing of it.
//
// The stream's order is call, outcome or indices, completions. The shim tells completions before `leave`, so a call
// that completes requests is written with the first of them.

#include "checksum/record/state.h"
#include "shim/abi/backend.h"
#include "shim/call/thread.h"
#include "shim/tables/tables.h"

namespace resil::record {

namespace {

constexpr uint32_t kHasFlags = kCallStarts | kCallActivates | kCallCompletes | kCallPoll;

bool has_statuses(const Event& e) {
  return e.given_statuses != nullptr && !backend->messages->status_ignored(e.given_statuses);
}

int32_t source_of(const Event& e) { return e.attributes & kCallBothWays ? e.receive_peer : e.peer; }
int32_t tag_of(const Event& e) { return e.attributes & kCallBothWays ? e.receive_tag : e.tag; }

}  // namespace

void describe(const Event& e, Call& call) {
  CallRecord* record = &call.now;
  record->comm = call.comm;
  record->in = record->out = 0;
  record->bytes = e.bytes;
  record->site = e.site;
  record->peer = e.peer;
  record->tag = e.tag;
  record->step = static_cast<uint32_t>(e.thread->trace->step);
  record->count = 1;
  record->call = static_cast<uint16_t>(e.id);
  record->flags = e.nested ? kCallNested : 0;
  record->in_type = record->out_type = ValueType::kNone;
  record->reserved[0] = record->reserved[1] = 0;
}

void put(CallRecord& record, const Value& value, bool input) {
  (input ? record.in : record.out) = value.bits;
  (input ? record.in_type : record.out_type) = value.type;
  if (value.unread) record.flags |= kCallUnread;
}

bool is_failing_poll(const Event& e) {
  if (!(e.attributes & kCallPoll) || e.result != 0) return false;
  if (e.outcount != nullptr) return *e.outcount == 0;
  return e.flag != nullptr && *e.flag == 0;
}

int64_t given_indices(const Event& e) {
  return (e.attributes & kCallCompletes) && e.outcount != nullptr && e.result == 0 && *e.outcount >= 0 ? *e.outcount
                                                                                                       : -1;
}

namespace {

inline void flag_and_index(const Event& e, Outcome* outcome) {
  if ((e.attributes & kHasFlags) && e.flag != nullptr) {
    outcome->what |= kOutcomeFlag;
    outcome->flag = *e.flag != 0;
  }
  if ((e.attributes & kCallCompletes) && e.index != nullptr && (e.flag == nullptr || *e.flag != 0)) {
    outcome->what |= kOutcomeIndex;
    outcome->index = *e.index >= 0 ? *e.index : -1;
  } else if ((e.attributes & kCallCompletes) && e.outcount != nullptr && *e.outcount < 0) {
    outcome->what |= kOutcomeIndex;
    outcome->index = -1;
  }
}

inline void match_of_wildcards(const Event& e, uint16_t is, const StatusInfo& status, Outcome* outcome) {
  if (!(is & kMatches) || !is_wild(source_of(e), tag_of(e))) return;
  outcome->what |= kOutcomeMatch;
  outcome->source = status.source;
  outcome->tag = status.tag;
}

}  // namespace

void choice_of(const Event& e, Outcome* outcome) {
  outcome->what = 0;
  flag_and_index(e, outcome);
  const uint16_t is = data_flow_of(e.id);
  if (!(is & kMatches) || !has_statuses(e)) return;
  StatusInfo status;
  backend->messages->status_read(e.given_statuses, 0, &status);
  match_of_wildcards(e, is, status, outcome);
}

void finish_record(Event& e, CallRecord* record, Outcome* outcome, const CallRecord* then) {
  const uint16_t is = data_flow_of(e.id);
  outcome->what = 0;
  if (e.result != 0) {
    record->flags |= kCallFailed;
    if (backend->messages->error_kind(e.result) != ErrorKind::kInStatus) return;
  }
  if (e.attributes & (kCallStarts | kCallActivates)) return;
  if (is & kUnforced) record->flags |= kCallUnforced;
  flag_and_index(e, outcome);
  if (is & kCollects) {
    put(*record, collective_output(e), false);
  } else if (is & (kProbes | kTakes)) {
    if (is & kWindow) return window_get(e);
    if ((!(is & kMessage) && !(is & kFile) && source_of(e) == ring::kProcNull) || !has_statuses(e)) return;
    StatusInfo status;
    backend->messages->status_read(e.given_statuses, 0, &status);
    match_of_wildcards(e, is, status, outcome);
    outcome->bytes = status.bytes;
    if (is & kProbes) {
      outcome->what |= kOutcomeBytes;
      return;
    }
    const View view = receive_view(e);
    if (status.bytes != view.bytes) outcome->what |= kOutcomeBytes;
    put(*record, read_view(view, status.bytes), false);
  } else if (is & kSync) {
    put(*record, window_sync(e, then), false);
  }
}

void record_call(Event& e, PerThread& t, Call& call) {
  if (call.written) return;
  call.written = true;
  CallRecord& record = call.now;
  const Value input = {record.in, record.in_type, (record.flags & kCallUnread) != 0};
  describe(e, call);
  if (call.has_input) put(record, input, true);
  else if (data_flow_of(e.id) & (kGives | kCollects | kBlind))
    if (!(e.attributes & kCallPersistent)) put(record, input_of(e), true);
  Outcome outcome;
  finish_record(e, &record, &outcome);
  if ((e.attributes & kCallStarts) && e.result == 0) {
    record.flags |= kCallStarted;
  } else if ((e.attributes & kCallActivates) && call.told != 0) {
    record.flags |= kCallStarted;
    record.count = call.told;
  }
  call.ordinal = t.stream->call(record);
  if (outcome.what != 0) t.stream->outcome(outcome);
  if (const int64_t given = given_indices(e); given >= 0) t.stream->indices(e.indices, static_cast<uint32_t>(given));
}

void record_leave(Event& e, PerThread& t, Call& call) {
  if (is_failing_poll(e)) {
    describe(e, call);
    return t.stream->poll(call.now);
  }
  record_call(e, t, call);
  if ((e.attributes & kCallStarts) && e.result == 0) follow(e, t, call);
}

}  // namespace resil::record
