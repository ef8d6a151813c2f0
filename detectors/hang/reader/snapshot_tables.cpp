// SPDX-License-Identifier: Apache-2.0
//
// See snapshot.h: what the tables of a rank say at one instant. Its communicators, windows, files and persistent
// collectives with the numbers of calls made on each; and which of its pending messages have no order among themselves.

#include <initializer_list>

#include "detectors/hang/reader/reader.h"
#include "detectors/hang/reader/snapshot.h"
#include "detectors/hang/slots/calls.h"

namespace resil::hang {

ring::Comm comm_at(const Watched& watched, uint32_t index) {
  if (index < 2 || index >= watched.comm_count) return {};
  const ring::Comm comm = copy_of(watched.comms[index]);
  return comm.flags == 0 ? comm : ring::Comm{};
}

namespace {

/// How often this rank has started each of its persistent collectives.
uint32_t read_persistent(const Watched& watched, Membership* to, uint32_t room) {
  uint32_t count = 0;
  for (uint32_t i = 0; load(watched.section->persistent_collectives) != 0 && i < watched.request_count && count < room;
       ++i) {
    const ring::Request& place = watched.requests[i];
    const uint64_t key = load(place.key);
    if (key == 0 || place.kind != static_cast<uint8_t>(ring::RequestKind::kCollective)) continue;
    const ring::Request request = copy_of(place);
    const Pending pending = copy_of(watched.pending[i]);
    const ring::Comm comm = comm_of(watched, request);
    if (request.key != key || load(place.key) != key || !(request.flags & ring::kPersistent) ||
        pending.receive_tag <= 0 || comm.id == 0 || (comm.size <= 1 && comm.remote_size < 0))
      continue;
    to[count++] = {persistent_comm(comm.id, static_cast<uint64_t>(pending.receive_tag)),
                   pending.sequence,
                   comm.rank,
                   comm.size,
                   comm.remote_size,
                   request.comm};
  }
  return count;
}

}  // namespace

uint32_t read_memberships(const Watched& watched, const Part* parts, uint32_t part_count, Membership* to,
                          uint32_t room) {
  const Section& section = *watched.section;
  uint32_t count = 0;
  const uint64_t world = load(section.final_comm);
  const ring::Header& header = *watched.header;
  if (world != 0 && count < room)
    to[count++] = {world, load(section.final_sequence), header.rank, header.world_size, -1, 0};
  for (const WindowSlot& place : section.windows)
    if (load(place.id) != 0 && count < room)
      if (const WindowSlot window = copy_of(place); window.id != 0 && window.size > 1)
        to[count++] = {window.id, window.ordered, window.rank, window.size, -1, window.comm};
  for (const WindowSlot& place : section.files)
    if (load(place.id) != 0 && count < room)
      if (const WindowSlot file = copy_of(place); file.id != 0 && file.size > 1)
        to[count++] = {file.id, file.ordered, file.rank, file.size, -1, file.comm};
  count += read_persistent(watched, to + count, (room - count) / 2);
  for (const bool wanted : {true, false}) {
    for (uint32_t i = 2; i < watched.comm_count && count < room; ++i) {
      if (load(watched.comms[i].id) == 0) continue;
      const ring::Comm comm = comm_at(watched, i);
      bool in_part = false;
      for (uint32_t k = 0; k < part_count; ++k) in_part = in_part || parts[k].comm == comm.id;
      if (comm.id == 0 || comm.id == world || in_part != wanted || (!in_part && comm.size <= 1 && comm.remote_size < 0))
        continue;
      to[count++] = {comm.id, comm.ordered, comm.rank, comm.size, comm.remote_size, i};
    }
  }
  return count;
}

uint32_t live_threads(const Watched& watched) {
  uint32_t live = 0;
  for (uint32_t i = 0; load(watched.section->thread_level) == 3 && i < watched.trace_count; ++i)
    live += load(watched.traces[i].state) == static_cast<uint32_t>(ring::TraceState::kLive);
  return live;
}

namespace {

/// A pending message with that envelope has number `ordinal`: the parts with it may as well be that one.
void lower(Part* parts, uint32_t count, bool sends, uint64_t comm, int32_t peer, int32_t tag, uint32_t ordinal) {
  for (uint32_t i = 0; ordinal != 0 && i < count; ++i) {
    Part& part = parts[i];
    if (part.kind != (sends ? PartKind::kSend : PartKind::kReceive) || part.comm != comm || part.peer != peer ||
        part.tag != tag || part.ordinal <= ordinal)
      continue;
    if (part.needed != 0) part.needed -= part.ordinal - ordinal;
    part.ordinal = ordinal;
  }
}

}  // namespace

void forget_order(const Watched& watched, Part* parts, uint32_t count) {
  bool any = false;
  for (uint32_t i = 0; i < count; ++i) {
    any |= parts[i].kind == PartKind::kReceive || parts[i].kind == PartKind::kSend;
    if (parts[i].kind == PartKind::kProbe)  // a receive of another thread may have been posted before or after it
      parts[i].needed = 0;
  }
  for (uint32_t i = 0; any && i < watched.request_count; ++i) {
    ring::Request request;
    Pending pending;
    if (!pending_at(watched, i, &request, &pending)) continue;
    const uint64_t comm = comm_of(watched, request).id;
    const bool sends = request.kind == static_cast<uint8_t>(ring::RequestKind::kSend);
    if (sends || request.kind == static_cast<uint8_t>(ring::RequestKind::kReceive))
      lower(parts, count, sends, comm, pending.peer, request.tag, pending.ordinal);
    if (sends && pending.both)
      lower(parts, count, false, comm, static_cast<int32_t>(pending.sequence >> 32), pending.receive_tag,
            static_cast<uint32_t>(pending.sequence));
  }
  for (uint32_t i = 0; any && i < count; ++i)  // open calls, of all threads: each is a part
    if (parts[i].kind == PartKind::kReceive || parts[i].kind == PartKind::kSend)
      lower(parts, count, parts[i].kind == PartKind::kSend, parts[i].comm, parts[i].peer, parts[i].tag,
            parts[i].ordinal);
}

}  // namespace resil::hang
