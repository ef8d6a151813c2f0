// SPDX-License-Identifier: Apache-2.0
//
// What the ledger sees of staged messages: their pinned copies (checksum/p2p/staged.h).

#include "checksum/p2p/staged.h"
#include "checksum/record/staged.h"
#include "pipeline/staging/device_check.h"
#include "pipeline/staging/p2p.h"
#include "pipeline/staging/staging.h"
#include "shim/call/thread.h"

namespace resil::staging {

namespace {

p2p::StagedView view_of(Message& op, uint64_t bytes) {
  const Packet& packet = op.packet;
  p2p::StagedView copy;
  const bool as_bytes = packet.layout == Layout::kPacked && !packet.type->padded;
  const TypeMap* type = as_bytes ? &p2p::kByteMap : packet.type;
  const int64_t count = as_bytes ? static_cast<int64_t>(packet.bytes) : packet.count;
  copy.view = {packet_given(packet), count, type, packet.bytes, Reason::kNone};
  copy.digest = host_digest(packet, bytes);
  return copy;
}

bool received(Thread& thread, const void* buffer, uint64_t bytes, p2p::StagedView* copy) {
  Message* op = message_retired(thread, buffer, false);
  if (op == nullptr || op->failed || bytes > op->bytes) return false;
  *copy = view_of(*op, bytes);
  return true;
}

p2p::Sent sent(const Event& e, p2p::StagedView* copy, void*** word) {
  Message* op = message_started(*e.thread);
  if (op == nullptr) op = message_retired(*e.thread, e.send.buffer, true);
  if (op == nullptr || op->failed) return p2p::Sent::kElsewhere;
  if (op->in_lane) {
    *word = &op->word;
    return p2p::Sent::kLater;
  }
  *copy = view_of(*op, op->packet.bytes);
  return p2p::Sent::kPosted;
}

bool ended(Thread& thread, const void* buffer, p2p::StagedView* copy) {
  Message* op = message_retired(thread, buffer, true);
  if (op == nullptr || op->failed) return false;
  *copy = view_of(*op, op->packet.bytes);
  return true;
}

constexpr p2p::StagedCopies kCopies = {received, sent, ended};

}  // namespace

constexpr record::StagedRequests kRequests = {messages_known, test_one};

void connect_checks() {
  p2p::staged_copies = &kCopies;
  record::staged_requests = &kRequests;
}

void tell_sending(Event& e, Message* op) {
  if (checking && op->staged) p2p::send_announcing(e, view_of(*op, op->packet.bytes));
}

void tell_posting(Event& e, Message* op) {
  if (checking && op->staged) p2p::receive_posting(e, view_of(*op, 0).view);
}

void tell_posted(Thread& thread, Message* op) {
  op->in_lane = false;
  if (op->word == nullptr) return;
  if (op->failed) p2p::send_dropped(op->word);
  else p2p::send_posted(thread, op->word, view_of(*op, op->packet.bytes));
  op->word = nullptr;
}

}  // namespace resil::staging
