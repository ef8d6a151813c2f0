// SPDX-License-Identifier: Apache-2.0
//
// Staged messages as the ledger sees them (checksum/p2p/staged.h): their pinned copies. Collectives and persistent
// requests need nothing of the kind: every module sees their shadows in place of the program's buffers.

#include "checksum/p2p/staged.h"
#include "pipeline/staging/device_check.h"
#include "pipeline/staging/message.h"
#include "shim/event.h"
#include "shim/tables.h"

namespace resil::staging {

namespace {

void fill(const Packet& packet, uint64_t bytes, p2p::StagedView* copy) {
  const bool packed = packet.layout == Layout::kPacked;
  copy->view = {packet_given(packet), packed ? static_cast<int64_t>(bytes) : packet.count,
                packed ? &p2p::kByteMap : packet.type, packed ? bytes : packet.bytes, ledger::Reason::kNone};
  copy->digest = host_digest(packet, bytes);
}

bool received(Thread& thread, const void* buffer, uint64_t bytes, p2p::StagedView* copy) {
  const Packet* packet = retired_packet(thread, buffer, false);
  if (packet == nullptr || bytes > packet->bytes)
    return false;
  fill(*packet, bytes, copy);
  return true;
}

/// The message that carries the data which this call sends; null: it is complete, or there is none.
Message* under_way(const Event& e) {
  if (!(e.attributes & kCallStarts))
    return nullptr;
  Message* message = message_find(request_handle(e.requests, 0));
  return message == nullptr || message->sends ? message : message->sender;
}

p2p::Sent sent(const Event& e, p2p::StagedView* copy, void*** word) {
  if (Message* message = under_way(e); message != nullptr) {
    if (!message->staged)
      return p2p::Sent::kElsewhere;
    if (!message->posted) {
      *word = &message->announcement;
      return p2p::Sent::kLater;
    }
    fill(message->packet, message->packet.bytes, copy);
    return p2p::Sent::kPosted;
  }
  const Packet* packet = retired_packet(*e.thread, e.send.buffer, true);
  if (packet == nullptr)
    return p2p::Sent::kElsewhere;
  fill(*packet, packet->bytes, copy);
  return p2p::Sent::kPosted;
}

}  // namespace

constinit const p2p::StagedCopies staged_for_ledger = {received, sent};

void announce_posted(Thread& thread, Message* message) {
  p2p::StagedView copy;
  fill(message->packet, message->packet.bytes, &copy);
  void* word = message->announcement;
  message->announcement = nullptr;
  p2p::send_posted(thread, word, copy);
}

void announce_dropped(Message* message) {
  p2p::send_dropped(message->announcement);
  message->announcement = nullptr;
}

}  // namespace resil::staging
