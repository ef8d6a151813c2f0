// SPDX-License-Identifier: Apache-2.0
//
// The writing side of Section::histories: what each collective call of a communicator must agree on, in order. The
// calls on one communicator are ordered by the program, so there is one writer.

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

bool has_root(Pattern pattern) {
  return pattern == Pattern::kBcast || pattern == Pattern::kReduce || pattern == Pattern::kGather ||
         pattern == Pattern::kGatherv || pattern == Pattern::kScatter || pattern == Pattern::kScatterv;
}

bool has_operator(Pattern pattern) {
  return pattern == Pattern::kReduce || pattern == Pattern::kAllreduce || pattern == Pattern::kReduceScatter ||
         pattern == Pattern::kReduceScatterBlock || pattern == Pattern::kScan;
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
uint64_t bytes_of(Event& e, Pattern pattern) {
  const bool root = is_root(e, members_of(*e.comm));
  switch (pattern) {
    case Pattern::kBarrier: return 0;
    case Pattern::kBcast:
    case Pattern::kReduce:
    case Pattern::kAllreduce:
    case Pattern::kScan:
    case Pattern::kReduceScatter:
    case Pattern::kReduceScatterBlock: return signature_bytes(e.bytes);
    case Pattern::kAllgather:
    case Pattern::kAlltoall: return signature_bytes(argument_bytes(e, e.receive));
    case Pattern::kGather: return signature_bytes(argument_bytes(e, root ? e.receive : e.send));
    case Pattern::kScatter: return signature_bytes(argument_bytes(e, root ? e.send : e.receive));
    case Pattern::kVector:
      return call_info(e.id).collective == Collective::kAllgather ? allgathered_bytes(e) : kBytesNotCompared;
    default: return kBytesNotCompared;
  }
}

}  // namespace

uint64_t signature_of(Event& e, Pattern pattern, ThreadSlot& slot, uint8_t* flags) {
  *flags = 0;
  Signature made = {static_cast<uint16_t>(call_info(e.id).plain), OpKind::kNone, kNoRoot, kBytesNotCompared};
  if (has_operator(pattern)) made.op = op_of(e.op, slot);
  // The two sides of an intercommunicator name different roots and amounts.
  if (!can_be_counted(e.comm)) [[unlikely]]
    return signature_pack(made);
  if (e.comm->remote_size >= 0) [[unlikely]] {
    list_remote(e, pattern, *slot.wait);
    if (pattern == Pattern::kBarrier) made.bytes = 0;
  } else {
    if (has_root(pattern) && e.peer >= 0) made.root = static_cast<uint32_t>(e.peer) + 1;
    made.bytes = bytes_of(e, pattern);
    if (pattern == Pattern::kReduceScatter && e.receive.counts != nullptr && count_at(e, e.receive, e.comm->rank) == 0)
      *flags = kEmptyHere;
  }
  return signature_pack(made);
}

/// A datatype that was not used lately, a mixture, or a call whose root has its data elsewhere.
[[gnu::noinline]] static uint32_t common_type_slow(Event& e, Pattern pattern, uint64_t bytes) {
  const bool root = (pattern == Pattern::kGather || pattern == Pattern::kScatter) && is_root(e, members_of(*e.comm));
  const bool received = pattern == Pattern::kAllgather || pattern == Pattern::kAlltoall ||
                        (pattern == Pattern::kGather && root) || (pattern == Pattern::kScatter && !root);
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
[[gnu::noinline]] uint32_t uneven_type(Event& e, Pattern pattern) {
  if (!can_be_counted(e.comm) || e.comm->remote_size >= 0 || e.send.types != nullptr || e.receive.types != nullptr)
    return kAnySignature;
  const Members members = members_of(*e.comm);
  const bool root = is_root(e, members);
  switch (pattern) {
    case Pattern::kGatherv:
      if (root) return basic_type(e, e.receive.type);
      return e.send.count > 0 ? basic_type(e, e.send.type) : kAnySignature;
    case Pattern::kScatterv:
      if (root) return basic_type(e, e.send.type);
      return e.receive.count > 0 ? basic_type(e, e.receive.type) : kAnySignature;
    case Pattern::kReduceScatter: return e.bytes != 0 ? basic_type(e, e.receive.type) : kAnySignature;
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

uint32_t common_type(Event& e, Pattern pattern, uint64_t signature) {
  constexpr auto bit = [](Pattern of) { return uint32_t{1} << static_cast<unsigned>(of); };
  constexpr uint32_t kOne = bit(Pattern::kBcast) | bit(Pattern::kReduce) | bit(Pattern::kAllreduce) |
                            bit(Pattern::kScan) | bit(Pattern::kReduceScatterBlock),
                     kOther = bit(Pattern::kAllgather) | bit(Pattern::kAlltoall) | bit(Pattern::kGather) |
                              bit(Pattern::kScatter),
                     kUneven = bit(Pattern::kGatherv) | bit(Pattern::kScatterv) | bit(Pattern::kVector) |
                               bit(Pattern::kReduceScatter);
  static_assert(static_cast<unsigned>(Pattern::kFinalize) < 32);
  if (e.comm != nullptr && e.comm->size == 1 && e.comm->remote_size < 0) return kAnySignature;  // nobody else has one
  const uint64_t bytes = signature >> 36;  // significant here, of this communicator's own group, the same everywhere
  if (bytes - 1 >= kExactBytes - 1 || ((kOne | kOther) & bit(pattern)) == 0)
    return (kUneven & bit(pattern)) != 0 ? uneven_type(e, pattern) : kAnySignature;
  if (kOne & bit(pattern)) [[likely]]
    if (const TypeMap* map = type_map_cached(*e.thread, e.send.type);
        map != nullptr && map->signature != kMixedSignature)
      return map->signature;
  return common_type_slow(e, pattern, bytes);
}

uint64_t count_collective(uint32_t comm_index, uint64_t signature, uint32_t type) {
  if (comm_index < 2) return 0;
  ring::Comm& comm = runtime.comms[comm_index];
  const uint64_t number = bump(comm.ordered);
  if (comm_index >= kHistories) return number;
  CollectiveHistory& history = writer.section->histories[comm_index];
  if (history.comm != comm.id) {
    uint32_t& end = writer.section->histories_end;
    for (uint32_t was = __atomic_load_n(&end, __ATOMIC_RELAXED); was <= comm_index;)
      if (__atomic_compare_exchange_n(&end, &was, comm_index + 1, false, __ATOMIC_RELEASE, __ATOMIC_RELAXED)) break;
    const uint32_t members =
        static_cast<uint32_t>(comm.size) + (comm.remote_size > 0 ? static_cast<uint32_t>(comm.remote_size) : 0);
    history_begin(history, comm.id, members,
                  (comm.flags != 0 ? uint32_t{kHistoryOneSided} : 0) | (number != 1 ? uint32_t{kHistoryLate} : 0));
  }
  history_add(history, number, signature, type);
  return number;
}

void collective_failed(uint32_t comm_index, uint64_t comm_id) {
  set_irregular(kUnknownOrder);
  if (comm_index < 2 || comm_index >= kHistories) return;
  if (CollectiveHistory& history = writer.section->histories[comm_index]; history.comm == comm_id)
    history_mark(history, kHistoryFailed);
}

}  // namespace resil::hang
