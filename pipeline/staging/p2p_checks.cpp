// SPDX-License-Identifier: Apache-2.0
//
// What the ledger sees of staged messages: their pinned copies (shim/runtime/staged.h).

#include "pipeline/staging/device_check.h"
#include "pipeline/staging/p2p.h"
#include "pipeline/staging/staging.h"
#include "shim/call/thread.h"
#include "shim/runtime/staged.h"

namespace resil::staging {

namespace {

StagedView view_of(Message& op, uint64_t bytes) {
  const Packet& packet = op.packet;
  StagedView copy;
  const bool as_bytes = packet.layout == Layout::kPacked && !packet.type->padded;
  const TypeMap* type = as_bytes ? &kByteMap : packet.type;
  const int64_t count = as_bytes ? static_cast<int64_t>(packet.bytes) : packet.count;
  copy.view = {packet_given(packet), count, type, packet.bytes, Reason::kNone};
  copy.digest = host_digest(packet, bytes);
  return copy;
}

bool received(Thread& thread, const void* buffer, uint64_t bytes, StagedView* copy) {
  Message* op = message_retired(thread, buffer, false);
  if (op == nullptr || op->failed || bytes > op->bytes) return false;
  *copy = view_of(*op, bytes);
  return true;
}

StagedSend sent(const Event& e, StagedView* copy, void*** word) {
  Message* op = message_started(*e.thread);
  if (op == nullptr) op = message_retired(*e.thread, e.send.buffer, true);
  if (op == nullptr || op->failed) return StagedSend::kElsewhere;
  if (op->in_send_queue) {
    *word = &op->word;
    return StagedSend::kLater;
  }
  *copy = view_of(*op, op->packet.bytes);
  return StagedSend::kPosted;
}

bool ended(Thread& thread, const void* buffer, StagedView* copy) {
  Message* op = message_retired(thread, buffer, true);
  if (op == nullptr || op->failed) return false;
  *copy = view_of(*op, op->packet.bytes);
  return true;
}

constexpr StagedCopies kCopies = {received, sent, ended};

}  // namespace

constexpr StagedRequests kRequests = {messages_known, [](uint64_t handle) { return message_find(handle) != nullptr; },
                                      test_one};

void connect_checks() {
  staged_copies = &kCopies;
  staged_requests = &kRequests;
}

void tell_sending(Event& e, Message* op) {
  if (checking && op->staged) staged_checks->announcing(e, view_of(*op, op->packet.bytes));
}

void tell_posting(Event& e, Message* op) {
  if (checking && op->staged) staged_checks->posting(e, view_of(*op, 0).view);
}

void tell_posted(Thread& thread, Message* op) {
  op->in_send_queue = false;
  if (op->word == nullptr) return;
  if (op->failed) staged_checks->dropped(op->word);
  else staged_checks->posted(thread, op->word, view_of(*op, op->packet.bytes));
  op->word = nullptr;
}

}  // namespace resil::staging
