// SPDX-License-Identifier: Apache-2.0
//
// Near misses: for the receives and sends that a verdict names, the message that comes closest to each, on any
// communicator and of any rank, among those that nobody has asked for and the persistent sends that were never started.

#include "detectors/hang/root/near_miss.h"

namespace resil::hang {

namespace {

bool is_message(const Statement& statement) {
  return statement.id == Message::kWaits && statement.wait.part.kind <= PartKind::kSend;
}
bool is_send(const Part& part) { return part.kind == PartKind::kSend; }

bool same(const FoundMessage& a, const FoundMessage& b) {
  return a.comm == b.comm && a.source == b.source && a.destination == b.destination && a.tag == b.tag;
}

/// Of what was sent, how many nobody has asked for.
uint64_t excess(const FoundMessage* found, uint32_t count, const FoundMessage& sent) {
  uint64_t asked = 0;
  for (uint32_t i = 0; i < count; ++i)
    if (found[i].kind == FoundKind::kReceived && found[i].question == sent.question && same(found[i], sent))
      asked += found[i].count;
  return sent.count > asked ? sent.count - asked : 0;
}

/// The less, the nearer; kNotNear: nothing is to be learned from it.
constexpr uint32_t kNotNear = 8;
uint32_t distance(const Part& wanted, int32_t receiver, const FoundMessage& message) {
  const bool source = wanted.peer == ring::kAnySource || message.source == wanted.peer,
             tag = wanted.tag == ring::kAnyTag || message.tag == wanted.tag, comm = message.comm == wanted.comm;
  if (message.destination != receiver) return source && tag && wanted.peer >= 0 ? comm ? 5 : 6 : kNotNear;
  if (source && tag) return comm && message.kind != FoundKind::kAsleep ? kNotNear : 0;
  if (source && comm) return 1;
  if (tag) return comm ? 2 : 3;
  return kNotNear;
}

/// What the graph has said of it, without these names.
void forget_vague(Verdict* verdict) {
  uint32_t kept = 0;
  for (uint32_t i = 0; i < verdict->statement_count; ++i) {
    const Message id = verdict->statements[i].id;
    if (id == Message::kNearTag || id == Message::kNearComm) continue;
    if (kept != i) verdict->statements[kept] = verdict->statements[i];
    ++kept;
  }
  verdict->statement_count = kept;
}

}  // namespace

uint32_t near_miss_questions(const Verdict& verdict, SearchQuestion* questions) {
  uint32_t count = 0;
  for (uint32_t i = 0; i < verdict.statement_count && count < kMostSearches; ++i)
    if (is_message(verdict.statements[i])) {
      const Part& part = verdict.statements[i].wait.part;
      const int32_t rank = verdict.statements[i].rank;
      questions[count++] =
          is_send(part) ? SearchQuestion{part.peer, rank, part.tag, 1} : SearchQuestion{rank, part.peer, part.tag, 0};
    }
  return count;
}

void add_near_misses(const FoundMessage* found, uint32_t count, Verdict* verdict) {
  uint32_t question = 0;
  const uint32_t statements = verdict->statement_count;
  FoundMessage told[kMostSearches];
  uint32_t told_count = 0;
  bool made_vague = false;
  for (uint32_t i = 0; i < statements && question < kMostSearches; ++i) {
    if (!is_message(verdict->statements[i])) continue;
    Part wanted = verdict->statements[i].wait.part;
    const bool send = is_send(wanted);
    const int32_t receiver = send ? wanted.peer : verdict->statements[i].rank;
    if (send) wanted.peer = verdict->statements[i].rank;
    const FoundMessage* best = nullptr;
    uint32_t nearest = kNotNear;
    uint64_t messages = 0;
    for (uint32_t k = 0; k < count; ++k) {
      const FoundMessage& message = found[k];
      if (message.question != question || message.kind == FoundKind::kReceived) continue;
      const uint64_t left = message.kind == FoundKind::kSent ? excess(found, count, message) : message.count;
      const uint32_t away = left != 0 ? distance(wanted, receiver, message) : kNotNear;
      if (away >= nearest) continue;
      nearest = away;
      best = &message;
      messages = left;
    }
    ++question;
    bool again = best == nullptr;
    for (uint32_t k = 0; k < told_count && !again; ++k) again = same(told[k], *best);
    if (again) continue;
    told[told_count++] = *best;
    // What the graph has said of it without these names goes.
    made_vague = true;
    Statement& made = verdict->add(best->kind != FoundKind::kAsleep ? Message::kNearMessage
                                   : send                           ? Message::kNearAsleepReceive
                                                                    : Message::kNearAsleep);
    made.rank = made.wait.rank = send ? best->destination : best->source;
    made.comm = best->comm;
    made.n[0] = messages;
    made.n[1] = static_cast<uint64_t>(send ? best->source : best->destination);
    made.n[2] = static_cast<uint64_t>(best->tag);
    made.wait.site = best->site;
  }
  if (made_vague) forget_vague(verdict);
}

}  // namespace resil::hang
