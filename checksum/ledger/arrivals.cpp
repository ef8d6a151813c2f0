// SPDX-License-Identifier: Apache-2.0
//
// What comes from other ranks: records in streams and in messages, brought into the order of their ordinals, and the
// other messages on the private communicator.

#include <cstring>

#include "checksum/ledger/inbox.h"
#include "checksum/ledger/transport_internal.h"
#include "shim/call/thread.h"

namespace resil::ledger {

namespace {

constexpr uint32_t kStreams = 128, kStreamsAtOnce = 16;  // at most so many incoming ones; looked at in one turn
constexpr uint32_t kMostAtOnce = 4096;  // records of one stream in one turn
constexpr uint32_t kUnderOneLock = 256;  // records

Peer* streams[kStreams];  // ranks whose streams come in, as they were found
uint32_t stream_count, stream_next;

/// One record of another rank.
void take_record(Thread& thread, Peer& from, const Record& record, uint64_t ordinal) {
  const unsigned space = record.space < static_cast<unsigned>(Space::kCount) ? record.space : 0;
  if (space == static_cast<unsigned>(Space::kBye)) [[unlikely]] {
    from.bye_received = from.last_known = true;
    from.last = ordinal + 1;
    return;
  }
  if (space_handlers[space] != nullptr) return space_handlers[space](thread, from, record);
  Difference difference;
  {
    Guard guard;
    match_queue_sent(from, record, ordinal, &difference);
  }
  if (difference.found) [[unlikely]]
    raise_difference(thread, from, difference);
}

/// What the other side says it has announced up to the record that has just been taken.
void take_sums(Peer& from, uint64_t total, uint64_t sum, bool hold) {
  Guard guard;
  from.total_there = total;
  from.sum_there = sum;
  from.sums_hold_there = hold;
  sums_compare(from);
}

}  // namespace

void take_stream(Thread& thread, Peer& from, uint32_t most) {
  if (!from.in.is_open()) return;
  uint32_t taken = 0;
  uint64_t total = 0, sum = 0;
  if (most > kStreamAhead && from.in.next() != nullptr)  // else they are the writer's
    for (uint32_t ahead = 1; ahead < kStreamAhead; ++ahead) from.in.prefetch(ahead);
  const StreamSlot* slot;
  while (taken < most && (slot = from.in.next()) != nullptr) {
    {
      Guard guard;
      const uint32_t left = most - taken;
      if (const uint32_t run = match_queues_take(from, left < kUnderOneLock ? left : kUnderOneLock, &total, &sum);
          run != 0) {
        taken += run;
        continue;
      }
    }
    if (slot->ordinal != static_cast<uint32_t>(from.next_ordinal)) [[unlikely]]
      break;  // messages come before it
    total = slot->total;
    sum = slot->sum;
    take_record(thread, from, slot->record, from.next_ordinal);
    from.next_ordinal += 1;
    from.in.advance();
    ++taken;
  }
  if (taken != 0) take_sums(from, total & ~kSumsHold, sum, (total & kSumsHold) != 0);
}

void find_streams() {
  for (Peer* from = inbox_next_sender(); from != nullptr; from = inbox_next_sender()) streams[stream_count++] = from;
}

void take_some_streams(Thread& thread) {
  find_streams();
  for (uint32_t looks = stream_count < kStreamsAtOnce ? stream_count : kStreamsAtOnce; looks != 0; --looks) {
    stream_next = stream_next + 1 < stream_count ? stream_next + 1 : 0;
    take_stream(thread, *streams[stream_next], kMostAtOnce);
  }
}

void take(Thread& thread, const Incoming& message) {
  const MessageHeader& header = message.header;
  Peer* peer = peer_of(header.source);
  if (peer == nullptr) return;
  Peer& from = *peer;
  from.heard = true;
  find_streams();
  take_stream(thread, from, UINT32_MAX);  // what was sent before this message
  if (header.has_host && header.bytes <= kMessageBytes)
    memcpy(from.host, message.payload + header.bytes, kHostBytes - 1);
  switch (static_cast<Kind>(header.kind)) {
    case Kind::kBatch: {
      if (header.first != from.next_ordinal && !from.lost) {
        Guard guard;
        match_queues_abandon(from);  // records were dropped on the way: only sums can tell now
      }
      from.next_ordinal = header.first + header.count;
      for (uint32_t i = 0; i < header.count; ++i) take_record(thread, from, message.records[i], header.first + i);
      from.taken_by_messages += header.count;
      take_sums(from, header.total, header.sum, header.sums_hold != 0);
      break;
    }
    case Kind::kBye: {
      from.bye_received = from.last_known = true;
      from.last = header.first;
      if (header.first != from.next_ordinal && !from.lost) {
        Guard guard;
        match_queues_abandon(from);
      }
      take_sums(from, header.total, header.sum, header.sums_hold != 0);
      break;
    }
    case Kind::kCredit:
      if (header.total > from.credited) from.credited = header.total;
      break;
    default:
      if (header.kind < 16 && kind_handlers[header.kind] != nullptr)
        kind_handlers[header.kind](thread, from, message.payload, header.bytes);
  }
}

}  // namespace resil::ledger
