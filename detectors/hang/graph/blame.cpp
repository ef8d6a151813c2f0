// SPDX-License-Identifier: Apache-2.0
//
// Whose fault, and what class. The odd ones out are blamed, never those who wait for them: in a collective the smaller
// side, around a cycle everybody in it, for a message that nearly matches its two ends.

#include "detectors/hang/graph/explain.h"
#include "shim/base/hash.h"
#include "shim/model/calls.h"

namespace resil::hang::graph {

/// The wait of this rank that belongs to the core, else any that cannot end.
Wait Explainer::reason(uint32_t rank) const {
  Wait found;
  each_reason(g_, core_, rank, [&](uint32_t thread, uint32_t part) {
    if (!found.valid()) found = {rank, thread, part};
  });
  const View& view = g_.view(rank);
  for (uint32_t t = 0; !found.valid() && t < view.thread_count; ++t)
    for (uint32_t i = view.threads[t].first_part; i < view.threads[t].first_part + view.threads[t].part_count; ++i)
      if (!found.valid() &&
          (g_.fact(rank, i) == Fact::kNever || (g_.fact(rank, i) == Fact::kHolds && g_.stuck(g_.target(rank, i)))))
        found = {rank, t, i};
  return found;
}

/// Those of the core who wait on another communicator than most of it; where two have as many of the core, than most of
/// the job. False: no communicator has more.
bool Explainer::blame_odd_communicator() {
  constexpr uint32_t kMost = 8;
  uint64_t ids[kMost];
  uint32_t in_core[kMost] = {}, in_job[kMost] = {}, count = 0, first = 0, second = kNone;
  auto index_of = [&](uint64_t id) {
    uint32_t k = 0;
    while (k < count && ids[k] != id) ++k;
    return k;
  };
  for (uint32_t rank = 0; rank < g_.ranks(); ++rank) {
    if (core_.member[rank] == 0) continue;
    const Wait wait = reason(rank);
    const uint32_t k = wait.valid() ? index_of(part_of(g_, wait).comm) : kMost;
    if (k == kMost) return false;
    if (k == count) ids[count++] = part_of(g_, wait).comm;
    ++in_core[k];
  }
  if (count < 2) return false;
  for (uint32_t rank = 0; rank < g_.ranks(); ++rank) {
    const View& view = g_.view(rank);
    const uint32_t k = view.thread_count != 0 && view.threads[0].part_count != 0
                           ? index_of(view.parts[view.threads[0].first_part].comm)
                           : count;
    if (k < count) ++in_job[k];
  }
  for (uint32_t k = 1; k < count; ++k)
    if (in_core[k] > in_core[first]) first = k;
  for (uint32_t k = 0; k < count; ++k)
    if (k != first && in_core[k] == in_core[first]) second = second == kNone ? k : count;
  if (second == count) return false;  // three that have as many
  if (second == kNone && 2 * in_core[first] <= core_.count) return false;
  if (second != kNone) {
    if (in_job[first] == in_job[second]) return false;
    first = in_job[first] > in_job[second] ? first : second;
  }
  for (uint32_t rank = 0; rank < g_.ranks(); ++rank)
    culprit_[rank] = core_.member[rank] != 0 && part_of(g_, reason(rank)).comm != ids[first];
  return true;
}

/// Ranks have entered the collective of the first wave, by its number, with different functions: those with the rarer
/// one; with two that are as many, nobody. False: they agree.
bool Explainer::blame_differing() {
  const Wave& wave = core_.waves[0];
  CallId functions[2] = {};
  uint32_t entered[2] = {}, count = 0;
  auto each = [&](auto with) {
    for (uint32_t rank = 0; rank < g_.ranks(); ++rank) {
      const View& view = g_.view(rank);
      for (uint32_t t = 0; t < view.thread_count; ++t)
        for (uint32_t i = view.threads[t].first_part; i < view.threads[t].first_part + view.threads[t].part_count; ++i)
          if (const Part& p = view.parts[i]; p.kind == PartKind::kCollective && p.comm == wave.comm->id &&
                                             p.sequence == wave.sequence && p.call < kCallCount)
            with(rank, call_info(static_cast<CallId>(p.call)).plain);
    }
  };
  each([&](uint32_t, CallId function) {
    uint32_t k = 0;
    while (k < count && functions[k] != function) ++k;
    if (k == 2) return;
    if (k == count) functions[count++] = function;
    ++entered[k];
  });
  if (count < 2) return false;
  if (entered[0] == entered[1]) return true;
  const CallId rare = functions[entered[0] < entered[1] ? 0 : 1];
  each([&](uint32_t rank, CallId function) {
    if (function == rare) culprit_[rank] = 1;
  });
  return true;
}

/// Those of the core who have not come, unless they are more than those who have: then the few are too early. False:
/// of two members that wait for each other nothing tells which one took the wrong path.
bool Explainer::blame_wave() {
  const Wave& wave = core_.waves[0];
  const uint32_t late = g_.late(*wave.comm, wave.sequence);
  uint32_t missing = 0;
  for (uint32_t i = 0; i < late; ++i) missing += is_in_core(core_, g_.in_order(*wave.comm, i)) ? 1 : 0;
  if (core_.kind == CoreKind::kCycle && wave.comm->count == 2) return false;
  if (missing <= wave.waiting) {
    for (uint32_t i = 0; i < late; ++i)
      if (const Member& m = g_.in_order(*wave.comm, i); is_in_core(core_, m)) culprit_[m.rank] = 1;
    return true;
  }
  for (uint32_t rank = 0; rank < g_.ranks(); ++rank)
    if (g_.deadlocked(rank))
      each_reason(g_, core_, rank, [&](uint32_t, uint32_t part) {
        const Part& p = g_.view(rank).parts[part];
        if (p.kind == PartKind::kCollective && p.comm == wave.comm->id && p.sequence == wave.sequence)
          culprit_[rank] = 1;
      });
  return true;
}

bool Explainer::blame() {
  culprit_ = g_.arena().allocate<uint8_t>(g_.ranks());
  victim_ = g_.arena().allocate<uint8_t>(g_.ranks());
  scratch_ = g_.arena().allocate<uint8_t>(g_.ranks());
  if (g_.arena().failed()) return false;
  auto blame_core = [&] {
    for (uint32_t rank = 0; rank < g_.ranks(); ++rank) culprit_[rank] = core_.member[rank];
  };
  switch (core_.kind) {
    case CoreKind::kGone:
      v_.type = HangClass::kRankGone;
      blame_core();
      in_wave_ = core_.wave_count > 0;
      break;
    case CoreKind::kEnded:
    case CoreKind::kLeft:
      v_.type = HangClass::kMissingRank;
      in_wave_ = core_.wave_count > 0;
      if (in_wave_) blame_wave();
      else blame_core();
      break;
    case CoreKind::kCycle:
      in_wave_ = core_.wave_count > 0;
      if (in_wave_ && blame_differing()) {
        v_.type = HangClass::kCollectiveMismatch;
        break;
      }
      if (in_wave_ && blame_odd_communicator()) break;
      if (core_.wave_count != 1 || !blame_wave()) blame_core();
      if (core_.wave_count > 1 && 2 * core_.waves[0].waiting > core_.count) {  // most are in one: the others are odd
        const Wave& wave = core_.waves[0];
        for (uint32_t rank = 0; rank < g_.ranks(); ++rank)
          if (core_.member[rank] != 0)
            each_reason(g_, core_, rank, [&](uint32_t, uint32_t part) {
              const Part& p = g_.view(rank).parts[part];
              if (p.kind == PartKind::kCollective && p.comm == wave.comm->id && p.sequence == wave.sequence)
                culprit_[rank] = 0;
            });
      }
      if (core_.count == 1 && core_.wave_count == 0 && core_.message.valid() &&
          part_of(g_, core_.message).kind <= PartKind::kSend)
        v_.type = HangClass::kUnmatchedMessage;
      break;
    default: blame_core();
  }
  near_misses();
  for (uint32_t rank = 0; rank < g_.ranks(); ++rank)
    victim_[rank] = culprit_[rank] == 0 && (g_.deadlocked(rank) || g_.status(rank) == RankStatus::kFinalizing) ? 1 : 0;
  return true;
}

/// Is the near miss what closes a circle whose other members wait for something else, as in sums that a library makes
/// of messages? The receive is of the first message of its kind, from a rank of the circle that has sent this rank
/// others which nobody has taken; no member waits for the like, or has a near miss of its own.
bool Explainer::alone_in_cycle() {
  const Part& missed = part_of(g_, near_.receive);
  if (missed.needed != 1 || core_.member[near_.sender] == 0) return false;
  bool alone = true;
  for (uint32_t rank = 0; rank < g_.ranks() && alone; ++rank) {
    if (core_.member[rank] == 0 || rank == near_.receive.rank) continue;
    each_reason(g_, core_, rank, [&](uint32_t thread, uint32_t part) {
      const Part& p = g_.view(rank).parts[part];
      if (p.comm == missed.comm && p.tag == missed.tag) alone = false;
      else if (alone && p.kind <= PartKind::kProbe) alone = near_miss({rank, thread, part}).kind == NearMiss::kNothing;
    });
  }
  return alone;
}

/// Looks for what may have been meant by each receive of the core (the first few), and takes the first that is found.
void Explainer::near_misses() {
  constexpr uint32_t kReceives = 8;
  const bool ended = of_ended(core_.kind);
  uint32_t messages = 0, looked = 0;
  for (uint32_t rank = 0; rank < g_.ranks(); ++rank) {
    if (!g_.deadlocked(rank) || (!ended && core_.member[rank] == 0)) continue;
    each_reason(g_, core_, rank, [&](uint32_t thread, uint32_t part) {
      const PartKind kind = g_.view(rank).parts[part].kind;
      if (kind <= PartKind::kSend) ++messages;
      if (kind <= PartKind::kProbe && near_.kind == NearMiss::kNothing && looked++ < kReceives)
        near_ = near_miss({rank, thread, part});
    });
  }
  if ((core_.kind == CoreKind::kEnded || core_.kind == CoreKind::kLeft) && !in_wave_ && messages == 1)
    v_.type = HangClass::kUnmatchedMessage;
  if (core_.kind == CoreKind::kGone || (near_.kind != NearMiss::kOtherTag && near_.kind != NearMiss::kOtherComm))
    return;
  const bool large_cycle = core_.kind == CoreKind::kCycle && !in_wave_ && core_.count > 2;
  if (large_cycle && !near_.send.valid() && !alone_in_cycle()) return;  // messages that lie about are usual: a hint
  v_.type = HangClass::kUnmatchedMessage;
  if (large_cycle && near_.send.valid()) return;  // all of them did the same
  for (uint32_t rank = 0; rank < g_.ranks(); ++rank)
    culprit_[rank] = rank == near_.sender || rank == near_.receive.rank ? 1 : 0;
}

NearMiss Explainer::near_miss(const Wait& receive) {
  const Part& wanted = part_of(g_, receive);
  NearMiss best;
  best.receive = receive;
  auto better = [&](NearMiss::Kind kind, uint32_t sender, const Wait& send, uint64_t count) {
    if (best.kind != NearMiss::kNothing && best.kind <= kind) return;
    best.kind = kind;
    best.sender = sender;
    best.send = send;
    best.count = count;
  };
  const int32_t me = static_cast<int32_t>(receive.rank);
  const bool any_tag = wanted.tag == ring::kAnyTag, any_source = wanted.peer == ring::kAnySource;
  for (uint32_t rank = 0; rank < g_.ranks(); ++rank) {
    const View& view = g_.view(rank);
    for (uint32_t t = 0; t < view.thread_count; ++t)
      for (uint32_t i = view.threads[t].first_part; i < view.threads[t].first_part + view.threads[t].part_count; ++i) {
        const Part& send = view.parts[i];
        if (send.kind != PartKind::kSend || g_.fact(rank, i) == Fact::kDone) continue;
        const bool from = any_source || static_cast<int32_t>(rank) == wanted.peer, to = send.peer == me;
        const bool tag = any_tag || send.tag == wanted.tag, comm = send.comm == wanted.comm;
        const Wait at = {rank, t, i};
        if (from && to && comm && !tag) better(NearMiss::kOtherTag, rank, at, 0);
        else if (from && to && tag && !comm) better(NearMiss::kOtherComm, rank, at, 0);
        else if (from && !any_source && comm && tag && !to) better(NearMiss::kOtherDestination, rank, at, 0);
        else if (!from && to && comm && tag) better(NearMiss::kOtherSource, rank, at, 0);
      }
  }
  if (any_source || any_tag || wanted.peer < 0) return best;
  auto excess = [&](uint64_t comm, int32_t tag) -> uint64_t {
    const Tally* t = g_.tallies().find(comm, wanted.peer, me, tag);
    return t != nullptr && t->sources == 1 && t->has_destination() && t->told() <= t->sent ? t->sent - t->told() : 0;
  };
  const uint64_t own = excess(wanted.comm, wanted.tag), all = excess(wanted.comm, ring::kAnyTag),
                 anywhere = excess(0, wanted.tag);
  const uint32_t peer = static_cast<uint32_t>(wanted.peer);
  if (all > own) better(NearMiss::kOtherTag, peer, {}, all - own);
  if (anywhere > own) better(NearMiss::kOtherComm, peer, {}, anywhere - own);
  return best;
}

uint64_t Explainer::signature() const {
  uint64_t hash = hash_combine(static_cast<uint64_t>(v_.type), v_.comm);
  hash = hash_combine(hash, v_.sequence);
  for (uint32_t rank = 0; rank < g_.ranks(); ++rank) {
    if (core_.member[rank] == 0) continue;
    hash = hash_combine(hash, rank);
    // Those who have freed it may go on elsewhere.
    for (uint32_t t = core_.kind == CoreKind::kLeft ? g_.view(rank).thread_count : 0; t < g_.view(rank).thread_count;
         ++t)
      hash = hash_combine(hash, g_.view(rank).threads[t].instance);
  }
  return hash;
}

}  // namespace resil::hang::graph
