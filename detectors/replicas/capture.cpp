// SPDX-License-Identifier: Apache-2.0
//
// Calls as words. A call that gives data has its word on the way in, one that takes data on the way out, or when its
// request is complete: in the program's own order where that is one. What MPI chooses (any source, any request) has no
// word; that it was asked to choose is remembered (may_differ).

#include "detectors/replicas/words.h"
#include "shim/abi/backend.h"
#include "shim/base/hash.h"
#include "shim/call/dispatch.h"
#include "shim/model/event.h"
#include "shim/runtime/memory.h"
#include "shim/tables/buffer_view.h"
#include "shim/tables/call_data.h"
#include "shim/tables/tables.h"

namespace resil::replicas {

namespace {

/// A pending receive.
struct Pending {
  uint64_t request;  ///< handle bits; 0: a free place
  View view;
  uint64_t site, shape;
  int32_t peer, tag;
  CallId id;
};
/// By handle, open addressing; a place that is freed is filled from behind, so that none is passed in vain.
constexpr uint32_t kPlaces = 1u << 16, kMostPending = kPlaces / 4 * 3;
Pending* pending;
uint32_t pending_count;

uint32_t place_of(uint64_t request) { return static_cast<uint32_t>(mix64(request)) & (kPlaces - 1); }

Pending* find(uint64_t request) {
  if (pending_count == 0) return nullptr;
  for (uint32_t at = place_of(request); pending[at].request != 0; at = (at + 1) & (kPlaces - 1))
    if (pending[at].request == request) return &pending[at];
  return nullptr;
}

void remove(Pending* one) {
  if (one->view.type != nullptr) type_map_release(one->view.type);
  --pending_count;
  auto hole = static_cast<uint32_t>(one - pending);
  for (uint32_t at = (hole + 1) & (kPlaces - 1); pending[at].request != 0; at = (at + 1) & (kPlaces - 1)) {
    const uint32_t wanted = place_of(pending[at].request);
    if (((at - wanted) & (kPlaces - 1)) < ((at - hole) & (kPlaces - 1))) continue;  // it lies before the hole
    pending[hole] = pending[at];
    hole = at;
  }
  pending[hole].request = 0;
}

void remember(const Pending& one) {
  if (pending == nullptr) pending = memory::map_array<Pending>(kPlaces);
  if (Pending* old = pending != nullptr ? find(one.request) : nullptr; old != nullptr) remove(old);
  if (pending == nullptr || pending_count == kMostPending) return may_differ("receives beyond those that are followed");
  uint32_t at = place_of(one.request);
  while (pending[at].request != 0) at = (at + 1) & (kPlaces - 1);
  pending[at] = one;
  if (one.view.type != nullptr) type_map_hold(one.view.type);
  ++pending_count;
}

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

void add(Thread& thread, const Value& value, uint64_t shape, const Origin& origin) {
  const Word word = {value.type == ValueType::kNone ? uint64_t{value.unread} : mix64(value.bits + 3),
                     hash_combine(shape, origin.bytes)};
  words_add(thread, word, origin);
}

void add_call(Event& e, const Value& value, bool gave, uint64_t bytes) {
  add(*e.thread, value, shape_of(e, gave),
      {e.site, bytes, gave ? e.peer : source_of(e), gave ? e.tag : tag_of(e), static_cast<uint16_t>(e.id), gave});
}

bool has_statuses(const Event& e) {
  return e.given_statuses != nullptr && !backend->messages->status_ignored(e.given_statuses);
}

/// Does MPI choose here what may depend on time?
void notice_choice(const Event& e, uint16_t is) {
  if ((is & kMatches) && !(e.attributes & kCallPersistent) && is_wild(source_of(e), tag_of(e)))
    may_differ("a receive or probe from any source or with any tag");
  else if ((is & kProbes) && (e.attributes & kCallPoll)) may_differ("a probe");
  else if ((e.attributes & kCallCompletes) && e.request_count > 0 &&
           ((e.attributes & kCallPoll) || e.index != nullptr || e.outcount != nullptr))
    may_differ("a test of requests, or a wait for any of them");
  else if (is & kUnforced) may_differ("an operation whose order is MPI's");
  else if ((e.attributes & (kCallPersistent | kCallPartitioned)) || (is & (kWindow | kBlind)))
    may_differ("data that has no word: of persistent requests, windows or split collective file access");
}

/// The receives that this call has completed, in the order of its requests; where that is MPI's they have no word.
void completed(Event& e) {
  const bool in_order = e.index == nullptr && e.outcount == nullptr && class_of(e.id) == CallClass::kCompletion;
  if (e.saved_requests == nullptr) return;
  for (int64_t i = 0; i < e.request_count; ++i) {
    const uint64_t request = e.request_count == 1 ? e.saved_few[0] : request_handle(e.saved_requests, i);
    if (request_handle(e.requests, i) == request) continue;  // still pending
    Pending* one = find(request);
    if (one == nullptr) continue;
    if (in_order && e.result == 0 && has_statuses(e)) {
      StatusInfo status;
      backend->messages->status_read(e.given_statuses, i, &status);
      if (!status.cancelled)
        add(*e.thread, read_view(one->view, status.bytes), one->shape,
            {one->site, status.bytes, one->peer, one->tag, static_cast<uint16_t>(one->id), false});
    }
    remove(one);
  }
}

}  // namespace

void capture_enter(Event& e) {
  const uint16_t is = data_flow_of(e.id);
  if (is != 0 || (e.attributes & kCallCompletes)) notice_choice(e, is);
  if ((is & (kGives | kCollects)) && !(e.attributes & (kCallPersistent | kCallActivates)) && !(is & kBlind))
    add_call(e, input_of(e), true, e.bytes);
  if ((is & kTakes) && !(e.attributes & (kCallStarts | kCallRma))) give_statuses(e);
  else if (class_of(e.id) == CallClass::kCompletion && e.request_count > 0) give_statuses(e);
}

void capture_leave(Event& e) {
  const uint16_t is = data_flow_of(e.id);
  if ((e.attributes & kCallCompletes) && e.request_count > 0 && pending_count != 0) completed(e);
  if (is == 0 || e.result != 0 || (e.attributes & (kCallActivates | kCallPersistent))) return;
  if (e.attributes & kCallStarts) {
    const uint64_t request = e.requests != nullptr ? request_handle(e.requests, 0) : 0;
    if ((is & kTakes) && (e.attributes & kCallP2P) && request != 0 && !request_is_shared(request) && e.peer >= 0 &&
        !is_wild(e.peer, e.tag) && !(is & kMessage) && !(e.attributes & kCallPartitioned))
      remember({request, receive_view(e), e.site, shape_of(e, false), e.peer, e.tag, e.id});
    return;
  }
  if (is & kCollects) {
    const Value value = collective_output(e);
    if (value.type != ValueType::kNone) add_call(e, value, false, e.bytes);
  } else if ((is & kTakes) && !(is & (kWindow | kMessage)) && ((is & kFile) || !is_wild(source_of(e), tag_of(e)))) {
    if ((!(is & kFile) && source_of(e) == ring::kProcNull) || !has_statuses(e)) return;
    StatusInfo status;
    backend->messages->status_read(e.given_statuses, 0, &status);
    add_call(e, read_view(receive_view(e), status.bytes), false, status.bytes);
  }
}

}  // namespace resil::replicas
