// SPDX-License-Identifier: Apache-2.0
//
// See snapshot.h: messages that may be what somebody waits for, on whatever communicator and between whatever ranks.
// Hints for people, never a proof: counters are read one after the other, and the call site of a message is that of the
// last one like it which the flight record still has.

#include "detectors/hang/reader/reader.h"
#include "shim/model/calls.h"

namespace resil::hang {

static bool is_on(const Watched& rank, const ring::Record& record, uint64_t comm) {
  constexpr uint32_t kWorld = 2;  // the first entry; MPI_Finalize deletes it
  const uint64_t id = comm_id(rank, record.comm);
  return id == comm ||
         (id == 0 && record.comm == kWorld && rank.section != nullptr && load(rank.section->final_comm) == comm);
}

/// Ranks of a record are those of its communicator, so that they tell more only where these are the world's.
uint64_t site_of_message(const Watched& rank, uint64_t comm, int32_t tag, int32_t partner, bool sent) {
  uint64_t found = 0, at = 0;
  for (uint32_t i = 0; i < rank.trace_count; ++i) {
    const uint64_t head = load(rank.traces[i].head);
    for (uint64_t back = 0; back < head && back < ring::records_of(rank.traces[i]); ++back) {
      const ring::Record record = copy_of(ring::record_at(rank.traces[i], head - 1 - back));
      if (record.time < at || record.call >= kCallCount || record.tag != tag || !is_on(rank, record, comm)) continue;
      const CallInfo& info = call_info(static_cast<CallId>(record.call));
      if (info.call_class != (sent ? CallClass::kSend : CallClass::kReceive) &&
          info.call_class != CallClass::kSendReceive && info.call_class != CallClass::kSendReceiveReplace)
        continue;
      const ring::Comm shape = copy_of(rank.comms[record.comm]);
      if (shape.size == rank.header->world_size && shape.rank == rank.rank && shape.remote_size < 0 &&
          record.peer != partner && record.peer != ring::kAnySource)
        continue;
      found = record.site;
      at = record.time;
      break;
    }
  }
  return found;
}

namespace {

constexpr uint32_t kMostOfRank = 256;

bool is_message(const Envelope& envelope) {
  return envelope.comm > kNobody && envelope.peer >= 0 && envelope.tag > kFirstToken && envelope.tag != kOtherTags &&
         !is_wild_envelope(envelope.peer, envelope.tag);
}

struct Found {
  FoundMessage* to;
  uint32_t room, count, of_rank;

  void add(const FoundMessage& message) {
    if (count < room && of_rank++ < kMostOfRank) to[count++] = message;
  }
};

/// Requests that would do, had they been started.
void search_requests(const Watched& rank, uint32_t index, const SearchQuestion& question, Found& found) {
  const bool of_send = question.of_send != 0;
  if (of_send && rank.rank != question.receiver) return;
  const auto kind = of_send ? ring::RequestKind::kReceive : ring::RequestKind::kSend;
  for (uint32_t i = 0; i < rank.request_count; ++i) {
    const uint64_t key = load(rank.requests[i].key);
    if (key == 0) continue;
    const ring::Request request = copy_of(rank.requests[i]);
    const Pending pending = copy_of(rank.pending[i]);
    if (request.key != key || !(request.flags & ring::kPersistent) || (request.flags & ring::kActive) ||
        request.kind != static_cast<uint8_t>(kind))
      continue;
    const uint64_t comm = comm_id_of(rank, request);
    if (of_send && (pending.peer == question.sender || pending.peer == ring::kAnySource))
      found.add({comm, 1, request.site, question.sender, rank.rank, request.tag, index, FoundKind::kAsleep, {}});
    else if (!of_send && pending.peer == question.receiver)
      found.add({comm, 1, request.site, rank.rank, pending.peer, request.tag, index, FoundKind::kAsleep, {}});
  }
}

void search_rank(const Watched& rank, uint32_t index, const SearchQuestion& question, Found& found) {
  search_requests(rank, index, question, found);
  for (const Envelope& place : rank.section->envelopes) {
    if (question.of_send != 0 || load(place.comm) <= kNobody) continue;
    const Envelope envelope = copy_of(place);
    if (!is_message(envelope)) continue;
    const bool sender = rank.rank == question.sender && envelope.tag == question.tag;
    if (envelope.sent != 0 && (envelope.peer == question.receiver || sender))
      found.add({envelope.comm,
                 envelope.sent,
                 site_of_message(rank, envelope.comm, envelope.tag, envelope.peer, true),
                 rank.rank,
                 envelope.peer,
                 envelope.tag,
                 index,
                 FoundKind::kSent,
                 {}});
    const bool from_sender = envelope.peer == question.sender && envelope.tag == question.tag;
    if (envelope.posted + envelope.taken != 0 && (rank.rank == question.receiver || from_sender))
      found.add({envelope.comm,
                 envelope.posted + envelope.taken,
                 0,
                 envelope.peer,
                 rank.rank,
                 envelope.tag,
                 index,
                 FoundKind::kReceived,
                 {}});
  }
}

}  // namespace

uint32_t search(const Watched* watched, uint32_t count, const SearchQuestion* questions, uint32_t question_count,
                FoundMessage* messages, uint32_t room) {
  Found found = {messages, room, 0, 0};
  for (uint32_t q = 0; q < question_count; ++q)
    for (uint32_t i = 0; i < count; ++i) {
      if (watched[i].header == nullptr || watched[i].section == nullptr) continue;
      found.of_rank = 0;
      search_rank(watched[i], q, questions[q], found);
    }
  return found.count;
}

}  // namespace resil::hang
