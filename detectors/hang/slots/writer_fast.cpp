// SPDX-License-Identifier: Apache-2.0
//
// Which call sites may go the fast path, and what their entries keep for it (shim/call/fast_path.h).

#include "detectors/hang/slots/signature.h"
#include "detectors/hang/slots/writer.h"
#include "detectors/hang/slots/writer_internal.h"

namespace resil::hang {

namespace {

/// A message of an envelope of its own, of the type that it last had.
bool fast_message(Event& e, SiteEntry& site, bool sent) {
  const int32_t world = world_of(e.comm, e.peer);  // the general way says what is lost
  if (world < 0) return false;
  Envelope* envelope = envelope_of(e.comm->ring->id, world, e.tag);
  if (envelope == nullptr || !counts_exactly(*envelope)) return false;
  site.envelope = envelope;
  site.world = world;
  const uint64_t type = sent ? e.send.type : e.receive.type;
  return (sent ? envelope->handles.sent : envelope->handles.posted) == static_cast<uint32_t>(type);
}

/// What a call receives that sends as well, likewise.
bool fast_receive(Event& e, ReceivingHalf& half) {
  half.world = half.peer;
  if (half.peer == ring::kProcNull) return true;
  half.world = world_of(e.comm, half.peer);
  if (half.world < 0) return false;
  half.envelope = envelope_of(e.comm->ring->id, half.world, half.tag);
  return half.envelope != nullptr && counts_exactly(*half.envelope) &&
         half.envelope->handles.posted == static_cast<uint32_t>(half.type);
}

/// What it must agree on follows from its arguments alone, and its communicator has a history.
bool fast_collective(Event& e, SiteEntry& site, Pattern pattern) {
  const uint32_t index = e.comm->index;
  if (index >= kHistories) return false;
  CollectiveHistory& history = writer.section->histories[index];
  if (history.comm != e.comm->ring->id) return false;
  e.comm->history = &history;
  uint8_t flags;
  site.world = world_of(e.comm, e.peer);
  const uint64_t signature = site.record.aux = signature_of(e, pattern, slot_of(e), &flags);
  const ring::MixedSignature mixed = ring::mixed_signature(signature);
  site.mixed = uint64_t{mixed.what} << 32 | mixed.bytes;
  site.basic_type = common_type(e, pattern, signature);
  return flags == 0;
}

}  // namespace

bool writer_fast(Event& e, SiteEntry& site) {
  if (writer.section == nullptr) return true;
  const CallMeaning& meaning = meaning_of(e.id);
  e.thread->wait = slot_of(e).wait;
  switch (meaning.handling) {
    case Handling::kSend:
    case Handling::kPostSend: return fast_message(e, site, true);
    case Handling::kReceive:
    case Handling::kPostReceive: return fast_message(e, site, false);
    case Handling::kSendReceive:
      if (e.peer != ring::kProcNull) return fast_message(e, site, true) && fast_receive(e, *site.receiving);
      site.world = e.peer;
      return fast_receive(e, *site.receiving);
    case Handling::kWait:
    case Handling::kTest: return true;
    case Handling::kProbePoll:  // what its slot asks for
      site.signature = e.comm->ring->id;
      site.world = world_of(e.comm, e.peer);
      return true;
    case Handling::kCollective:
    case Handling::kPostCollective: return fast_collective(e, site, meaning.pattern);
    default: return false;
  }
}

}  // namespace resil::hang
