// SPDX-License-Identifier: Apache-2.0
//
// See snapshot.h: how many messages of an envelope, from the counters, the pending requests and the open calls of the
// ranks of this node.

#include "detectors/hang/reader/reader.h"
#include "detectors/hang/reader/snapshot.h"
#include "detectors/hang/slots/calls.h"

namespace resil::hang {

namespace {

bool covers(const Question& question, uint64_t comm) {
  return question.comm == 0 ? comm > kNobody : comm == question.comm;
}
bool covers_tag(const Question& question, int32_t tag) { return question.tag == ring::kAnyTag || tag == question.tag; }
bool covers_source(const Question& question, int32_t source) {
  return question.source == ring::kAnySource ? source >= 0 : source == question.source;
}

/// A receive or matched probe that is pending at the destination.
void count_pending(const Question& question, uint64_t comm, int32_t source, int32_t tag, bool probe, Answer* answer) {
  if (!covers(question, comm) || (source < 0 && source != ring::kAnySource)) return;
  const bool wild = source == ring::kAnySource || tag == ring::kAnyTag;
  const bool source_fits = source == ring::kAnySource || covers_source(question, source);
  const bool tag_fits = tag == ring::kAnyTag || covers_tag(question, tag);
  if (source_fits && tag_fits) ++(wild || probe ? answer->wild_pending : answer->pending);
}

/// Calls `visit` with (comm, source, tag, probe) of every pending receive of the rank. comm 0: it was freed, and which
/// one it was is not known any more.
template <class Visit>
void each_pending(const Watched& watched, Visit visit) {
  for (uint32_t i = 0; i < watched.request_count; ++i) {
    ring::Request request;
    Pending pending;
    if (!pending_at(watched, i, &request, &pending)) continue;
    if (request.kind == static_cast<uint8_t>(ring::RequestKind::kReceive))
      visit(comm_id_of(watched, request), pending.peer, request.tag, false);
    else if (request.kind == static_cast<uint8_t>(ring::RequestKind::kSend) && pending.both)
      visit(comm_id_of(watched, request), static_cast<int32_t>(pending.sequence >> 32), pending.receive_tag, false);
  }
  for (uint32_t i = 0; i < watched.trace_count; ++i) {
    const ring::TraceBuffer& trace = watched.traces[i];
    const uint64_t current = load(trace.current);
    const Wait wait = copy_of(watched.section->waits[i]);
    if (current == 0 || wait.instance != current) continue;
    const ring::Record record = copy_of(ring::record_at(trace, current - 1));
    if (record.call >= kCallCount || load(trace.current) != current ||
        load(watched.section->waits[i].instance) != current)
      continue;
    const auto id = static_cast<CallId>(record.call);
    const Handling handling = meaning_of(id).handling;
    const uint64_t comm = comm_id(watched, record.comm);
    if (handling == Handling::kReceive) visit(comm, wait.peer, record.tag, false);
    else if (handling == Handling::kSendReceive) visit(comm, wait.receive_peer, wait.receive_tag, false);
    else if (handling == Handling::kProbe && class_of(id) == CallClass::kMatchedProbe)
      visit(comm, wait.peer, record.tag, true);
  }
}

/// Is it in the rank's table?
bool is_live(const Watched& watched, uint64_t comm) {
  for (uint32_t i = 2; i < watched.comm_count; ++i)
    if (load(watched.comms[i].id) == comm) return true;
  return false;
}

void add_source(const Section& section, const Question& question, int32_t peer, Answer* answer) {
  answer->from_source = 1;
  ++answer->covered;
  if (question.comm != 0 && question.tag != ring::kAnyTag) {
    answer->sent += envelope_read(section, question.comm, peer, question.tag).sent;
    answer->other_tags |= has_other_tags(section, question.comm, peer);
    return;
  }
  for (uint32_t i = 0; i < kEnvelopes; ++i) {
    if (!covers(question, load(section.envelopes[i].comm))) continue;
    const Envelope envelope = copy_of(section.envelopes[i]);
    if (envelope.peer != peer || !covers(question, envelope.comm)) continue;
    if (covers_tag(question, envelope.tag)) answer->sent += envelope.sent;
    else answer->other_tags |= envelope.tag == kOtherTags;
  }
}

void add_destination(const Section& section, const Question& question, Answer* answer) {
  answer->from_destination = 1;
  if (question.comm != 0 && question.tag != ring::kAnyTag && question.source >= 0) {
    const Envelope envelope = envelope_read(section, question.comm, question.source, question.tag);
    answer->posted += envelope.posted;
    answer->taken += envelope.taken;
    answer->other_tags |= has_other_tags(section, question.comm, question.source);
    return;
  }
  for (uint32_t i = 0; i < kEnvelopes; ++i) {
    if (!covers(question, load(section.envelopes[i].comm))) continue;
    const Envelope envelope = copy_of(section.envelopes[i]);
    if (!covers(question, envelope.comm) || is_wild_envelope(envelope.peer, envelope.tag) ||
        !covers_source(question, envelope.peer))
      continue;
    if (covers_tag(question, envelope.tag)) {
      answer->posted += envelope.posted;
      answer->taken += envelope.taken;
    } else {
      answer->other_tags |= envelope.tag == kOtherTags;
    }
  }
}

}  // namespace

uint32_t answer(Watched* watched, uint32_t count, const Question* questions, uint32_t question_count, Answer* answers,
                uint32_t room) {
  uint32_t given = 0;
  for (uint32_t q = 0; q < question_count && given < room; ++q) {
    const Question& question = questions[q];
    Answer made = {};
    made.question = q;
    made.source = question.source;
    made.destination = question.destination;
    made.tag = question.tag;
    for (uint32_t i = 0; i < count; ++i) {
      const Watched& rank = watched[i];
      if (rank.header == nullptr || rank.section == nullptr) continue;
      if (question.source == ring::kAnySource || rank.rank == question.source)
        add_source(*rank.section, question, question.destination, &made);
      if (rank.rank != question.destination) continue;
      add_destination(*rank.section, question, &made);
      bool unknown = false;
      each_pending(rank, [&](uint64_t comm, int32_t source, int32_t tag, bool probe) {
        unknown |= comm == 0;
        count_pending(question, comm, source, tag, probe, &made);
      });
      if (unknown && !is_live(rank, question.comm)) made.from_destination = 0;
    }
    if (made.from_source || made.from_destination) answers[given++] = made;
  }
  return given;
}

}  // namespace resil::hang
