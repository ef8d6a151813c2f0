// SPDX-License-Identifier: Apache-2.0
//
// A state under construction. Shared by snapshot_state.cpp and snapshot_collectives.cpp only.
#pragma once

#include "detectors/hang/reader/reader.h"
#include "detectors/hang/slots/calls.h"

namespace resil::hang {

struct Builder {
  Watched& watched;
  const Section& section;
  RankState state;
  ThreadWait threads[kMaxThreads];
  Part parts[kMaxParts];
};

/// What a part is made from: an open call or a pending request.
struct Source {
  uint16_t call;
  uint64_t comm;
  int32_t peer, tag;  ///< world rank
  uint32_t ordinal;
  uint64_t bytes;
  uint8_t flags;
  uint64_t site;  ///< of the call that started the request
};

/// Null: no room; the wait is then truncated.
Part* add_part(Builder& b, ThreadWait& thread);
/// What cannot be judged.
void add_other(Builder& b, ThreadWait& thread, uint16_t call);

// --- snapshot_collectives.cpp ---------------------------------------------------------------------------------------
inline uint32_t kept_of(const Wait& wait) { return wait.kept < kWaitedKeys ? wait.kept : kWaitedKeys - 1; }
/// On an intercommunicator, each rank of the other group that the call waits for. False: none that MPI demands.
bool add_remote(Builder& b, ThreadWait& thread, const Source& from, const Wait& wait);
/// The ranks that a vector or neighbourhood collective receives data from, of an open call and of a request.
SourceList sources_of(uint16_t call, const Wait& wait);
SourceList sources_of(const Watched& watched, const ring::Request& request, const Pending& pending);
/// `from.peer`: the root's world rank. `amount`: bytes of the signature. `wait_flags`: WaitFlag.
void add_collective(Builder& b, ThreadWait& thread, const Source& from, const ring::Comm& comm, int32_t root,
                    uint64_t amount, uint8_t wait_flags, const SourceList& sources, uint64_t sequence);
/// Start number `pending.sequence` of a persistent collective, which each rank counts for itself; a rank that has not
/// made it yet has not started it either.
void add_persistent(Builder& b, ThreadWait& thread, Source from, const ring::Request& request, const Pending& pending);

}  // namespace resil::hang
