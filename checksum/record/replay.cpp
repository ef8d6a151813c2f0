// SPDX-License-Identifier: Apache-2.0
//
// Replay: MPI decides as it did in the recorded run. A receive with wildcards is posted with the source and tag that it
// had then; among receives that end with the same communicator, source and tag posting order is sending order (MPI 4.0
// section 3.5), so each gets the message that it got. MPI_Waitany and the like wait for the requests that were complete
// then; a test that failed fails, having let MPI progress; one that succeeded waits. All waits are repeated tests with
// a limit: what does not come is said, never waited for without end.

#include "checksum/record/divergence.h"
#include "checksum/record/state.h"
#include "shim/abi/backend.h"
#include "shim/call/runtime.h"
#include "shim/call/thread.h"
#include "shim/model/request_class.h"
#include "shim/runtime/mailbox.h"
#include "shim/runtime/progress.h"
#include "shim/runtime/staged.h"
#include "shim/tables/tables.h"

#include <cstdio>

namespace resil::record {

namespace {

constexpr int64_t kManyRequests = 64;  // testing more than these costs more than the limit is worth

/// A round of waiting is over; longer than the limit is a divergence.
void waited(Event& e, PerThread& t, Call& call, int32_t source, uint32_t round, uint64_t* began) {
  const uint32_t often = mode.live ? 64 : 1024;  // where ranks share cores each test is as long as a turn of theirs
  if (round % often != often - 1) return;
  const uint64_t now = ticks();
  if (*began == 0) *began = now;
  if (static_cast<double>(now - *began) < mode.timeout * runtime.header->ticks_per_second) return;
  if (mode.live) return live_stuck();
  Difference d = difference(What::kStuck);
  d.source = e.comm != nullptr && source >= 0 ? comm_world_rank(*e.comm, source) : -1;
  if (source >= 0)
    snprintf(d.expected_text, sizeof(d.expected_text), "a message from rank %d of the communicator", source);
  else snprintf(d.expected_text, sizeof(d.expected_text), "the completion of its requests");
  snprintf(d.found_text, sizeof(d.found_text), "nothing");
  diverged(&e, t, &call, d);
}

/// Repeats `test(&flag)` until it succeeds or fails.
template <class Test>
int wait_for(Event& e, PerThread& t, Call& call, int32_t source, Test test) {
  uint64_t began = 0;
  uint32_t round = 0;
  return wait_by_tests(*e.thread, [&](int* flag) {
    if (round != 0) waited(e, t, call, source, round - 1, &began);
    ++round;
    return test(flag);
  });
}

/// Are there requests that are not the library's alone?
bool requests_stand_in() { return substitutes_used() || (staged_requests != nullptr && staged_requests->any()); }

void* status_at(const Event& e, int64_t index) {
  if (e.given_statuses == nullptr || backend->messages->status_ignored(e.given_statuses)) return nullptr;
  return static_cast<char*>(e.given_statuses) + static_cast<size_t>(index) * backend->status_bytes;
}

bool has_wildcard(const Event& e) {
  return e.attributes & kCallBothWays ? is_wild(e.receive_peer, e.receive_tag) : is_wild(e.peer, e.tag);
}

void fail_poll(Event& e, const PerThread& t) {
  // Where the leader has polled faster than this rank could, there is no time to look at MPI each time.
  if (!mode.live || t.run_left % 32 == 0) backend->replay->progress();
  e.result = 0;
  if (e.flag != nullptr) *e.flag = 0;
  if (!(e.attributes & kCallCompletes)) return;
  if (e.index != nullptr) *e.index = backend->replay->undefined;
  if (e.outcount != nullptr) *e.outcount = 0;
}

/// MPI_Irecv and the like.
bool post_matched(Event& e, PerThread& t, Call& call) {
  if (e.attributes & kCallPersistent) return false;  // each start may match another message
  Match match;
  const Reading reading = match_of(e, t, call.ordinal, &match);
  if (reading == Reading::kItem && !(match.flags & kCompletionCancelled)) {
    if (match.source < 0) return false;
    call.forced = true;
    counts.forced += 1;
    return backend->replay->receive(e, match.source, match.tag, &e.result);
  }
  if (reading == Reading::kCut || reading == Reading::kDamaged || !mailbox::is_open()) return false;
  // It never got a message: nor may it now.
  counts.forced += 1;
  return mailbox::receive_from_nobody(e, &e.result);
}

/// Of a receive that is complete.
bool was_cancelled(const Event& e) {
  StatusInfo status = {};
  if (status_at(e, 0) != nullptr) backend->messages->status_read(status_at(e, 0), 0, &status);
  return status.cancelled;
}

bool receive(Event& e, PerThread& t, Call& call) {
  if (!(call.outcome.what & kOutcomeMatch) || call.outcome.source < 0) return false;
  const int32_t source = call.outcome.source, tag = call.outcome.tag;
  uint64_t request, sending;
  counts.forced += 1;
  if (!backend->replay->post_receive(e, source, tag, &request, &e.result))
    return backend->replay->receive(e, source, tag, &e.result);  // MPI_Sendrecv_replace
  if (e.result != 0) return true;
  const bool both = (e.attributes & kCallBothWays) != 0;
  if (both && (!backend->replay->post_send(e, &sending, &e.result) || e.result != 0)) return true;
  bool given_back = false;  // what came in the leading part does not come here: any message will do
  e.result = wait_for(e, t, call, source, [&](int* flag) {
    if (t.over && !given_back) {
      given_back = true;
      backend->replay->cancel(&request);
    }
    const int result = backend->messages->test(&request, flag, status_at(e, 0));
    if (!given_back || *flag == 0 || result != 0 || !was_cancelled(e)) return result;
    *flag = 0;
    int posted = 0;
    backend->replay->post_receive(e, both ? e.receive_peer : e.peer, both ? e.receive_tag : e.tag, &request, &posted);
    return posted;
  });
  if (!both) return true;
  const int result =
      wait_for(e, t, call, -1, [&](int* flag) { return backend->messages->test(&sending, flag, nullptr); });
  if (e.result == 0) e.result = result;
  return true;
}

bool probe(Event& e, PerThread& t, Call& call) {
  const bool matched = class_of(e.id) == CallClass::kMatchedProbe;
  const bool polls = (e.attributes & kCallPoll) != 0;
  if (!polls && !has_wildcard(e)) return false;
  int32_t source = e.peer, tag = e.tag;
  if (call.outcome.what & kOutcomeMatch) source = call.outcome.source, tag = call.outcome.tag;
  if (source < 0) return false;  // MPI_PROC_NULL
  counts.forced += 1;
  e.result = wait_for(e, t, call, source, [&](int* flag) {
    if (t.over) source = e.peer, tag = e.tag;
    return matched ? backend->replay->matched_probe(e, source, tag, flag, status_at(e, 0))
                   : backend->replay->probe(e, source, tag, flag, status_at(e, 0));
  });
  if (polls && e.result == 0) *e.flag = 1;
  return true;
}

bool complete_one(Event& e, PerThread& t, Call& call) {
  const int32_t index = call.outcome.index;
  if (!(call.outcome.what & kOutcomeIndex) || index < 0 || index >= e.request_count) return false;
  counts.forced += 1;
  e.result = wait_for(e, t, call, -1, [&](int* flag) { return test_request(e, index, flag, status_at(e, 0)); });
  *e.index = index;
  if (e.flag != nullptr) *e.flag = 1;
  return true;
}

bool complete_some(Event& e, PerThread& t, Call& call) {
  if (!call.listed || call.indices == 0) return false;
  counts.forced += 1;
  e.result = 0;
  for (uint32_t i = 0; i < call.indices; ++i) {
    const int32_t index = t.indices[i];
    if (index < 0 || index >= e.request_count) return false;
    const int result =
        wait_for(e, t, call, -1, [&](int* flag) { return test_request(e, index, flag, status_at(e, i)); });
    e.indices[i] = index;
    if (result != 0) e.result = backend->replay->error_in_status;
  }
  *e.outcount = static_cast<int>(call.indices);
  return true;
}

/// The same one by one.
bool complete_each(Event& e, PerThread& t, Call& call) {
  int failed = 0;
  for (int64_t i = 0; i < e.request_count; ++i)
    if (const int result =
            wait_for(e, t, call, -1, [&](int* flag) { return test_request(e, i, flag, status_at(e, i)); });
        result != 0)
      failed = result;
  e.result = failed == 0 || e.request_count == 1 ? failed : backend->replay->error_in_status;
  if ((e.attributes & kCallPoll) && e.flag != nullptr) *e.flag = 1;
  return true;
}

/// MPI_Test, Testall, Request_get_status that succeeded; and MPI_Wait, Waitall while receives are forced.
bool complete_all(Event& e, PerThread& t, Call& call) {
  const bool one = call_info(e.id).completion == resil::Completion::kOne;
  if (e.request_count < 0) return false;
  if (requests_stand_in()) return complete_each(e, t, call);
  if (!requests_may_be_tested(e)) {
    if (e.attributes & kCallBlocking) return false;
    e.result = backend->staging->wait_as(e, e.requests);
    if (e.flag != nullptr) *e.flag = 1;
    return true;
  }
  e.result = wait_for(e, t, call, -1, [&](int* flag) {
    return one ? backend->messages->test_one(e, flag) : backend->messages->test_all(e, flag);
  });
  if (!one && e.result == 0) backend->messages->all_succeeded(e);
  if (e.flag != nullptr) *e.flag = 1;
  return true;
}

/// MPI_Wait, MPI_Test and the like that completed something in the recorded run.
bool complete(Event& e, PerThread& t, Call& call) {
  switch (call_info(e.id).completion) {
    case resil::Completion::kAny: return complete_one(e, t, call);
    case resil::Completion::kSome: return complete_some(e, t, call);
    case resil::Completion::kOne:
    case resil::Completion::kAll: break;
    case resil::Completion::kNone: return false;
  }
  if (e.attributes & kCallPoll) counts.forced += 1;
  else if (!substitutes_used() &&
           (forced_pending.load(std::memory_order_relaxed) == 0 || e.request_count > kManyRequests))
    return false;
  return complete_all(e, t, call);
}

/// MPI_Parrived, MPI_Win_test that said yes.
bool poll_until(Event& e, PerThread& t, Call& call, int (*poll)(const Event&, int*)) {
  counts.forced += 1;
  e.result = wait_for(e, t, call, -1, [&](int* flag) { return poll(e, flag); });
  *e.flag = 1;
  return true;
}

bool replay_staged(Event& e) { return replays(e.id) && replay(e); }

Recorded receive_staged(Event& e, int32_t* source, int32_t* tag) {
  PerThread* t = per_thread(*e.thread);
  Call* call = t != nullptr ? call_of(*t, e) : nullptr;
  if (call == nullptr || t->over || !call->known || !has_wildcard(e)) return Recorded::kFree;
  Match match;
  if (!(e.attributes & kCallStarts)) {
    if (!(call->outcome.what & kOutcomeMatch) || call->outcome.source < 0) return Recorded::kFree;
    match.source = call->outcome.source;
    match.tag = call->outcome.tag;
  } else {
    const Reading reading = match_of(e, *t, call->ordinal, &match);
    if (reading == Reading::kCut || reading == Reading::kDamaged || (reading == Reading::kItem && match.source < 0))
      return Recorded::kFree;
    if (reading != Reading::kItem || (match.flags & kCompletionCancelled)) return Recorded::kNobody;
    call->forced = true;
  }
  counts.forced += 1;
  *source = match.source;
  *tag = match.tag;
  return Recorded::kFrom;
}

void waits_staged(Event& e, int32_t source, uint32_t round, uint64_t* began) {
  PerThread* t = per_thread(*e.thread);
  Call* call = t != nullptr ? call_of(*t, e) : nullptr;
  if (call != nullptr) waited(e, *t, *call, source, round, began);
}

constexpr StagedReplay kStagedReplay = {replay_staged, receive_staged, waits_staged};

}  // namespace

void connect_staging() { staged_replay = &kStagedReplay; }

Reading match_of(Event& e, PerThread& t, uint64_t ordinal, Match* match) {
  if (mode.live) return live_match(e, t, ordinal, match);
  const Reading reading = recording.match(t.stream_id, ordinal, match);
  if (reading == Reading::kCut || reading == Reading::kDamaged) {  // MPI chooses
    recording_ended();
    went_on();
  }
  return reading;
}

bool replays(CallId id) {
  if (!mode.verifying && !mode.live) return false;
  const uint32_t is = call_info(id).attributes;
  return (data_flow_of(id) & (kMatches | kProbes)) || (is & (kCallActivates | kCallPoll)) ||
         class_of(id) == CallClass::kCancel || ((is & kCallCompletes) && (is & kCallBlocking));
}

bool replay(Event& e) {
  PerThread* t = per_thread(*e.thread);
  Call* call = t != nullptr ? call_of(*t, e) : nullptr;
  if (call == nullptr || t->over) return false;
  if (call->fails) {
    fail_poll(e, *t);
    return true;
  }
  if (!call->known) return false;
  if ((call->then.flags & kCallFailed) && !(e.attributes & kCallCompletes))
    return false;  // as it will now: nothing was matched or started
  const uint16_t is = data_flow_of(e.id);
  if (is & kProbes) return probe(e, *t, *call);
  if (is & kMatches) {
    if (!has_wildcard(e)) return false;
    return e.attributes & kCallStarts ? post_matched(e, *t, *call) : receive(e, *t, *call);
  }
  switch (class_of(e.id)) {
    case CallClass::kCompletion: return complete(e, *t, *call);
    case CallClass::kGetStatus:  // of several: not while a module follows requests (one_by_one)
      if (call_info(e.id).completion != resil::Completion::kOne) return false;
      counts.forced += 1;
      e.result = wait_for(e, *t, *call, -1, [&](int* flag) {
        return requests_stand_in() ? test_request(e, 0, flag, status_at(e, 0)) : backend->replay->get_status(e, flag);
      });
      *e.flag = 1;
      return true;
    case CallClass::kStart: return substitute_start(e, *t, *call);
    case CallClass::kCancel: return substitute_cancel(e);
    case CallClass::kPartitionArrived: return poll_until(e, *t, *call, backend->replay->arrived);
    case CallClass::kWindow:
      return call_info(e.id).window == WindowCall::kTest && poll_until(e, *t, *call, backend->replay->window_test);
    case CallClass::kLocal:
    case CallClass::kLifecycle:
    case CallClass::kSend:
    case CallClass::kReceive:  // what names a source: above
    case CallClass::kSendReceive:
    case CallClass::kSendReceiveReplace:
    case CallClass::kProbe:
    case CallClass::kMatchedProbe:
    case CallClass::kMatchedReceive:
    case CallClass::kPartitionedSend:
    case CallClass::kPartitionedReceive:
    case CallClass::kPartitionReady:
    case CallClass::kBuffer:
    case CallClass::kRequestFree:
    case CallClass::kGeneralizedRequest:
    case CallClass::kCollective:
    case CallClass::kComm:
    case CallClass::kRma:
    case CallClass::kFile: return false;
  }
  return false;
}

}  // namespace resil::record
