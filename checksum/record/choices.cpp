// SPDX-License-Identifier: Apache-2.0
//
// See choices.h. Items travel by a PartStream.

#include "checksum/record/choices.h"

#include <cstddef>
#include <cstring>

#include "shim/base/hash.h"
#include "shim/call/parts.h"
#include "shim/call/runtime.h"
#include "shim/config/config.h"
#include "shim/runtime/memory.h"
#include "shim/runtime/part_stream.h"
#include "shim/runtime/progress.h"

namespace resil::record {

namespace {

enum class Kind : uint8_t { kCall, kPolls, kMatch, kCut };
/// Followed by an Outcome and `count` indices, by nothing, by a Match, or by how many choices count (kCut).
struct Head {
  uint64_t call;  ///< of a match or cut: the receive's number
  uint32_t count;  ///< indices, or polls
  Kind kind;
  bool listed, failed;
};

bool open;
uint64_t timeout;  // ticks
constinit PartStream stream = {};

// The leader's.
uint64_t last_flush;
uint64_t poll;  // the call that has found nothing
uint32_t polls;  // and how often that is to be told

// A follower's.
Choice* queue;
uint32_t head, tail, queue_room;
int32_t* indices;
uint32_t index_count, index_room;
struct Matched {
  uint64_t ordinal;  ///< 0: a free place
  Match match;
};
Matched* matched;
uint32_t matched_count, matched_room;  // a power of two
uint64_t taken;  // choices so far
uint32_t void_polls;

// --- The leader ----------------------------------------------------------------------------------------------------

/// An item of that size goes in: sends what is full.
bool begin_item(Thread& thread, size_t size) {
  if (!open) return false;
  if (!stream.make_room(thread, size, 4 * timeout)) {  // one that is stuck is dropped before
    open = false;  // a partner is stuck: it learns at the end that nothing follows
    choices_follow = false;
    parts_may_differ("choices of MPI's that the leading part could not hand over");
    return false;
  }
  return true;
}

void put_polls() {
  if (polls == 0) return;
  const Head item = {poll, polls, Kind::kPolls, false, false};
  polls = 0;
  stream.put(&item, sizeof(item));
}

// --- A follower ----------------------------------------------------------------------------------------------------

bool grow_matched() {
  if (matched_count * 2 < matched_room) return true;
  const uint32_t room = matched_room != 0 ? matched_room * 2 : 4096;
  auto* larger = memory::map_array<Matched>(room);
  if (larger == nullptr) return false;
  for (uint32_t i = 0; i < matched_room; ++i) {
    if (matched[i].ordinal == 0) continue;
    uint32_t at = static_cast<uint32_t>(mix64(matched[i].ordinal)) & (room - 1);
    while (larger[at].ordinal != 0) at = (at + 1) & (room - 1);
    larger[at] = matched[i];
  }
  memory::unmap_array(matched, matched_room);
  matched = larger;
  matched_room = room;
  return true;
}

bool take_match(uint64_t ordinal, Match* match) {
  if (matched_count == 0) return false;
  const uint32_t mask = matched_room - 1;
  uint32_t hole = static_cast<uint32_t>(mix64(ordinal)) & mask;
  while (matched[hole].ordinal != ordinal)
    if (matched[hole].ordinal == 0) return false;
    else hole = (hole + 1) & mask;
  *match = matched[hole].match;
  --matched_count;
  for (uint32_t at = (hole + 1) & mask; matched[at].ordinal != 0; at = (at + 1) & mask) {
    const uint32_t wanted = static_cast<uint32_t>(mix64(matched[at].ordinal)) & mask;
    if (((at - wanted) & mask) < ((at - hole) & mask)) continue;
    matched[hole] = matched[at];
    hole = at;
  }
  matched[hole].ordinal = 0;
  return true;
}

/// Forgets what the part that led before has said of later receives.
void forget_matches(uint64_t from) {
  for (uint32_t i = 0; i < matched_room; ++i) {
    const uint64_t ordinal = matched[i].ordinal;
    Match match;
    if (ordinal < from || ordinal == 0) continue;
    take_match(ordinal, &match);
    --i;  // another one may have moved here
  }
}

/// Another rank has come to lead with that many choices taken, and `polls` of the last one left.
void cut(uint64_t ordinal, uint64_t choices, uint32_t polls) {
  forget_matches(ordinal);
  const uint64_t left = choices > taken ? choices - taken : 0;
  if (left < tail - head) tail = head + static_cast<uint32_t>(left);
  if (polls == 0) return;
  if (left == 0) void_polls = polls;  // of the one that is being carried out
  else if (tail != head && queue[tail - 1].polls >= polls) queue[tail - 1].polls -= polls;
  if (left != 0 && tail != head && queue[tail - 1].polls == 0) --tail;
}

/// One item from there. 0: it is not whole yet.
size_t read_item(const unsigned char* at, size_t left) {
  Head item;
  if (left < sizeof(item)) return 0;
  memcpy(&item, at, sizeof(item));
  const size_t list = item.kind == Kind::kCall ? item.count * sizeof(int32_t) : 0;
  const size_t size = sizeof(item) + list +
                      (item.kind == Kind::kCall    ? sizeof(Outcome)
                       : item.kind == Kind::kMatch ? sizeof(Match)
                       : item.kind == Kind::kCut   ? sizeof(uint64_t)
                                                   : 0);
  if (left < size) return 0;
  at += sizeof(item);
  if (item.kind == Kind::kCut) {
    uint64_t choices;
    memcpy(&choices, at, sizeof(choices));
    cut(item.call, choices, item.count);
    return size;
  }
  if (item.kind == Kind::kMatch) {
    if (!grow_matched()) return stream.stop(), size;
    uint32_t place = static_cast<uint32_t>(mix64(item.call)) & (matched_room - 1);
    while (matched[place].ordinal != 0) place = (place + 1) & (matched_room - 1);
    matched[place].ordinal = item.call;
    memcpy(&matched[place].match, at, sizeof(Match));
    ++matched_count;
    return size;
  }
  if (head == tail) head = tail = index_count = 0;
  if (!memory::grow_array(&queue, &queue_room, tail + 1, 1024u)) return stream.stop(), size;
  Choice& choice = queue[tail++];
  choice = {item.call, {}, 0, index_count, 0, item.listed, item.failed};
  if (item.kind == Kind::kPolls) {
    choice.polls = item.count;
    return size;
  }
  memcpy(&choice.outcome, at, sizeof(Outcome));
  if (item.count == 0) return size;
  if (!memory::grow_array(&indices, &index_room, index_count + item.count, 1024u)) return stream.stop(), size;
  memcpy(indices + index_count, at + sizeof(Outcome), list);
  choice.indices = item.count;
  index_count += item.count;
  return size;
}

void take_what_came() { stream.take(read_item); }

/// Repeats `known()` while more may come.
template <class Known>
bool wait_for_leader(Thread& thread, Known known) {
  if (known()) return true;
  const uint64_t limit = ticks() + timeout;
  bool found = false;
  wait_until(
      thread,
      [&] {
        take_what_came();
        parts_waiting();
        stream.look();
        found = known();
        return found || stream.leads() || stream.has_ended() || (ticks() > limit && !parts_hopeful());
      },
      kForOthers);
  return found;
}

}  // namespace

bool choices_begin() {
  timeout = static_cast<uint64_t>(config_real("RESIL_REPLICAS_SECONDS") * runtime.header->ticks_per_second);
  return open = stream.begin(tags::kChoices[0], "choices");
}

void choices_send(Thread& thread, uint64_t call, const Outcome& outcome, bool failed, const int32_t* list,
                  int64_t count) {
  const auto many = static_cast<uint32_t>(count > 0 ? count : 0);
  if (!begin_item(thread, 2 * sizeof(Head) + sizeof(Outcome) + many * sizeof(int32_t))) return;
  put_polls();
  const Head item = {call, many, Kind::kCall, count >= 0, failed};
  stream.put(&item, sizeof(item));
  stream.put(&outcome, sizeof(outcome));
  if (many != 0) stream.put(list, many * sizeof(int32_t));
}

void choices_send_poll(Thread& thread, uint64_t call) {
  if ((poll != call || polls == UINT32_MAX) && polls != 0) {
    if (!begin_item(thread, sizeof(Head))) return;
    put_polls();
  }
  poll = call;
  ++polls;
}

void choices_send_match(Thread& thread, uint64_t ordinal, const Match& match) {
  if (!begin_item(thread, sizeof(Head) + sizeof(match))) return;
  const Head item = {ordinal, 0, Kind::kMatch, false, false};
  stream.put(&item, sizeof(item));
  stream.put(&match, sizeof(match));
}

void choices_flush(bool in_poll) {
  if (!open || (polls == 0 && stream.is_empty())) return;
  const uint64_t now = ticks();
  if (now - last_flush < runtime.header->ticks_per_second / (in_poll ? 5000 : 50000)) return;
  last_flush = now;
  if (stream.has_room(sizeof(Head))) put_polls();
  stream.send();
}

const Choice* choices_next(Thread& thread) {
  return wait_for_leader(thread, [] { return head != tail; }) ? &queue[head] : nullptr;
}

const int32_t* choices_indices(const Choice& choice) { return indices + choice.first; }

void choices_taken() {
  ++head;
  ++taken;
}

bool choices_are_own() { return stream.leads(); }

bool choices_lead_changed() { return open && stream.has_to_look(); }

void choices_cut(Thread& thread, uint64_t ordinal, uint32_t polls_left) {
  forget_matches(1);
  head = tail = index_count = 0;
  if (!begin_item(thread, sizeof(Head) + sizeof(taken))) return;
  const Head item = {ordinal, polls_left, Kind::kCut, false, false};
  stream.put(&item, sizeof(item));
  stream.put(&taken, sizeof(taken));
}

uint32_t choices_void_polls() {
  const uint32_t polls_void = void_polls;
  void_polls = 0;
  return polls_void;
}

bool choices_match(Thread& thread, uint64_t ordinal, Match* match) {
  return wait_for_leader(thread, [&] { return take_match(ordinal, match); });
}

void choices_progress() {
  if (!stream.leads()) {
    take_what_came();
    stream.look();
  }
  if (stream.leads()) choices_flush(true);
}

void choices_end(Thread& thread) {
  uint64_t limit = UINT64_MAX;
  if (!stream.leads())
    wait_until(
        thread,
        [&] {
          take_what_came();
          parts_waiting();
          stream.look();
          if (part_that_leads() != 0 && limit == UINT64_MAX) limit = ticks() + 4 * timeout;
          return stream.leads() || stream.has_ended() || ticks() > limit;
        },
        kForOthers);
  if (stream.leads()) {
    if (polls != 0 && stream.make_room(thread, sizeof(Head), timeout)) put_polls();
    stream.end(thread);
    open = false;
  }
  stream.close();
}

}  // namespace resil::record
