// SPDX-License-Identifier: Apache-2.0
//
// The basic type of the messages of an envelope, as long as there is but one: what one rank sends must be what the
// other receives (MPI 4.0, 3.3.1). Compared when all messages have been counted (mismatch/unmatched.cpp). Predefined
// datatypes only: to look into a derived one costs more than a message, and programs make them anew for each.

#include "detectors/hang/slots/writer_internal.h"
#include "shim/base/spinlock.h"
#include "shim/tables/type_maps.h"

namespace resil::hang {

namespace {

/// A message that a matched probe took out of its envelope, until it is received.
struct Probed {
  uint64_t message, comm;  // comm 0: free
  int32_t peer, tag;
};

// One that is lost by being overwritten is not compared, no more: the others of its envelope still are.
Probed probed[64];
uint32_t next_probed;
SpinLock probed_lock;

Probed* find_probed(uint64_t message) {
  for (Probed& one : probed)
    if (one.comm != 0 && one.message == message) return &one;
  return nullptr;
}

}  // namespace

void message_probed(uint64_t message, const Envelope* envelope) {
  SpinGuard guard(probed_lock);
  Probed* place = find_probed(message);  // received where nobody saw it
  if (place != nullptr) place->comm = 0;
  if (envelope == nullptr) return;
  if (place == nullptr) place = &probed[next_probed++ % (sizeof(probed) / sizeof(probed[0]))];
  *place = {message, envelope->comm, envelope->peer, envelope->tag};
}

void message_receiving(Event& e) {
  Probed one = {};
  {
    SpinGuard guard(probed_lock);
    Probed* place = find_probed(request_handle(e.message, 0));
    if (place == nullptr) return;
    one = *place;
    place->comm = 0;
  }
  if (Envelope* envelope = envelope_of(one.comm, one.peer, one.tag); envelope != nullptr)
    note_datatype(e, *envelope, false, e.receive);
}

uint32_t message_type(Event& e, const DataArgument& data) {
  if (data.count <= 0) return kNoType;
  const bool predefined = backend->types != nullptr && backend->types->basic(data.type).kind != BasicKind::kUnknown;
  const TypeMap* map = predefined ? type_map(*e.thread, data.type) : nullptr;
  const bool is_one = map != nullptr && map->signature != kAnySignature && map->signature < kMixedSignature;
  return is_one ? map->signature : kAnyType;
}

void note_message_type(uint32_t& of, uint32_t type) {
  uint32_t before = kNoType;
  if (type != kNoType && !__atomic_compare_exchange_n(&of, &before, type, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED) &&
      before != type)
    __atomic_store_n(&of, kAnyType, __ATOMIC_RELAXED);
}

void note_datatype(Event& e, Envelope& envelope, bool sent, const DataArgument& data) {
  if (data.count <= 0) return;
  uint32_t& of = sent ? envelope.types.sent : envelope.types.posted;
  if (__atomic_load_n(&of, __ATOMIC_RELAXED) != kAnyType) note_message_type(of, message_type(e, data));
  __atomic_store_n(sent ? &envelope.handles.sent : &envelope.handles.posted, static_cast<uint32_t>(data.type),
                   __ATOMIC_RELAXED);
}

}  // namespace resil::hang
