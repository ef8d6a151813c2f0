// SPDX-License-Identifier: Apache-2.0
//
// The slots that rounds live in: their memory, which of them is used next, and when one of them is due.
#include <cstring>
#include <initializer_list>

#include "detectors/hang/overlay/internal.h"

namespace resil::hang::overlay {

namespace {

bool has_memory(Overlay& o, Round& round) {
  if (round.request != nullptr) return true;
  const uint64_t request = (o.options.most_request + 7) / 8 * 8, bitmap = (bitmap_bytes(o) + 7) / 8 * 8;
  round.request = static_cast<uint8_t*>(o.buffers.map(request + bitmap + o.options.most_answer + 8 + o.count * 4));
  if (round.request == nullptr) return false;
  round.answered = round.request + request;
  round.answer = round.answered + bitmap;
  return true;
}

}  // namespace

Round* open_round(Overlay& o, bool may_evict) {
  Round* best = nullptr;
  for (const Round::State state : {Round::State::kFree, Round::State::kDone, Round::State::kOpen}) {
    for (Round& round : o.rounds)
      if (round.state == state && (best == nullptr || round.age < best->age) && has_memory(o, round)) best = &round;
    if (best != nullptr) break;
  }
  if (best == nullptr || (best->state == Round::State::kOpen && !may_evict)) return nullptr;
  if (best->state == Round::State::kOpen) ++o.counters.overflows;
  for (uint32_t i = 0; i < o.high; ++i)
    o.connections[i].waiting = static_cast<uint8_t>(o.connections[i].waiting & ~(1 << (best - o.rounds)));
  memset(best->answered, 0, bitmap_bytes(o));
  best->slot = static_cast<uint8_t>(best - o.rounds);
  best->state = Round::State::kOpen;
  best->age = ++o.round_age;
  best->fresh = false;
  best->hold = 0, best->waiting = best->answer_bytes = best->request_bytes = 0;
  return best;
}

void rounds_begin_turn(Overlay& o, double now) {
  for (Round& round : o.rounds) {
    round.deadline += round.fresh ? now - o.now : 0;
    round.fresh = false;
  }
}

double rounds_next(const Overlay& o) {
  double next = kNever;
  for (const Round& round : o.rounds)
    if (round.state == Round::State::kOpen) {
      const double due = round.waiting == 0 ? round.hold : round.deadline;
      next = due < next ? due : next;
    }
  return next;
}

bool round_under_way(const Overlay& o) {
  for (const Round& round : o.rounds)
    if (round.state == Round::State::kOpen) return true;
  return false;
}

}  // namespace resil::hang::overlay
