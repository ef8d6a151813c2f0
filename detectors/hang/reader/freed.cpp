// SPDX-License-Identifier: Apache-2.0
//
// See reader.h: which communicator a request belongs to when communicators come and go, and what a rank has freed.

#include "detectors/hang/reader/reader.h"

namespace resil::hang {

namespace {

/// Calls `with(freed)` for what the rank has freed, the newest first, until it returns false. Whatever is being
/// written at this instant is left out.
template <class With>
void each_freed(const Section& section, With with) {
  const uint64_t count = load(section.freed_count), first = count > kFreed ? count - kFreed : 0;
  for (uint64_t n = count; n-- > first;) {
    const uint64_t id = load(section.freed[n % kFreed].id);
    const Freed freed = copy_of(section.freed[n % kFreed]);
    if (id == 0 || freed.id != id || load(section.freed[n % kFreed].id) != id) continue;
    if (!with(freed)) return;
  }
}

/// Was the last communicator of that entry freed after the request was posted, or at about that time?
bool is_of_freed(const Watched& watched, const ring::Request& request) {
  const uint64_t at = request.comm < kFreedPlaces ? load(watched.section->freed_at[request.comm]) : 0;
  return at != 0 && request.time <= at;
}

/// The first free of its entry after the request was posted; id 0: not known any more, or not for certain.
Freed freed_of(const Watched& watched, const ring::Request& request) {
  Freed found = {};
  uint64_t oldest = ~uint64_t{0};
  each_freed(*watched.section, [&](const Freed& freed) {
    oldest = freed.time < oldest ? freed.time : oldest;
    if (freed.comm == request.comm && freed.time >= request.time) found = freed;
    return true;
  });
  const bool lost = load(watched.section->freed_count) > kFreed && oldest >= request.time;
  return lost || found.time == request.time ? Freed{} : found;
}

}  // namespace

ring::Comm comm_of(const Watched& watched, const ring::Request& request) {
  if (!is_of_freed(watched, request)) return comm_at(watched, request.comm);
  const Freed freed = freed_of(watched, request);
  ring::Comm comm = {};
  comm.id = freed.id;
  comm.rank = freed.rank;
  comm.size = freed.size;
  comm.remote_size = freed.remote_size;
  return comm;
}

uint64_t comm_id_of(const Watched& watched, const ring::Request& request) {
  return is_of_freed(watched, request) ? freed_of(watched, request).id : comm_id(watched, request.comm);
}

bool read_freed(const Watched& watched, uint64_t id, Part* to) {
  bool found = false;
  each_freed(*watched.section, [&](const Freed& freed) {
    if (freed.id != id || (freed.size <= 1 && freed.remote_size < 0)) return true;
    *to = {};
    to->kind = PartKind::kFreed;
    to->flags =
        static_cast<uint8_t>((freed.uncounted != 0 ? int{kUncounted} : 0) | (freed.comm == 0 ? int{kFreedObject} : 0));
    to->call = freed.call;
    to->peer = freed.rank;
    to->comm = freed.id;
    to->tag = freed.size;
    to->ordinal = static_cast<uint32_t>(freed.remote_size);
    to->sequence = freed.sequence;
    to->site = freed.site;
    found = true;
    return false;
  });
  return found;
}

}  // namespace resil::hang
