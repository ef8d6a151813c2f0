// SPDX-License-Identifier: Apache-2.0
//
// The writing side of Section::tracks: what each collective call of a communicator must agree on, in order. The calls
// on one communicator are ordered by the program, so there is one writer.

#include "detectors/hang/slots/signature.h"
#include "detectors/hang/slots/writer_internal.h"
#include "shim/call/runtime.h"
#include "shim/tables/type_maps.h"

namespace resil::hang {

namespace {

OpKind op_of(uint64_t op, ThreadSlot& slot) {
  if (slot.op != op || slot.op_kind == OpKind::kNone) {
    slot.op = op;
    slot.op_kind = backend->types != nullptr ? backend->types->op_kind(op) : OpKind::kUser;
  }
  return slot.op_kind;
}

bool has_root(Kind kind) {
  return kind == Kind::kBcast || kind == Kind::kReduce || kind == Kind::kGather || kind == Kind::kGatherv ||
         kind == Kind::kScatter || kind == Kind::kScatterv;
}

bool has_operator(Kind kind) {
  return kind == Kind::kReduce || kind == Kind::kAllreduce || kind == Kind::kReduceScatter ||
         kind == Kind::kReduceScatterBlock || kind == Kind::kScan;
}

/// Of all ranks together: what this one sends, and what it expects of the others.
[[gnu::noinline]] uint64_t allgathered_bytes(Event& e) {
  const Members members = members_of(*e.comm);
  const Transfer got = received(e, members, backend->is_in_place), put = sent(e, members, backend->is_in_place);
  if (!got.any() || got.types != nullptr) return kBytesNotCompared;
  int64_t elements = 0;
  for (int64_t i = got.first; i < got.end; ++i)
    if (put.in_place || i != members.rank) elements += got.count_of(i);
  const auto own = put.in_place ? 0 : static_cast<uint64_t>(put.count) * type_size(*e.thread, put.type);
  return signature_bytes(own + static_cast<uint64_t>(elements) * type_size(*e.thread, got.type));
}

/// Only arguments that are significant on this rank are looked at.
uint64_t bytes_of(Event& e, Kind kind) {
  const bool root = is_root(e, members_of(*e.comm));
  switch (kind) {
    case Kind::kBarrier: return 0;
    case Kind::kBcast:
    case Kind::kReduce:
    case Kind::kAllreduce:
    case Kind::kScan:
    case Kind::kReduceScatter:
    case Kind::kReduceScatterBlock: return signature_bytes(e.bytes);
    case Kind::kAllgather:
    case Kind::kAlltoall: return signature_bytes(argument_bytes(e, e.receive));
    case Kind::kGather: return signature_bytes(argument_bytes(e, root ? e.receive : e.send));
    case Kind::kScatter: return signature_bytes(argument_bytes(e, root ? e.send : e.receive));
    case Kind::kVector:
      return call_info(e.id).collective == Collective::kAllgather ? allgathered_bytes(e) : kBytesNotCompared;
    default: return kBytesNotCompared;
  }
}

}  // namespace

uint64_t signature_of(Event& e, Kind kind, ThreadSlot& slot, uint8_t* flags) {
  *flags = 0;
  Signature made = {static_cast<uint16_t>(call_info(e.id).plain), OpKind::kNone, kNoRoot, kBytesNotCompared};
  if (has_operator(kind)) made.op = op_of(e.op, slot);
  // The two sides of an intercommunicator name different roots and amounts.
  if (!can_be_counted(e.comm)) [[unlikely]]
    return signature_pack(made);
  if (e.comm->remote_size >= 0) [[unlikely]] {
    list_remote(e, kind, *slot.wait);
    if (kind == Kind::kBarrier) made.bytes = 0;
  } else {
    if (has_root(kind) && e.peer >= 0) made.root = static_cast<uint32_t>(e.peer) + 1;
    made.bytes = bytes_of(e, kind);
    if (kind == Kind::kReduceScatter && e.receive.counts != nullptr && count_at(e, e.receive, e.comm->rank) == 0)
      *flags = kEmptyHere;
  }
  return signature_pack(made);
}

/// A datatype that was not used lately, a mixture, or a call whose root has its data elsewhere.
[[gnu::noinline]] static uint32_t common_type_slow(Event& e, Kind kind, uint64_t bytes) {
  const bool root = (kind == Kind::kGather || kind == Kind::kScatter) && is_root(e, members_of(*e.comm));
  const bool received = kind == Kind::kAllgather || kind == Kind::kAlltoall || (kind == Kind::kGather && root) ||
                        (kind == Kind::kScatter && !root);
  if (backend->types == nullptr) return kAnySignature;
  const TypeMap* map = type_map(*e.thread, received ? e.receive.type : e.send.type);
  return map != nullptr ? type_signature(*map, bytes) : kAnySignature;
}

namespace {

uint32_t basic_type(Event& e, uint64_t type) {
  const TypeMap* map = backend->types != nullptr ? type_map(*e.thread, type) : nullptr;
  return map != nullptr && map->signature != kMixedSignature ? map->signature : kAnySignature;
}

/// Where each pair of ranks has an amount of its own, types need not be the same where nothing moves: a rank tells its
/// own if any two that tell theirs have data for each other, or for the same third one.
[[gnu::noinline]] uint32_t uneven_type(Event& e, Kind kind) {
  if (!can_be_counted(e.comm) || e.comm->remote_size >= 0 || e.send.types != nullptr || e.receive.types != nullptr)
    return kAnySignature;
  const Members members = members_of(*e.comm);
  const bool root = is_root(e, members);
  switch (kind) {
    case Kind::kGatherv:
      if (root) return basic_type(e, e.receive.type);
      return e.send.count > 0 ? basic_type(e, e.send.type) : kAnySignature;
    case Kind::kScatterv:
      if (root) return basic_type(e, e.send.type);
      return e.receive.count > 0 ? basic_type(e, e.receive.type) : kAnySignature;
    case Kind::kReduceScatter: return e.bytes != 0 ? basic_type(e, e.receive.type) : kAnySignature;
    default: break;
  }
  const Transfer got = received(e, members, backend->is_in_place), put = sent(e, members, backend->is_in_place);
  const uint32_t type = basic_type(e, got.type);
  if (call_info(e.id).collective == Collective::kAllgather) return e.bytes != 0 ? type : kAnySignature;
  if (!put.in_place && basic_type(e, put.type) != type) return kAnySignature;
  for (int64_t i = got.first; i < got.end; ++i)
    if (i != members.rank && got.count_of(i) <= 0) return kAnySignature;
  return type;
}

}  // namespace

uint32_t common_type(Event& e, Kind kind, uint64_t signature) {
  constexpr auto bit = [](Kind of) { return uint32_t{1} << static_cast<unsigned>(of); };
  constexpr uint32_t kOne = bit(Kind::kBcast) | bit(Kind::kReduce) | bit(Kind::kAllreduce) | bit(Kind::kScan) |
                            bit(Kind::kReduceScatterBlock),
                     kOther = bit(Kind::kAllgather) | bit(Kind::kAlltoall) | bit(Kind::kGather) | bit(Kind::kScatter),
                     kUneven =
                         bit(Kind::kGatherv) | bit(Kind::kScatterv) | bit(Kind::kVector) | bit(Kind::kReduceScatter);
  static_assert(static_cast<unsigned>(Kind::kFinalize) < 32);
  const uint64_t bytes = signature >> 36;  // significant here, of this communicator's own group, the same everywhere
  if (bytes - 1 >= kExactBytes - 1 || ((kOne | kOther) & bit(kind)) == 0)
    return (kUneven & bit(kind)) != 0 ? uneven_type(e, kind) : kAnySignature;
  if (kOne & bit(kind)) [[likely]]
    if (const TypeMap* map = type_map_cached(*e.thread, e.send.type);
        map != nullptr && map->signature != kMixedSignature)
      return map->signature;
  return common_type_slow(e, kind, bytes);
}

uint64_t count_collective(uint32_t comm_index, uint64_t signature, uint32_t type) {
  if (comm_index < 2) return 0;
  ring::Comm& comm = runtime.comms[comm_index];
  const uint64_t number = bump(comm.ordered);
  if (comm_index >= kTracks) return number;
  Track& track = writer.section->tracks[comm_index];
  if (track.comm != comm.id) {
    const uint32_t members =
        static_cast<uint32_t>(comm.size) + (comm.remote_size > 0 ? static_cast<uint32_t>(comm.remote_size) : 0);
    track_begin(track, comm.id, members,
                (comm.flags != 0 ? uint32_t{kTrackOneSided} : 0) | (number != 1 ? uint32_t{kTrackLate} : 0));
  }
  track_add(track, number, signature, type);
  return number;
}

void collective_failed(uint32_t comm_index, uint64_t comm_id) {
  set_irregular(kUnknownOrder);
  if (comm_index < 2 || comm_index >= kTracks) return;
  if (Track& track = writer.section->tracks[comm_index]; track.comm == comm_id) track_mark(track, kTrackFailed);
}

}  // namespace resil::hang
