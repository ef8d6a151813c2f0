// SPDX-License-Identifier: Apache-2.0
//
// Calls as words. A call that gives data has its word on the way in, one that takes data on the way out, or when its
// request is complete: in the program's own order where that is one. What MPI chooses (any source, any request) has no
// word; that it was asked to choose is remembered (may_differ).

#include "detectors/replicas/requests.h"
#include "detectors/replicas/words.h"
#include "shim/abi/backend.h"
#include "shim/base/hash.h"
#include "shim/call/dispatch.h"
#include "shim/call/parts.h"
#include "shim/model/event.h"
#include "shim/tables/buffer_view.h"
#include "shim/tables/call_data.h"
#include "shim/tables/tables.h"
#include "shim/tables/window_results.h"

namespace resil::replicas {

namespace {

constinit WindowResults window_results = {};

bool is_wild(int32_t source, int32_t tag) {
  return source == ring::kAnySource || (source >= 0 && tag == ring::kAnyTag);
}
int32_t source_of(const Event& e) { return e.attributes & kCallBothWays ? e.receive_peer : e.peer; }
int32_t tag_of(const Event& e) { return e.attributes & kCallBothWays ? e.receive_tag : e.tag; }

/// The same in each part: ranks are those of the communicator.
uint64_t shape_of(const Event& e, bool gave) {
  uint64_t shape = hash_combine(static_cast<uint64_t>(call_info(e.id).plain), gave ? 1 : 2);
  const bool has_comm = e.comm_handle != 0 && e.comm != nullptr;
  shape = hash_combine(shape,
                       has_comm ? static_cast<uint64_t>(e.comm->size) << 32 | static_cast<uint32_t>(e.comm->rank) : 0);
  return hash_combine(shape, static_cast<uint64_t>(static_cast<uint32_t>(e.peer)) << 32 | static_cast<uint32_t>(e.tag));
}

void add(Thread& thread, const Value& value, uint64_t shape, Origin origin) {
  origin.element = value.element;
  origin.sums = value.type > ValueType::kDigest && is_reduction(call_info(static_cast<CallId>(origin.call)).collective);
  const Word word = {value.type == ValueType::kNone ? uint64_t{value.unread} : mix64(value.bits + 3),
                     hash_combine(shape, origin.bytes)};
  words_add(thread, word, origin);
}

void add_call(Event& e, const Value& value, bool gave, uint64_t bytes) {
  add(*e.thread, value, shape_of(e, gave),
      {e.site, bytes, gave ? e.peer : source_of(e), gave ? e.tag : tag_of(e), static_cast<uint16_t>(e.id), gave, false,
       0});
}

/// What MPI chooses here is the leading part's choice, so that its order and its data are the same.
bool follows(const Event& e) { return choices_follow && !e.nested; }

bool has_statuses(const Event& e) {
  return e.given_statuses != nullptr && !backend->messages->status_ignored(e.given_statuses);
}

/// Does MPI choose here what may depend on time?
void notice_choice(const Event& e, uint16_t is) {
  const bool led = follows(e);
  if (!led && (is & kMatches) && is_wild(source_of(e), tag_of(e)))
    may_differ("a receive or probe from any source or with any tag");
  else if (!led && (is & kProbes) && (e.attributes & kCallPoll)) may_differ("a probe");
  else if (!led && (e.attributes & kCallCompletes) && e.request_count > 0 &&
           ((e.attributes & kCallPoll) || e.index != nullptr || e.outcount != nullptr))
    may_differ("a test of requests, or a wait for any of them");
  else if ((is & kUnforced) && !place.fed) may_differ("an operation whose order is MPI's");
}

void add_request(Thread& thread, const Request& one, const Value& value, uint64_t bytes, bool gave) {
  add(thread, value, gave ? hash_combine(one.shape, 1) : one.shape,
      {one.site, bytes, one.peer, one.tag, static_cast<uint16_t>(one.id), gave, false, 0});
}

/// It has ended in this call, as the program is told. `status` < 0: there is none.
void add_completed(Event& e, const Request& one, int64_t status) {
  if (one.layouts != nullptr) {
    if (one.layouts->takes_any) add_request(*e.thread, one, read_blocks(e, one.layouts->takes), 0, false);
    return;
  }
  if (one.gives) {  // partitions: the whole buffer, which is the program's again from now on
    if (call_info(one.id).attributes & kCallPartitioned)
      add_request(*e.thread, one, read_view(one.view, one.view.bytes), one.view.bytes, true);
    return;
  }
  if (one.whole) return add_request(*e.thread, one, read_view(one.view, one.view.bytes), one.view.bytes, false);
  if (status < 0 || !has_statuses(e)) return;
  StatusInfo info;
  backend->messages->status_read(e.given_statuses, status, &info);
  if (!info.cancelled) add_request(*e.thread, one, read_view(one.view, info.bytes), info.bytes, false);
}

/// Request number i of the call is complete, or gone. `words`: the order is the program's, or the leading part's.
void ended(Event& e, int64_t i, int64_t status, bool words) {
  Request* one = request_find(e.request_count == 1 ? e.saved_few[0] : request_handle(e.saved_requests, i));
  if (one == nullptr) return;
  if (one->persistent && class_of(e.id) == CallClass::kCompletion) {
    if (one->active && words && e.result == 0) add_completed(e, *one, status);
    one->active = false;
    return;
  }
  if (words && e.result == 0) add_completed(e, *one, status);
  request_forget(one);
}

/// The requests that this call has completed.
void completed(Event& e) {
  if (e.saved_requests == nullptr) return;
  const bool completes = class_of(e.id) == CallClass::kCompletion;
  const bool in_order = completes && e.index == nullptr && e.outcount == nullptr;
  if (completes && e.result == 0 && !in_order) {
    const bool words = follows(e);
    if (e.index != nullptr) {
      if ((e.flag == nullptr || *e.flag != 0) && *e.index >= 0 && *e.index < e.request_count)
        ended(e, *e.index, 0, words);
      return;
    }
    for (int64_t k = 0; k < *e.outcount; ++k) ended(e, e.indices[k], k, words);
    return;
  }
  for (int64_t i = 0; i < e.request_count; ++i) {
    const uint64_t handle = e.request_count == 1 ? e.saved_few[0] : request_handle(e.saved_requests, i);
    const bool gone = request_handle(e.requests, i) != handle;
    const bool all = in_order && e.result == 0 && (e.flag == nullptr || *e.flag != 0);
    if (gone || all) ended(e, i, i, in_order && all);
  }
}

/// A request that this call has made: does it have words of its own?
void remember(Event& e, uint16_t is) {
  const uint64_t handle = e.requests != nullptr ? request_handle(e.requests, 0) : 0;
  const bool persistent = (e.attributes & (kCallPersistent | kCallPartitioned)) != 0;
  if (handle == 0 || request_is_shared(handle)) return;
  Request one = {handle, {},         nullptr,     e.site, shape_of(e, false), source_of(e), tag_of(e), e.id, false,
                 false,  persistent, !persistent, 0};
  if (e.attributes & kCallPartitioned) one.partitions = e.partitions;
  if (is & kCollects) {
    if (call_info(e.id).counts == Counts::kTyped) return may_differ("data of a collective with a type for each rank");
    one.layouts = layouts_make();
    if (one.layouts == nullptr) return may_differ("requests beyond those that are followed");
    Layouts& of = *one.layouts;
    of.takes_any = flat_received(e, &of.takes) && flat_keep(&of.takes);
    of.gives_any = persistent && flat_sent(e, &of.gives) &&
                   (!of.gives.in_place || is_reduction(call_info(e.id).collective)) && flat_keep(&of.gives);
    if (!of.takes_any && !of.gives_any) return layouts_drop(&of);
  } else if (is & kTakes) {
    const bool received = (e.attributes & kCallP2P) != 0;
    if (received && !(is & kMessage) && (source_of(e) == ring::kProcNull || (source_of(e) < 0 && !follows(e)))) return;
    if (received && ((is & kMessage) || is_wild(source_of(e), tag_of(e))) && !follows(e)) return;
    one.view = receive_view(e);
    one.whole = (e.attributes & (kCallRma | kCallPartitioned)) != 0;
  } else if ((is & kGives) && persistent && e.peer >= 0) {
    one.gives = true;
    one.peer = e.peer;
    one.tag = e.tag;
    one.view = make_view(*e.thread, e.send.buffer, e.send.count, e.send.type);
    if ((e.attributes & kCallPartitioned) && one.view.reason != Reason::kDatatype)
      one.view.count *= e.partitions, one.view.bytes *= static_cast<uint64_t>(e.partitions);
  } else {
    return;
  }
  if (!request_remember(one)) {
    if (one.layouts != nullptr) layouts_drop(one.layouts);
    may_differ("requests beyond those that are followed");
  }
}

/// Split collective file access: what is given has its word in the first call, what is read in the second one.
void split_enter(Event& e) {
  const CallInfo& info = call_info(e.id);
  if (info.file == FileCall::kWrite && info.initiation == Initiation::kSplitBegin) {
    const View view = make_view(*e.thread, e.send.buffer, e.send.count, e.send.type);
    add_call(e, read_view(view, view.bytes), true, e.bytes);
  } else if (info.file == FileCall::kRead && info.initiation == Initiation::kSplitEnd) {
    give_statuses(e);
  }
}
void split_leave(Event& e) {
  const CallInfo& info = call_info(e.id);
  if (info.file != FileCall::kRead) return;
  if (info.initiation == Initiation::kSplitBegin) {
    const Request one = {
        split_handle(e), receive_view(e), nullptr, e.site, shape_of(e, false), e.peer, e.tag, e.id, false,
        false,           false,           true,    0};
    if (!request_remember(one)) may_differ("requests beyond those that are followed");
    return;
  }
  Request* one = request_find(split_handle(e));
  if (one == nullptr) return;
  if (has_statuses(e)) {
    StatusInfo status;
    backend->messages->status_read(e.given_statuses, 0, &status);
    add_request(*e.thread, *one, read_view(one->view, status.bytes), status.bytes, false);
  }
  request_forget(one);
}

/// Persistent requests that are about to be started.
void starting(Event& e) {
  for (int64_t i = 0; i < e.request_count; ++i) {
    Request* one = request_find(request_handle(e.requests, i));
    if (one == nullptr) continue;
    one->active = true;
    if (call_info(one->id).attributes & kCallPartitioned) continue;
    if (one->layouts != nullptr) {
      if (one->layouts->gives_any) add_request(*e.thread, *one, read_blocks(e, one->layouts->gives), 0, true);
    } else if (one->gives) {
      add_request(*e.thread, *one, read_view(one->view, one->view.bytes), one->view.bytes, true);
    }
  }
}

}  // namespace

void capture_enter(Event& e) {
  const uint16_t is = data_flow_of(e.id);
  if (is != 0 || (e.attributes & kCallCompletes)) notice_choice(e, is);
  if (is & kBlind) return split_enter(e);
  if ((is & (kGives | kCollects)) && !(e.attributes & (kCallPersistent | kCallActivates | kCallPartitioned)))
    add_call(e, input_of(e), true, e.bytes);
  if (class_of(e.id) == CallClass::kStart && requests_any()) starting(e);
  if ((is & kTakes) && !(e.attributes & (kCallStarts | kCallRma))) give_statuses(e);
  else if (class_of(e.id) == CallClass::kCompletion && e.request_count > 0) give_statuses(e);
}

void capture_leave(Event& e) {
  const uint16_t is = data_flow_of(e.id);
  if ((e.attributes & kCallCompletes) && e.request_count > 0 && requests_any()) completed(e);
  if (is == 0 || e.result != 0 || (e.attributes & kCallActivates)) return;
  if (is & kBlind) return split_leave(e);
  if (e.attributes & (kCallStarts | kCallPersistent | kCallPartitioned)) {
    remember(e, is);
  } else if (is & kCollects) {
    const Value value = collective_output(e);
    if (value.type != ValueType::kNone) add_call(e, value, false, e.bytes);
  } else if (is & kSync) {
    const Value value = window_results.take(e, false);
    if (value.type != ValueType::kNone || value.unread) add_call(e, value, false, e.bytes);
  } else if (is & kWindow) {
    if ((is & kTakes) && !window_results.add(e)) may_differ("one-sided data beyond what is followed");
  } else if ((is & kTakes) && ((is & (kFile | kMessage)) || !is_wild(source_of(e), tag_of(e)) || follows(e))) {
    if ((!(is & (kFile | kMessage)) && source_of(e) == ring::kProcNull) || !has_statuses(e)) return;
    if ((is & kMessage) && !follows(e)) return;
    StatusInfo status;
    backend->messages->status_read(e.given_statuses, 0, &status);
    add_call(e, read_view(receive_view(e), status.bytes), false, status.bytes);
  }
}

}  // namespace resil::replicas
