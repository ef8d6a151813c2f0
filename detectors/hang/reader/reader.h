// SPDX-License-Identifier: Apache-2.0
//
// Shared by the parts of the reading side: copies of what another process may be writing at this instant. For
// snapshot*.cpp only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "detectors/hang/reader/snapshot.h"
#include "detectors/hang/slots/envelopes.h"
#include "detectors/hang/slots/layout.h"

namespace resil::hang {

/// A copy, word by word; torn when the writer is at it, which the caller finds out by the instance before and after.
/// The thread sanitizer sees one side of a protocol whose other side is another process.
template <class T>
__attribute__((no_sanitize("thread"))) inline T copy_of(const T& from) {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) % 8 == 0 && alignof(T) >= 8);
  T to;
  auto* in = reinterpret_cast<const volatile uint64_t*>(&from);
  auto* out = reinterpret_cast<volatile uint64_t*>(&to);
  for (size_t i = 0; i < sizeof(T) / 8; ++i) out[i] = in[i];
  __atomic_thread_fence(__ATOMIC_ACQUIRE);
  return to;
}

template <class T>
inline T load(const T& field) {
  return __atomic_load_n(&field, __ATOMIC_ACQUIRE);
}

/// Counters of one envelope; zeros when it has no place.
Envelope envelope_read(const Section& section, uint64_t comm, int32_t peer, int32_t tag);
/// Are messages between this rank and `peer` on that communicator counted without their tags?
inline bool has_other_tags(const Section& section, uint64_t comm, int32_t peer) {
  return envelope_read(section, comm, peer, kOtherTags).comm != 0;
}

/// The communicator of a request. Entries of section "comms" are given again, so the time of its posting tells which
/// one it is; that of a communicator that is freed is known as long as the free is. id 0: nobody can tell.
ring::Comm comm_of(const Watched& watched, const ring::Request& request);
/// Its id alone, quicker, whatever its flags.
uint64_t comm_id_of(const Watched& watched, const ring::Request& request);
/// Adds what this rank has freed of that id to the parts. False: it has not, or too long ago. The same id is never
/// given twice.
bool read_freed(const Watched& watched, uint64_t id, Part* to);

/// Job-wide id, 0: none or not a communicator of its own.
inline uint64_t comm_id(const Watched& watched, uint32_t index) {
  return index >= 2 && index < watched.comm_count ? load(watched.comms[index].id) : 0;
}

/// What the rank's request table says in one place at this instant. False: nothing, or no message that is pending.
/// Handles come again, so that the key alone does not make it whole: that it is only if the calls of that rank's
/// threads (TraceBuffer::current) are the same before and after.
inline bool pending_at(const Watched& watched, uint32_t i, ring::Request* request, Pending* pending) {
  const uint64_t key = load(watched.requests[i].key);
  if (key == 0) return false;
  *request = copy_of(watched.requests[i]);
  *pending = copy_of(watched.pending[i]);
  const bool asleep = (request->flags & ring::kPersistent) && !(request->flags & ring::kActive);
  return request->key == key && load(watched.requests[i].key) == key && !asleep &&
         !(request->flags & ring::kPartitioned);
}

constexpr uint32_t kMaxMemberships = 384;

// --- snapshot_tables.cpp --------------------------------------------------------------------------------------------
/// What is known of one communicator at this instant; id 0: nothing, or an id that other ranks may have given to
/// another.
ring::Comm comm_at(const Watched& watched, uint32_t index);
/// Communicators of more than this process, those of the parts first; windows, files and persistent collectives
/// likewise.
uint32_t read_memberships(const Watched& watched, const Part* parts, uint32_t part_count, Membership* to,
                          uint32_t room);
/// Threads that may call MPI at the same time; 0 below MPI_THREAD_MULTIPLE.
uint32_t live_threads(const Watched& watched);
/// Messages of equal envelope that two threads start at once, or one MPI_Startall (MPI 4.0, 3.9), have any order: the
/// numbers by which they were counted need not be MPI's. Each is taken for the first of those that are pending.
void forget_order(const Watched& watched, Part* parts, uint32_t count);

/// CLOCK_REALTIME of a tick count of that rank.
uint64_t realtime_of(const ring::Header& header, uint64_t ticks);

}  // namespace resil::hang
