// SPDX-License-Identifier: Apache-2.0
//
// resil_spr_select(): which particles have replicas, and their lists to the next rank. Every member takes part,
// whatever is wrong with its own particles: the others count on its messages.

#include <cstring>
#include <new>

#include "detectors/spr/messages.h"
#include "detectors/spr/set.h"
#include "shim/base/clock.h"
#include "shim/call/attach.h"
#include "shim/call/inside_mpi.h"
#include "shim/call/runtime.h"
#include "shim/report/log.h"

namespace resil::spr {

namespace text = messages::spr;

namespace {

constexpr int64_t kSymmetryLooks = 16;  // particles whose pairs are looked at, in each selection others
constexpr int kMostRounds = 10000;

void say_problem(const Set& set, const ListProblem& problem) {
  using Kind = ListProblem::Kind;
  add_note_format(text::bad_lists, set.name, problem.particle,
                  problem.kind == Kind::kCounts   ? text::bad_counts
                  : problem.kind == Kind::kOffset ? text::bad_offset
                                                  : text::bad_neighbour,
                  problem.value);
}

/// The program's ids as 64 bits each, of all particles; null: it has declared none.
bool take_ids(Set& set, const Lists& lists, const int64_t** ids) {
  *ids = nullptr;
  if (set.id_field < 0) return true;
  const Field& field = set.fields[set.id_field];
  if (field.data == nullptr || !set.ids.reserve(static_cast<size_t>(lists.total))) return false;
  for (int64_t i = 0; i < lists.total; ++i) set.ids[static_cast<size_t>(i)] = id_of(field, i);
  *ids = set.ids.data();
  return true;
}

/// Everybody's rounds are as many as the slowest of its partners'.
Waited exchange_words(Thread& thread, Set& set, Hashed& hashed) {
  Buffer<int> named;
  int count = 0;
  const uint32_t own = hashed.partners();
  Buffer<int> mine;
  if (!mine.reserve(own)) return Waited::kFailed;
  for (uint32_t i = 0; i < own; ++i) mine[i] = hashed.partner(i).rank;
  Waited waited = who_named_me(thread, set.members.data(), set.size, set.position, mine.data(), static_cast<int>(own),
                               named, &count, tag_of(set, TagOf::kAgree), timeout_of(set));
  if (waited != Waited::kDone) return waited;
  for (int i = 0; i < count; ++i)
    if (!hashed.add_partner(named[static_cast<size_t>(i)])) return Waited::kFailed;
  Parcel parcel = {};
  for (int round = 0; round < kMostRounds; ++round) {
    if (!hashed.decide()) return Waited::kFailed;
    bool open = false;  // what was decided last has still to go out, whoever has finished
    for (uint32_t i = 0; i < hashed.partners(); ++i) open = open || !hashed.partner(i).closed;
    if (!open) return Waited::kDone;
    // All that goes out is on its way before this rank waits for anybody: no order of partners can close a ring.
    Messages heads, bodies;
    for (uint32_t i = 0; i < hashed.partners(); ++i) {
      Hashed::Partner& partner = hashed.partner(i);
      if (partner.closed) continue;
      partner.size = partner.words;
      heads.send(&partner.size, sizeof(partner.size), partner.rank, tag_of(set, TagOf::kSelect));
      heads.receive(&partner.coming, sizeof(partner.coming), partner.rank, tag_of(set, TagOf::kSelect));
    }
    if ((waited = wait(thread, heads, timeout_of(set))) != Waited::kDone) return waited;
    for (uint32_t i = 0; i < hashed.partners(); ++i) {
      Hashed::Partner& partner = hashed.partner(i);
      if (partner.closed) continue;
      if (!partner.received.reserve(partner.coming)) return Waited::kFailed;
      if (partner.size != 0)
        bodies.send(partner.out.data(), partner.size * sizeof(Word), partner.rank, tag_of(set, TagOf::kWords));
      if (partner.coming != 0)
        bodies.receive(partner.received.data(), partner.coming * sizeof(Word), partner.rank,
                       tag_of(set, TagOf::kWords));
    }
    if ((waited = wait(thread, bodies, timeout_of(set))) != Waited::kDone) return waited;
    for (uint32_t i = 0; i < hashed.partners(); ++i)  // all, before what one has said makes words for the others
      if (!hashed.partner(i).closed) hashed.partner(i).words = 0;
    for (uint32_t i = 0; i < hashed.partners(); ++i) {
      Hashed::Partner& partner = hashed.partner(i);
      if (partner.closed) continue;
      hashed.take(partner, partner.received.data(), partner.coming);
      partner.closed = partner.we_finished && partner.they_finished;
    }
  }
  return Waited::kFailed;
}

/// What `hashed` needs is there on all ranks, or the ranks select alone: they agree on it.
Why select_hashed(Thread& thread, Set& set, const Lists& lists, const int64_t* ids, const int* owner, int64_t* count,
                  bool* alone) {
  if (set.hashed == nullptr) {
    set.hashed = memory::map_array<Hashed>();
    if (set.hashed != nullptr) new (set.hashed) Hashed();
  }
  int64_t twice = -1;
  const bool known = lists.total == 0 || (ids != nullptr && (owner != nullptr || lists.total == lists.local));
  int64_t cannot = set.hashed == nullptr || !known || !set.hashed->begin(lists, ids, owner, runtime.rank, &twice);
  if (twice >= 0) add_note_format(text::twice, set.name, twice);
  Waited waited = sum_over(thread, set.members.data(), set.size, set.position, &cannot, tag_of(set, TagOf::kAgree),
                           timeout_of(set));
  *alone = waited == Waited::kDone && cannot != 0;
  if (waited == Waited::kDone && cannot == 0) waited = exchange_words(thread, set, *set.hashed);
  if (waited != Waited::kDone) return waited == Waited::kTimeout ? Why::kSilent : Why::kDead;
  if (*alone) return Why::kNone;
  return set.hashed->collect(set.selected, count) ? Why::kNone : Why::kMemory;
}

Why choose(Thread& thread, Set& set, const Lists& lists, const int64_t* ids, const int* owner, int64_t* count) {
  bool alone = settings.method != Method::kHashed;
  if (!alone) {
    const Why why = select_hashed(thread, set, lists, ids, owner, count, &alone);
    if (why != Why::kNone || !alone) return why;
    add_note_format(text::hashed_alone, set.name);
  }
  const bool done = settings.method == Method::kGreedy ? select_greedy(lists, set.scratch, set.selected, count)
                                                       : select_cover(lists, set.scratch, set.selected, count);
  return done ? Why::kNone : Why::kMemory;
}

bool room_for(Packed& packed, const Head& head) {
  if (head.replicas < 0 || head.particles < head.replicas || head.entries < 0) return false;
  packed.replicas = head.replicas;
  packed.particles = head.particles;
  packed.entries = head.entries;
  return packed.offset.reserve(static_cast<size_t>(head.replicas) + 1) &&
         packed.neighbour.reserve(static_cast<size_t>(head.entries)) &&
         packed.id.reserve(static_cast<size_t>(head.particles));
}

/// The lists go to the next rank, and those of the rank before come, where both ends can.
Why hand_on(Thread& thread, Set& set, Why own) {
  Head out = make_head(set, own), in = {}, answer = {};
  Waited waited = swap_heads(thread, set, out, set.next, &in, set.previous);
  if (waited != Waited::kDone) return of_waited(waited);
  Why here = in.why != Why::kNone ? Why::kPartner : Why::kNone;
  if (in.magic != out.magic || in.set != out.set || in.epoch != out.epoch) here = Why::kFields;
  if (here == Why::kNone && !room_for(set.theirs, in)) here = Why::kMemory;
  waited = swap_heads(thread, set, make_head(set, here), set.previous, &answer, set.next);
  if (waited != Waited::kDone) return of_waited(waited);
  Messages messages;
  if (here == Why::kNone) {
    messages.receive(set.theirs.offset.data(), (static_cast<size_t>(in.replicas) + 1) * sizeof(int), set.previous,
                     tag_of(set, TagOf::kSelect));
    messages.receive(set.theirs.neighbour.data(), static_cast<size_t>(in.entries) * sizeof(int), set.previous,
                     tag_of(set, TagOf::kSelect));
    messages.receive(set.theirs.id.data(), static_cast<size_t>(in.particles) * sizeof(int64_t), set.previous,
                     tag_of(set, TagOf::kSelect));
  }
  if (own == Why::kNone && answer.why == Why::kNone) {
    messages.send(set.own.offset.data(), (static_cast<size_t>(set.own.replicas) + 1) * sizeof(int), set.next,
                  tag_of(set, TagOf::kSelect));
    messages.send(set.own.neighbour.data(), static_cast<size_t>(set.own.entries) * sizeof(int), set.next,
                  tag_of(set, TagOf::kSelect));
    messages.send(set.own.id.data(), static_cast<size_t>(set.own.particles) * sizeof(int64_t), set.next,
                  tag_of(set, TagOf::kSelect));
  }
  waited = wait(thread, messages, timeout_of(set));
  if (waited != Waited::kDone) {
    set.own.offset.abandon();
    set.own.neighbour.abandon();
    set.own.id.abandon();
    set.theirs.offset.abandon();
    set.theirs.neighbour.abandon();
    set.theirs.id.abandon();
    set.theirs.particles = set.theirs.replicas = 0;
    return of_waited(waited);
  }
  set.in = here == Why::kNone && packed_is_sound(set.theirs);
  set.out = own == Why::kNone && answer.why == Why::kNone;
  if (!set.in) set.theirs.particles = set.theirs.replicas = 0;
  if (here != Why::kNone) uncovered(set, here);
  if (own == Why::kNone && answer.why != Why::kNone)
    uncovered(set, answer.why == Why::kFields ? answer.why : Why::kPartner);
  return Why::kNone;
}

void look_at_pairs(Set& set, const Lists& lists, int64_t count) {
  if (set.counters.one_sided != 0 || count == 0) return;
  const Symmetry seen = look_at_symmetry(lists, set.selected.data(), count,
                                         static_cast<int64_t>(set.epoch) * kSymmetryLooks % count, kSymmetryLooks);
  set.counters.one_sided += static_cast<uint64_t>(seen.one_sided);
  if (seen.one_sided == 0) return;
  const auto id = [&](int64_t index) { return set.id_field >= 0 ? set.ids[static_cast<size_t>(index)] : index; };
  add_note_format(text::one_sided, set.name, id(seen.second), id(seen.first), seen.one_sided, seen.pairs);
}

}  // namespace

Waited swap_heads(Thread& thread, const Set& set, const Head& out, int to, Head* in, int from) {
  Messages messages;
  messages.receive(in, sizeof(*in), from, tag_of(set, TagOf::kSelect));
  messages.send(&out, sizeof(out), to, tag_of(set, TagOf::kSelect));
  const Waited waited = wait(thread, messages, timeout_of(set));
  if (waited != Waited::kDone) messages.cancel();
  return waited;
}

Why of_waited(Waited waited) {
  return waited == Waited::kDone ? Why::kNone : waited == Waited::kTimeout ? Why::kSilent : Why::kDead;
}

int set_select(Thread& thread, Set& set, const Lists& given, const int* owner) {
  if (set.broken != Why::kNone) {
    uncovered(set, set.broken);
    return 0;
  }
  const uint64_t begin = monotonic_ns();
  InsideMpi inside(thread);
  ++set.epoch;
  set.phase = 0;
  ++set.counters.selections;
  set.out = set.in = false;
  for (uint32_t i = 0; i < set.field_count; ++i) set.fields[i].sent = false;
  Lists lists = given;
  const int64_t* ids = nullptr;
  Why own = Why::kNone;
  if (set.open) own = Why::kOrder;
  if (own == Why::kNone) {
    const ListProblem problem = check_lists(lists);
    if (problem.kind != ListProblem::Kind::kNone) {
      say_problem(set, problem);
      own = Why::kLists;
    } else if (!take_ids(set, lists, &ids)) {
      own = Why::kMemory;
    }
  }
  if (own != Why::kNone) lists = {};
  set.local = lists.local;
  set.total = lists.total;
  int64_t count = 0;
  const Why chosen = choose(thread, set, lists, ids, owner, &count);
  if (chosen == Why::kSilent || chosen == Why::kDead) {
    break_set(set, chosen);
    uncovered(set, chosen);
    if (chosen == Why::kSilent) add_note_format(text::gave_up, set.name, set.previous, settings.timeout);
    return 0;
  }
  if (own == Why::kNone) own = chosen;
  if (own == Why::kNone && !pack_lists(lists, set.selected.data(), count, ids, set.own)) own = Why::kMemory;
  if (own != Why::kNone) {
    set.own.replicas = set.own.particles = 0;
    set.own.entries = 0;
    uncovered(set, own);
  } else {
    look_at_pairs(set, lists, count);
  }
  const Why handed = hand_on(thread, set, own);
  if (handed != Why::kNone) {
    break_set(set, handed);
    uncovered(set, handed);
    if (handed == Why::kSilent) add_note_format(text::gave_up, set.name, set.next, settings.timeout);
    return 0;
  }
  set.counters.replicas = static_cast<uint64_t>(set.own.replicas);
  set.counters.particles = static_cast<uint64_t>(set.local);
  set.counters.select_ns += monotonic_ns() - begin;
  return set.out ? set.own.replicas : 0;
}

}  // namespace resil::spr
