// SPDX-License-Identifier: Apache-2.0
//
// Questions go down the tree, answers are merged on the way up. Each answer carries the set of the nodes that are in
// it, so the root names who is missing whatever shape the tree had, and nobody is counted twice: an answer whose set
// overlaps with what is there already is dropped. A leaf has `leg` seconds, each level above a little more, so that a
// parent tells what it has before its own parent gives up. A child that missed a round and has said nothing since is
// not waited for again.
#include <cstring>

#include "detectors/hang/overlay/internal.h"

namespace resil::hang::overlay {

namespace {

constexpr double kOrphanGrace = 0.25;  ///< in which children of a dead child come to us

bool has(const Round& round, uint32_t node) { return (round.answered[node / 8] >> (node % 8) & 1) != 0; }
void set(Round& round, uint32_t node) {
  round.answered[node / 8] = static_cast<uint8_t>(round.answered[node / 8] | 1 << (node % 8));
}

uint32_t* unanswered_list(const Overlay& o, const Round& round) {
  return reinterpret_cast<uint32_t*>(round.answer + (o.options.most_answer + 7) / 8 * 8);
}

void ask_child(Overlay& o, Round& round, uint32_t slot) {
  Connection& c = o.connections[slot];
  const double left = round.deadline - o.now;
  const double theirs = left - o.options.leg_margin > left / 2 ? left - o.options.leg_margin : left / 2;
  if (theirs <= 0) return;
  const AskFrame ask = {round.number, static_cast<uint32_t>(theirs * 1000), 0};
  const Piece pieces[] = {{&ask, sizeof(ask)}, {round.request, round.request_bytes}};
  // Before the frame is sent: if that ends the connection, the round must know that it waited.
  c.waiting = static_cast<uint8_t>(c.waiting | 1 << round.slot);
  ++round.waiting;
  const uint32_t generation = c.generation;
  if (!send_frame(o, slot, FrameType::kAsk, round.kind, pieces, 2) && c.generation == generation) {
    c.waiting = static_cast<uint8_t>(c.waiting & ~(1 << round.slot));
    --round.waiting;
  }
}

void answer_up(Overlay& o, const Round& round) {
  if (round.from >= o.high || o.connections[round.from].generation != round.from_generation) return;
  uint32_t first = 0, end = bitmap_bytes(o);
  while (end > 0 && round.answered[end - 1] == 0) --end;
  while (first < end && round.answered[first] == 0) ++first;
  const uint32_t last = end * 8 < o.count ? end * 8 : o.count;
  const AnswerFrame answer = {round.number, first * 8, end == first ? 0 : last - first * 8};
  const Piece pieces[] = {
      {&answer, sizeof(answer)}, {round.answered + first, end - first}, {round.answer, round.answer_bytes}};
  send_frame(o, round.from, FrameType::kAnswer, 0, pieces, 3);
}

void finish(Overlay& o, Round& round) {
  for (uint32_t i = 0; i < o.high; ++i) {
    Connection& c = o.connections[i];
    if ((c.waiting >> round.slot & 1) != 0) {
      c.waiting = static_cast<uint8_t>(c.waiting & ~(1 << round.slot));
      c.late = true;
    }
  }
  round.state = Round::State::kDone;
  if (round.from != kNoNode) return answer_up(o, round);
  uint32_t* list = unanswered_list(o, round);
  uint32_t missing = 0;
  for (uint32_t node = 0; node < o.count; ++node)
    if (!has(round, node)) list[missing++] = node;
  ++o.counters.rounds;
  o.counters.rounds_partial += missing > 0 ? 1 : 0;
  if (o.handler.finished == nullptr) return;
  round.state = Round::State::kReporting;  // the handler may ask the next question
  o.handler.finished(o.handler.self, round.number, round.kind, round.answer, round.answer_bytes, list, missing);
  round.state = Round::State::kDone;
}

void finish_if_complete(Overlay& o, Round& round) {
  if (round.state == Round::State::kOpen && ((round.waiting == 0 && o.now >= round.hold) || o.now >= round.deadline))
    finish(o, round);
}

bool append(uint8_t* accumulated, uint32_t* bytes, uint32_t room, const void* incoming, uint32_t incoming_bytes) {
  if (incoming_bytes > room - *bytes) return false;
  if (incoming_bytes > 0) memcpy(accumulated + *bytes, incoming, incoming_bytes);
  *bytes += incoming_bytes;
  return true;
}

/// Our own part, then the children's.
void start(Overlay& o, Round& round, const void* request, uint32_t bytes) {
  if (bytes > 0) memcpy(round.request, request, bytes);
  round.request_bytes = bytes;
  for (uint32_t i = 0; i < o.high; ++i)
    if (o.connections[i].stage == Stage::kChild && !o.connections[i].late) ask_child(o, round, i);
  // While the children are at work.
  const uint32_t own = o.handler.answer == nullptr ? 0
                                                   : o.handler.answer(o.handler.self, round.kind, round.request, bytes,
                                                                      round.answer, o.options.most_answer);
  if (own <= o.options.most_answer) {
    round.answer_bytes = own;
    set(round, o.own);
  } else {
    ++o.counters.overflows;
  }
}

}  // namespace

bool take_ask(Overlay& o, uint32_t slot, uint16_t kind, const uint8_t* data, uint32_t bytes) {
  AskFrame ask;
  if (bytes < sizeof(ask)) return false;
  memcpy(&ask, data, sizeof(ask));
  for (Round& round : o.rounds)
    if (round.number == ask.round && (round.state == Round::State::kOpen || round.state == Round::State::kDone)) {
      // Asked again by another parent, because the one that asked first is dead.
      round.from = slot, round.from_generation = o.connections[slot].generation;
      if (round.state == Round::State::kDone) answer_up(o, round);
      return true;
    }
  Round* round = open_round(o, true);
  if (round == nullptr) {
    ++o.counters.overflows;
    return true;
  }
  round->number = ask.round, round->kind = kind;
  round->from = slot, round->from_generation = o.connections[slot].generation;
  round->deadline = o.now + ask.milliseconds * 1e-3;
  start(o, *round, data + sizeof(ask), bytes - static_cast<uint32_t>(sizeof(ask)));
  finish_if_complete(o, *round);
  return true;
}

bool take_answer(Overlay& o, uint32_t slot, const uint8_t* data, uint32_t bytes) {
  AnswerFrame answer;
  if (bytes < sizeof(answer)) return false;
  memcpy(&answer, data, sizeof(answer));
  const uint64_t set_bytes = (uint64_t{answer.bits} + 7) / 8;
  if (answer.first % 8 != 0 || uint64_t{answer.first} + answer.bits > o.count || sizeof(answer) + set_bytes > bytes)
    return false;
  const uint8_t* nodes = data + sizeof(answer);
  const uint8_t* merged = nodes + set_bytes;
  const auto merged_bytes = static_cast<uint32_t>(bytes - sizeof(answer) - set_bytes);
  if (answer.bits % 8 != 0 && nodes[set_bytes - 1] >> (answer.bits % 8) != 0) return false;
  Connection& c = o.connections[slot];
  for (Round& round : o.rounds) {
    if (round.state != Round::State::kOpen || round.number != answer.round || (c.waiting >> round.slot & 1) == 0)
      continue;
    c.waiting = static_cast<uint8_t>(c.waiting & ~(1 << round.slot));
    --round.waiting;
    uint8_t* own = round.answered + answer.first / 8;
    bool doubled = false;
    for (uint64_t i = 0; i < set_bytes; ++i) doubled = doubled || (own[i] & nodes[i]) != 0;
    uint32_t together = round.answer_bytes;
    const bool room = !doubled && (o.handler.merge == nullptr
                                       ? append(round.answer, &together, o.options.most_answer, merged, merged_bytes)
                                       : o.handler.merge(o.handler.self, round.kind, round.answer, &together,
                                                         o.options.most_answer, merged, merged_bytes) &&
                                             together <= o.options.most_answer);
    if (room) {
      round.answer_bytes = together;
      for (uint64_t i = 0; i < set_bytes; ++i) own[i] = static_cast<uint8_t>(own[i] | nodes[i]);
    } else {
      ++o.counters.overflows;
    }
    finish_if_complete(o, round);
    return true;
  }
  return true;  // too late: the round has been told without it
}

void ask_newcomer(Overlay& o, uint32_t slot) {
  const uint32_t generation = o.connections[slot].generation;
  for (Round& round : o.rounds) {
    if (o.connections[slot].generation != generation) return;
    if (round.state == Round::State::kOpen && !has(round, o.connections[slot].node) &&
        (o.connections[slot].waiting >> round.slot & 1) == 0)
      ask_child(o, round, slot);
  }
}

void forget_child(Overlay& o, uint8_t waiting) {
  for (Round& round : o.rounds)
    if ((waiting >> round.slot & 1) != 0 && round.state == Round::State::kOpen && round.waiting > 0) {
      --round.waiting;
      round.hold = o.now + kOrphanGrace;
    }
}

void round_timers(Overlay& o) {
  for (Round& round : o.rounds) finish_if_complete(o, round);
}

}  // namespace resil::hang::overlay

namespace resil::hang {

using namespace overlay;

uint64_t overlay_ask(Overlay* overlay, uint16_t kind, const void* payload, uint32_t bytes, double deadline) {
  Overlay& o = *overlay;
  if (!leads(o) || bytes > o.options.most_request || deadline <= o.now) return 0;
  Round* round = open_round(o, false);
  if (round == nullptr) return 0;
  const uint32_t levels = depth_of(o, o.count - 1);
  const double timeout = o.options.leg + o.options.leg_margin * (levels > 1 ? levels - 1 : 0);
  round->number = own_series(o) | ++o.round_count;
  round->kind = kind;
  round->from = kNoNode, round->from_generation = 0;
  round->deadline = deadline < o.now + timeout ? deadline : o.now + timeout;
  round->fresh = true;
  const uint64_t number = round->number;
  start(o, *round, payload, bytes);
  if (round->waiting == 0) round->hold = o.now;  // told by the next overlay_step, not inside this call
  return number;
}

}  // namespace resil::hang
