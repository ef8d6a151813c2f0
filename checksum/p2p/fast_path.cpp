// SPDX-License-Identifier: Apache-2.0
//
// The usual message of a call that has an Event: see fast_message.h. Which calls come here: checksum.cpp. Lazy mode.

#include "checksum/p2p/candidates.h"
#include "checksum/p2p/fast_message.h"
#include "shim/model/event.h"

namespace resil::p2p {

namespace {

straight::From from(const Event& e) { return {e.site, static_cast<uint16_t>(e.id)}; }
GivenMessage sent_by(const Event& e) { return {e.comm, e.send.buffer, e.send.count, e.send.type, e.peer, e.tag}; }
GivenMessage received_by(const Event& e) {
  return {e.comm, e.receive.buffer, e.receive.count, e.receive.type, e.peer, e.tag};
}
bool receive(const Event& e) { return straight::receive<false>(*e.thread, received_by(e), from(e), e.given_statuses); }

}  // namespace

bool fast_path_sent(Event& e) {
  if (e.result != 0 || e.peer < 0 || e.comm == nullptr || state_of(e).sent != SendState::kUnread) [[unlikely]]
    return false;
  const bool pends = (e.attributes & kCallStarts) && e.cookies != nullptr;
  return straight::send(*e.thread, sent_by(e), from(e), pends ? &e.cookies[kChecksumWord] : nullptr);
}

bool fast_path_posted(Event& e) {
  if (e.result != 0 || e.cookies == nullptr || e.comm == nullptr || e.peer < 0 || e.tag < 0 ||
      (e.attributes & kCallPersistent)) [[unlikely]]
    return false;
  return straight::post(*e.thread, received_by(e), from(e), &e.cookies[kChecksumWord]);
}

bool fast_path_completed(Event& e, int64_t place, uint64_t cookie) {
  return e.result == 0 && straight::complete<false>(*e.thread, e.given_statuses, place, cookie);
}

namespace {

/// From MPI_PROC_NULL, or MPI_ANY_SOURCE.
[[gnu::noinline]] bool received_from_any(Event& e) {
  if (e.peer != ring::kAnySource || !receive(e)) return false;
  int32_t source, tag;
  uint64_t bytes;
  if (status_glance(e.given_statuses, 0, &source, &tag, &bytes))
    wild_received(e, {e.comm->ring->id, e.tag, source, tag, comms[e.comm->index]->entries == 0 ? e.record_number : 0});
  return true;
}

}  // namespace

bool fast_path_received(Event& e) {
  if (e.result != 0 || e.comm == nullptr) [[unlikely]]
    return false;
  if (e.peer < 0) [[unlikely]]
    return received_from_any(e);
  return receive(e);
}

}  // namespace resil::p2p
