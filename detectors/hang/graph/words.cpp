// SPDX-License-Identifier: Apache-2.0

#include "detectors/hang/graph/words.h"

namespace resil::hang::graph {

namespace {

bool others_have_ended(const Graph& graph, const Comm& comm, uint32_t rank) {
  for (uint32_t i = 0; i < comm.count; ++i)
    if (const uint32_t other = graph.in_order(comm, i).rank; other != rank && !is_sink(graph.role(other))) return false;
  return comm.count > 1;
}

}  // namespace

void Words::ranks(const uint8_t* flags, bool named) {
  constexpr uint32_t kRanges = 12;
  uint32_t total = 0, ranges = 0, written = 0;
  for (uint32_t rank = 0; rank < graph_.ranks(); ++rank) total += flags[rank] != 0 ? 1 : 0;
  if (named) text.str(total == 1 ? "rank " : "ranks ");
  for (uint32_t rank = 0; rank < graph_.ranks(); ++rank) {
    if (flags[rank] == 0) continue;
    uint32_t last = rank;
    while (last + 1 < graph_.ranks() && flags[last + 1] != 0) ++last;
    if (ranges == kRanges) {
      text.str(" and ").u64(total - written).str(" more");
      return;
    }
    text.str(ranges++ != 0 ? "," : "").u64(rank);
    if (last != rank) text.chr('-').u64(last);
    written += last - rank + 1;
    rank = last;
  }
}

void Words::comm(uint64_t id) {
  const char* name = names_.comm != nullptr ? names_.comm(names_.self, id) : nullptr;
  if (name != nullptr && name[0] != 0) text.safe(name, 56);
  else text.str("communicator ").hex(id);
}

void Words::call(uint16_t id) {
  const char* name = names_.call != nullptr ? names_.call(names_.self, id) : nullptr;
  text.safe(name != nullptr && name[0] != 0 ? name : "an MPI call", 48);
}

void Words::site(uint32_t rank, const ThreadWait& wait) {
  char place[96] = {};
  if (names_.site != nullptr && wait.site != 0)
    names_.site(names_.self, static_cast<int32_t>(rank), wait.site, place, sizeof(place));
  if (place[0] != 0) text.str(" at ").safe(place, sizeof(place));
}

void Words::peer(uint32_t rank, int32_t peer) {
  if (peer == ring::kAnySource) text.str("any rank");
  else if (peer == static_cast<int32_t>(rank)) text.str("itself");
  else text.str("rank ").i64(peer);
}

void Words::wait(const Wait& of) {
  const ThreadWait& thread = thread_of(graph_, of);
  const Part& part = part_of(graph_, of);
  if (part.kind == PartKind::kToken || part.kind == PartKind::kLock) {
    call(thread.call);
    text.str(part.kind == PartKind::kLock ? part.tag != 0 ? " for the exclusive lock of " : " for a shared lock of "
                                          : " for ");
    if (part.kind == PartKind::kToken) {
      call(part.call);
      text.str(" of ");
    }
    peer(of.rank, part.peer);
    text.str(", on ");
    return comm(part.comm);
  }
  const bool by_request = part.call != thread.call && part.kind != PartKind::kSink;
  if (by_request) {
    call(thread.call);
    text.str(" for ");
  }
  if (part.kind == PartKind::kCollective)
    text.str(part.flags & kPersistentPart ? "start " : "call ").u64(part.sequence).str(" of ");
  call(by_request ? part.call : thread.call);
  switch (part.kind) {
    case PartKind::kCollective:
      text.str(" on ");
      comm(part.comm);
      return;
    case PartKind::kSend:
      text.str(" of ").bytes(part.bytes).str(" to ");
      peer(of.rank, part.peer);
      break;
    case PartKind::kReceive:
    case PartKind::kProbe:
      text.str(" from ");
      peer(of.rank, part.peer);
      break;
    default: return;
  }
  if (part.tag == ring::kAnyTag) text.str(", any tag");
  else if (part.tag != kOtherTags) text.str(", tag ").i64(part.tag);
  text.str(", on ");
  comm(part.comm);
}

void Words::why(const Wait& of) {
  const Part& part = part_of(graph_, of);
  switch (part.kind) {
    case PartKind::kReceive:
    case PartKind::kProbe:
      if (part.peer != ring::kAnySource) {
        text.str("; that message was never sent");
        break;
      }
      text.str("; nothing that it could take is on its way");
      if (others_have_ended(graph_, *graph_.comm(part.comm), of.rank))
        text.str(", and all other members have ended or called MPI_Finalize");
      break;
    case PartKind::kSend: text.str("; no receive for it was posted"); break;
    case PartKind::kToken: text.str("; that rank has not called it"); break;
    case PartKind::kLock: {
      uint32_t holders = 0, first = 0;
      graph_.each_holder(of.rank, part, [&](uint32_t rank) { first = holders++ == 0 ? rank : first; });
      if (holders != 0) text.str("; rank ").u64(first).str(holders == 1 ? " holds it" : " and others hold it");
      break;
    }
    case PartKind::kSink: text.str("; no other rank can end that"); break;
    default: break;
  }
}

void Words::age(const ThreadWait& wait) {
  const uint64_t now = graph_.input().now_ns;
  text.seconds(wait.entered_ns != 0 && wait.entered_ns <= now ? static_cast<double>(now - wait.entered_ns) * 1e-9 : -1);
}

}  // namespace resil::hang::graph
