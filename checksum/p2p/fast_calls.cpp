// SPDX-License-Identifier: Apache-2.0
//
// The usual message of a call that has no Event: what the fast path of the call path (shim/call/fast_path.h) calls in
// place of the module's hooks. What is unusual gets an Event then, and goes the way of all others.

#include "checksum/p2p/fast_message.h"
#include "checksum/p2p/intercept.h"
#include "shim/call/fast_path.h"
#include "shim/model/event.h"

namespace resil::p2p {

namespace {

straight::From from(fast::Call call, CallId id) {
  return {fast::is_there(call) ? call.record->site : 0, static_cast<uint16_t>(id)};
}

/// As after a call that went the general way.
[[gnu::noinline]] void sent_slowly(fast::Call call, CallId id, uint64_t* words, uint64_t key) {
  Event e;
  fast::message_event(e, call, id, 0);
  e.cookies = words;
  e.request_key = key;
  send_leave(e);
}

/// Before the call: where the buffer is about to be overwritten, or the partner may send what this one waits for only
/// once it has verified this message.
bool early(CallId id) { return ledger::is_strict || class_of(id) == CallClass::kSendReceiveReplace; }

/// Of a blocking call that may still fail.
bool is_told_early(fast::Call call, CallId id) {
  return fast::is_exchange(id) ? early(id) : call.record->bytes >= fast::messages->send_bytes;
}

[[gnu::noinline]] void sent_early_slowly(fast::Call call, CallId id) {
  Event e;
  fast::message_event(e, call, id, 0);
  send_early(e);
  if (state_of(e).sent == SendState::kAnnounced) call.thread->announced = state_of(e).packet;
}

/// How its end finds what was announced before the call.
void describe(Event& e) {
  if (e.thread->announced == 0) return;
  state_of(e).sent = SendState::kAnnounced;
  state_of(e).packet = e.thread->announced;
}

[[gnu::noinline]] void posted_slowly(fast::Call call, CallId id, uint64_t* words, uint64_t key) {
  Event e;
  fast::message_event(e, call, id, 0);
  e.cookies = words;
  e.request_key = key;
  receive_posted(e);
}

[[gnu::noinline]] void received_slowly(fast::Call call, CallId id, const void* status) {
  Event e;
  fast::message_event(e, call, id, 0);
  e.statuses = e.given_statuses = const_cast<void*>(status);
  receive_leave(e);
}

void sent(fast::Call call, CallId id) {
  const GivenMessage& message = call.thread->message;
  call.thread->announced = 0;
  if (message.peer >= 0 && !straight::send(*call.thread, message, from(call, id), nullptr)) [[unlikely]]
    is_told_early(call, id) ? sent_early_slowly(call, id) : sent_slowly(call, id, nullptr, 0);
}

void started(fast::Call call, CallId id, uint64_t* words, uint64_t key) {
  const GivenMessage& message = call.thread->message;
  if (call_info(id).call_class == CallClass::kSend) {
    if (!straight::send(*call.thread, message, from(call, id), words != nullptr ? &words[kChecksumWord] : nullptr))
        [[unlikely]]
      sent_slowly(call, id, words, key);
  } else if (words == nullptr || !straight::post(*call.thread, message, from(call, id), &words[kChecksumWord]))
      [[unlikely]] {
    posted_slowly(call, id, words, key);
  }
}

void received(fast::Call call, CallId id, const GivenMessage& message, const void* status) {
  if (message.peer >= 0 && !straight::receive<true>(*call.thread, message, from(call, id), status)) [[unlikely]]
    received_slowly(call, id, status);
  if (ledger::is_strict) ledger::await_all(*call.thread);
}

/// Of a send only who cancels some wants to know.
bool completed(Thread& thread, uint64_t word, const void* statuses, int64_t place) {
  switch (word & kCookieMask) {
    case kCookieReceive: return straight::complete<true>(thread, statuses, place, word);
    case kCookieSendHandle: return send_is_over();
    default: return false;
  }
}

constexpr fast::MessageHooks kLazyHooks = {.intercepts = intercepts,
                                           .send_bytes = kOverlapBytes,
                                           .sent = sent,
                                           .early = early,
                                           .describe = describe,
                                           .started = started,
                                           .received = received,
                                           .tests = waits_by_tests,
                                           .completed = completed,
                                           .over = nullptr};
constexpr fast::MessageHooks kStrictHooks = [] {
  fast::MessageHooks hooks = kLazyHooks;
  hooks.send_bytes = kAnnounceBytes;
  hooks.over = ledger::await_all;
  return hooks;
}();
static_assert(kChecksumWord == fast::kMessageWord);

bool is_piece(const Event& e, uint64_t type) {
  const TypeMap* map = type_map(*e.thread, type);
  return map != nullptr && map->contiguous;
}

}  // namespace

void fast_path_connect() {
  if (!ledger::is_straight) return;
  fast::check_waits = ledger::transport_dirty_word();
  fast::check_from = &next_flush;
  fast::messages = ledger::is_strict ? &kStrictHooks : &kLazyHooks;
}

bool fast_path_prepare(Event& e) {
  if (fast::messages == nullptr || !ledger::is_straight) return false;
  if (fast::is_message(e.id)) {
    const bool sends = !(e.attributes & kCallReceives);
    return is_piece(e, sends ? e.send.type : e.receive.type);
  }
  if (fast::is_exchange(e.id)) {
    const bool replaces = class_of(e.id) == CallClass::kSendReceiveReplace;
    return (e.peer < 0 || is_piece(e, e.send.type)) &&
           (e.receive_peer < 0 || is_piece(e, replaces ? e.send.type : e.receive.type));
  }
  // A test may be what completes a receive: whose status is wanted.
  return fast::is_wait(e.id) || class_of(e.id) == CallClass::kProbe;
}

}  // namespace resil::p2p
