// SPDX-License-Identifier: Apache-2.0
//
// See snapshot.h: whom a collective call waits for.

#include "detectors/hang/reader/builder.h"
#include "detectors/hang/slots/signature.h"

namespace resil::hang {

namespace {

/// Whom MPI demands that this rank waits for (MPI 4.0, 6.14: what a collective does not need to wait for, it may not).
uint8_t collective_flags(Pattern pattern, const ring::Comm& comm, bool is_root, uint64_t bytes, uint8_t wait_flags) {
  constexpr uint8_t kMust = 0, kMay = kMayBuffer, kForRoot = kRootOnly, kForLower = kLowerOnly;
  const bool inter = comm.remote_size >= 0, empty = bytes == 0 || (wait_flags & kEmptyHere) != 0;
  switch (pattern) {
    case Pattern::kBarrier:
    case Pattern::kCreate:
    case Pattern::kIntercomm:
    case Pattern::kFinalize: return kMust;
    case Pattern::kAllreduce:
    case Pattern::kAllgather:
    case Pattern::kAlltoall:
    case Pattern::kReduceScatter:
    case Pattern::kReduceScatterBlock: return empty || inter ? kMay : kMust;
    case Pattern::kBcast:
    case Pattern::kScatter:
    case Pattern::kScatterv: return is_root || inter ? kMay : empty ? kForRoot | kMay : kForRoot;
    case Pattern::kReduce:
    case Pattern::kGather: return is_root && !empty && !inter ? kMust : kMay;
    case Pattern::kScan: return empty || comm.rank == 0 ? kMay : kForLower;
    case Pattern::kGatherv:
    case Pattern::kVector: return (wait_flags & kFromAll) != 0 && !inter ? kMust : kMay;
    default: return kMay;
  }
}

/// Each rank that this one gets data from.
void add_sources(Builder& b, ThreadWait& thread, const Source& from, uint64_t comm, const SourceList& sources,
                 uint64_t sequence) {
  for (uint32_t i = 0; i < sources.count && i < kSourceRanks; ++i) {
    Part* part = add_part(b, thread);
    if (part == nullptr) return;
    *part = {PartKind::kCollective,
             static_cast<uint8_t>(from.flags | kRootOnly | kOneSource),
             from.call,
             sources.ranks[i],
             comm,
             ring::kNoTag,
             0,
             from.bytes,
             0,
             sequence,
             from.site};
  }
}

}  // namespace

SourceList sources_of(uint16_t call, const Wait& wait) {
  SourceList list = {};
  const Pattern pattern = meaning_of(static_cast<CallId>(call)).pattern;
  if (!has_sources(pattern) || (wait.flags & kFromAll) != 0) return list;
  const uint32_t kept = kept_of(wait);
  list.count = kept < kSourceRanks ? kept : kSourceRanks;
  for (uint32_t i = 0; i < list.count; ++i) list.ranks[i] = static_cast<int32_t>(wait.keys[i + 1] >> 32);
  return list;
}

SourceList sources_of(const Watched& watched, const ring::Request& request, const Pending& pending) {
  if (request.call >= kCallCount || !has_sources(meaning_of(static_cast<CallId>(request.call)).pattern) ||
      pending.sources == 0 || pending.sources > kSourceLists)
    return {};
  const SourceList& place = watched.section->sources[pending.sources - 1];
  const uint64_t owner = load(place.owner);
  const SourceList list = copy_of(place);
  return owner == request.key && list.owner == owner && load(place.owner) == owner ? list : SourceList{};
}

bool add_remote(Builder& b, ThreadWait& thread, const Source& from, const Wait& wait) {
  const uint32_t kept = kept_of(wait);
  for (uint32_t i = 1; i <= kept; ++i) {
    Part* part = add_part(b, thread);
    if (part == nullptr) return true;
    *part = {PartKind::kCollective,
             kRootOnly,
             from.call,
             static_cast<int32_t>(wait.keys[i] >> 32),
             from.comm,
             ring::kNoTag,
             0,
             from.bytes,
             0,
             wait.sequence,
             from.site};
  }
  thread.truncated |= wait.count > kept;
  return kept != 0;
}

void add_collective(Builder& b, ThreadWait& thread, const Source& from, const ring::Comm& comm, int32_t root,
                    uint64_t amount, uint8_t wait_flags, const SourceList& sources, uint64_t sequence) {
  const Pattern pattern = meaning_of(static_cast<CallId>(from.call)).pattern;
  if (comm.id == 0 || sequence == 0) return add_other(b, thread, from.call);
  add_sources(b, thread, from, comm.id, sources, sequence);
  Part* part = add_part(b, thread);
  if (part == nullptr) return;
  const uint64_t bytes = amount == kBytesNotCompared ? from.bytes : amount;
  const auto flags = static_cast<uint8_t>(collective_flags(pattern, comm, root == comm.rank, bytes, wait_flags) |
                                          (pattern == Pattern::kFile ? int{kTransfer} : 0));
  *part = {PartKind::kCollective,
           static_cast<uint8_t>(from.flags | flags),
           from.call,
           from.peer,
           comm.id,
           ring::kNoTag,
           pattern == Pattern::kRelease ? kReleases : 0,
           from.bytes,
           0,
           sequence,
           from.site};
}

void add_persistent(Builder& b, ThreadWait& thread, Source from, const ring::Request& request, const Pending& pending) {
  const auto made = static_cast<uint64_t>(pending.receive_tag);
  const ring::Comm comm = comm_of(b.watched, request);
  if (pending.receive_tag <= 0 || pending.sequence == 0 || comm.id == 0) return add_other(b, thread, from.call);
  const bool all = thread.kind == WaitKind::kAll;
  add_collective(b, thread, from, comm, request.peer, pending.ordinal, pending.flags, {}, made);
  if (thread.truncated != 0) return;
  Part& part = b.parts[b.state.part_count - 1];
  if (Part* start = all ? add_part(b, thread) : &part; start != nullptr) {
    *start = part;
    part.flags &= static_cast<uint8_t>(~kPersistentPart);
    start->flags |= kPersistentPart;
    start->comm = persistent_comm(comm.id, made);
    start->sequence = pending.sequence;
  }
  from.flags |= kPersistentPart;
  add_sources(b, thread, from, persistent_comm(comm.id, made), sources_of(b.watched, request, pending),
              pending.sequence);
}

}  // namespace resil::hang
