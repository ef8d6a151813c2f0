// SPDX-License-Identifier: Apache-2.0
//
// RESIL_FAULT: staged messages are damaged on the wire, that is between the pinned copy of the sender, which stays as
// it is, and the first look at that of the receiver.

#include <cstring>

#include "pipeline/staging/p2p.h"
#include "shim/call/thread.h"
#include "shim/runtime/block_pool.h"
#include "shim/runtime/staged.h"

namespace resil::staging {

namespace {

StagedMessage message_of(const Message& op, char* given, uint64_t bytes) {
  const Packet& packet = op.packet;
  const bool as_bytes = packet.layout == Layout::kPacked && !packet.type->padded;
  return {op.call,
          op.comm,
          op.peer,
          op.tag,
          given,
          as_bytes ? static_cast<int64_t>(packet.bytes) : packet.count,
          as_bytes ? &kByteMap : packet.type,
          bytes};
}

}  // namespace

void wire_prepare(Message& op, MessagePart* part) {
  if (staged_faults == nullptr || !staged_faults->sends()) [[likely]]
    return;
  op.scratch = memory::blocks.allocate(op.packet.host_bytes);
  if (op.scratch != nullptr)
    part->buffer = static_cast<char*>(op.scratch) + (static_cast<char*>(part->buffer) - op.packet.host);
}

void wire_departs(Message& op) {
  if (!op.staged || op.scratch == nullptr) [[likely]]
    return;
  memcpy(op.scratch, op.packet.host, op.packet.host_bytes);
  char* given = static_cast<char*>(op.scratch) + (packet_given(op.packet) - op.packet.host);
  staged_faults->departing(*current_thread, message_of(op, given, op.packet.bytes));
}

void wire_arrived(Message& op, uint64_t bytes) {
  if (staged_faults == nullptr || !op.staged || bytes == 0) [[likely]]
    return;
  staged_faults->arrived(*current_thread, message_of(op, packet_given(op.packet), bytes));
}

}  // namespace resil::staging
