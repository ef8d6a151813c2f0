// SPDX-License-Identifier: Apache-2.0
//
// What is known of each part of each wait. Everything that makes a proof a proof is here: a part holds only when the
// counters of both sides, read while both were inside the same calls as before and after, leave no other way by the
// rules of MPI's matching; whatever is doubtful is open.
//
// Who spoils what (IrregularFlag), with the reason:
//   receive from S at D   D cancelled (its ordinals count receives that took nothing), D or S had a failing call or
//   lost
//                         an envelope. A cancelled send or an unread wildcard only makes too many seem sent: harmless.
//   ... from anybody      likewise, with all members as S; and D knows another world: unseen ranks may send.
//   send from S to D      S cancelled (its ordinals), either had a failing call or lost an envelope, or D has wildcards
//                         that nobody could read (then it has taken more than is counted).
//   "was sent", "was posted" (kDone) also: cancelled messages or receives on the other side, wildcards of D not read.
//   collectives           any member had one that failed: its numbers may be off.
//   tokens and locks      either had a call over a window that failed or was not counted.
// Partitioned messages match among themselves; their parts are kOther.

#include "detectors/hang/graph/model.h"
#include "shim/base/sort.h"

namespace resil::hang::graph {

class Judge {
 public:
  explicit Judge(Graph& graph) : g_(graph) {}

  struct Result {
    Fact fact = Fact::kOpen;
    uint32_t target = kNone;
  };

  Result part(uint32_t me, const Part& part) {
    if ((part.flags & kMayBuffer) != 0 && !g_.may_buffer()) return {};
    switch (part.kind) {
      case PartKind::kSink: return {Fact::kNever, kNone};
      case PartKind::kReceive:
      case PartKind::kProbe:
      case PartKind::kSend:
      case PartKind::kCollective:
      case PartKind::kToken:
      case PartKind::kLock: break;
      default: return {};
    }
    Comm* c = const_cast<Comm*>(g_.comm(part.comm));
    const Member* myself = c != nullptr && !c->broken ? g_.member(*c, me) : nullptr;
    if (myself == nullptr) return {};
    if (part.kind == PartKind::kCollective)
      return part.sequence != 0 && myself->sequence >= part.sequence ? collective(me, part, *c) : Result{};
    if (part.kind == PartKind::kLock) return lock(me, part);
    if (myself->uncounted) return {};
    if (part.peer == ring::kAnySource && part.kind != PartKind::kSend) return from_anybody(me, part, *c);
    // The peer must list the communicator under this id: intercommunicators may have one on each side.
    if (part.peer < 0 || static_cast<uint32_t>(part.peer) >= g_.ranks()) return {};
    const Member* peer = g_.member(*c, static_cast<uint32_t>(part.peer));
    if (peer == nullptr || peer->uncounted) return {};
    Result result = part.kind == PartKind::kToken  ? token(me, part)
                    : part.kind == PartKind::kSend ? to_peer(me, part)
                                                   : from_peer(me, part);
    if (result.fact == Fact::kHolds) result.target = g_.actor(*peer);
    return result;
  }

 private:
  static constexpr uint32_t kSpoilt = kFailedCall | kLostEnvelope;

  bool exact(const Part& part) const { return part.tag != ring::kAnyTag && part.tag != kOtherTags; }
  const Tally* tally(const Part& part, int32_t source, int32_t destination, int32_t tag) const {
    return g_.tallies().find(part.comm, source, destination, tag);
  }

  enum class Flight { kUnknown, kNothing, kSomething };

  /// Whether anything sent has not been told to its destination. `sources`: ranks that must have answered.
  static Flight flight(const Tally* t, uint32_t sources, bool needs_tag) {
    if (t == nullptr || t->sources != sources || !t->has_destination() || (needs_tag && t->other_tags) ||
        t->told() > t->sent)
      return Flight::kUnknown;
    return t->told() == t->sent ? Flight::kNothing : Flight::kSomething;
  }

  /// By the exact envelope if the wait names its tag, else (or when that cannot be told apart) over all tags.
  Flight in_flight(const Part& part, int32_t source, uint32_t me, uint32_t sources, bool* available) const {
    const int32_t to = static_cast<int32_t>(me);
    const Tally* all = tally(part, source, to, ring::kAnyTag);
    const Tally* own = exact(part) ? tally(part, source, to, part.tag) : all;
    Flight found = flight(own, sources, exact(part));
    *available = found == Flight::kSomething && own->pending == 0 &&
                 own->wild_pending <= (part.kind == PartKind::kProbe ? 0u : 1u);
    if (found != Flight::kNothing && own != all && flight(all, sources, false) == Flight::kNothing)
      found = Flight::kNothing;
    if (found == Flight::kUnknown && g_.hopeful_ && own == nullptr && all == nullptr) found = Flight::kNothing;
    return found;
  }

  /// A receive of `me` whose message has certainly been sent.
  Result done(uint32_t me, uint32_t of_sender, bool counted) const {
    return {counted && (g_.state(me).irregular & kUnknownSource) == 0 && (of_sender & kCancelled) == 0 ? Fact::kDone
                                                                                                       : Fact::kOpen,
            kNone};
  }

  /// The call waits for receives of one envelope but for their sources, one of them from anybody; for each a message
  /// was sent, and there are no other receives: what else than the order could keep it?
  bool only_order_matters(uint32_t me, const Part& part) const {
    const ThreadWait* wait = g_.call_of(me, part);
    if (wait == nullptr || wait->truncated != 0) return false;
    bool wild = false;
    for (uint32_t i = wait->first_part; i < wait->first_part + wait->part_count; ++i) {
      const Part& other = g_.view(me).parts[i];
      if (other.kind != PartKind::kReceive || other.comm != part.comm || other.tag != part.tag) return false;
      wild |= other.peer == ring::kAnySource;
      const Tally* t = tally(other, other.peer, static_cast<int32_t>(me), other.tag);
      if (t == nullptr || t->other_tags || (other.peer != ring::kAnySource && t->sent < other.needed)) return false;
    }
    const Tally* all = tally(part, ring::kAnySource, static_cast<int32_t>(me), part.tag);
    return wild && flight(all, g_.ranks(), true) == Flight::kSomething && all->sent - all->told() >= wait->part_count &&
           all->pending + all->wild_pending == wait->part_count;
  }

  Result from_peer(uint32_t me, const Part& part) {
    const uint32_t peer = static_cast<uint32_t>(part.peer);
    const Result holds = {Fact::kHolds, peer};
    if ((g_.state(me).irregular & (kSpoilt | kCancelled)) != 0 || (g_.state(peer).irregular & kSpoilt) != 0) return {};
    if (part.needed != 0 && exact(part)) {
      const Tally* t = tally(part, part.peer, static_cast<int32_t>(me), part.tag);
      if (t == nullptr && g_.hopeful_) return holds;
      if (t != nullptr && t->sources == 1 && !t->other_tags) {
        // Wildcards that are pending may have taken messages that nobody was told of: more are needed, never fewer.
        if (t->sent < part.needed) return holds;
        if (g_.wild_first() && t->sent < part.needed + t->wild_pending && only_order_matters(me, part)) return holds;
        return done(me, g_.state(peer).irregular, t->has_destination() && t->wild_pending == 0);
      }
    }
    bool available = false;
    switch (in_flight(part, part.peer, me, 1, &available)) {
      case Flight::kNothing: return holds;
      case Flight::kSomething: return done(me, g_.state(peer).irregular, available);
      default: return {};
    }
  }

  /// Fewer messages can still come than the call waits for: whichever receive takes them, one gets none.
  bool too_few(uint32_t me, const Part& part) const {
    const Tally* t = tally(part, ring::kAnySource, static_cast<int32_t>(me), exact(part) ? part.tag : ring::kAnyTag);
    return part.tag != kOtherTags && flight(t, g_.ranks(), exact(part)) == Flight::kSomething &&
           t->sent - t->told() < g_.receives_together(me, part);
  }

  Result from_anybody(uint32_t me, const Part& part, Comm& c) {
    if (!c.complete || (g_.state(me).irregular & (kSpoilt | kCancelled | kOtherWorld)) != 0 ||
        (c.irregular & kSpoilt) != 0 || any_uncounted(c))
      return {};
    bool available = false;
    const Flight found = in_flight(part, ring::kAnySource, me, g_.ranks(), &available);
    if (found == Flight::kNothing || too_few(me, part)) {
      c.wild = true;
      return {Fact::kHolds, kNone};  // the group gets its number in connect()
    }
    return done(me, c.irregular, found == Flight::kSomething && available);
  }

  Result to_peer(uint32_t me, const Part& part) {
    const uint32_t peer = static_cast<uint32_t>(part.peer);
    if ((g_.state(me).irregular & (kSpoilt | kCancelled)) != 0 ||
        (g_.state(peer).irregular & (kSpoilt | kUnknownSource)) != 0)
      return {};
    const int32_t from = static_cast<int32_t>(me);
    const Tally* own = exact(part) ? tally(part, from, part.peer, part.tag) : nullptr;
    const Tally* all = tally(part, from, part.peer, ring::kAnyTag);
    if (own == nullptr && all == nullptr && g_.hopeful_) return {Fact::kHolds, peer};
    if (own != nullptr && own->has_destination() && !own->other_tags && part.ordinal != 0) {
      if (own->capacity() < part.ordinal) return {Fact::kHolds, peer};
      return {own->wild_pending == 0 && (g_.state(peer).irregular & kCancelled) == 0 ? Fact::kDone : Fact::kOpen,
              kNone};
    }
    // Without its ordinal: only when nothing from here was ever received or asked for.
    if (all != nullptr && all->has_destination() && all->capacity() == 0) return {Fact::kHolds, peer};
    return {};
  }

  /// That the peer has made the call does not say that it has come back from it, or that this rank was told: never
  /// kDone.
  Result token(uint32_t me, const Part& part) {
    const uint32_t peer = static_cast<uint32_t>(part.peer);
    if (((g_.state(me).irregular | g_.state(peer).irregular) & (kLostWindow | kSpoilt)) != 0 || part.needed == 0)
      return {};
    const Tally* t = g_.tallies().find(token_comm(part.comm), part.peer, static_cast<int32_t>(me), part.tag);
    const bool never = t == nullptr ? g_.hopeful_ : t->sources == 1 && !t->other_tags && t->sent < part.needed;
    return never ? Result{Fact::kHolds, peer} : Result{};
  }

  /// Whoever certainly holds it must let go, whatever else the library waits for.
  Result lock(uint32_t me, const Part& part) {
    if ((g_.state(me).irregular & kLostWindow) != 0) return {};
    uint32_t holders = 0, holder = kNone;
    const bool mine = g_.each_holder(me, part, [&](uint32_t rank) {
      ++holders;
      holder = rank;
    });
    if (mine || holders == 0) return {};
    if (holders == 1) return {Fact::kHolds, holder};
    locks += holders;
    return {};  // link_holders()
  }

  bool any_uncounted(const Comm& c) const {
    for (uint32_t i = 0; c.left && i < c.count; ++i)
      if (g_.in_order(c, i).uncounted) return true;
    return false;
  }

  Result collective(uint32_t me, const Part& part, Comm& c) {
    if ((c.irregular & kUnknownOrder) != 0 || (c.remote_size >= 0 && (part.flags & kRootOnly) == 0 && !g_.may_buffer()))
      return {};  // between groups, each waits for the other one only
    if (c.left && part.ordinal == kReleases) return {};  // who has freed it has made that call, or an earlier one
    const uint32_t late = g_.late(c, part.sequence);
    const Result arrived = {c.complete && late == 0 && (part.flags & kTransfer) == 0 ? Fact::kDone : Fact::kOpen,
                            kNone};
    if (late == 0) return arrived;
    if ((part.flags & kRootOnly) != 0) {
      const uint32_t root = static_cast<uint32_t>(part.peer);
      const Member* member = part.peer >= 0 && root < g_.ranks() ? g_.member(c, root) : nullptr;
      if (member == nullptr || member->sequence >= part.sequence || root == me) return {};
      return {Fact::kHolds, g_.actor(*member)};
    }
    if ((part.flags & kLowerOnly) != 0) {
      lower = true;
      return {};  // link_lower()
    }
    c.chained = true;
    return {Fact::kHolds, late - 1};  // index in the chain, made below
  }

  Graph& g_;

 public:
  bool lower = false;
  size_t locks = 0;  ///< holders of locks that several hold
};

const ThreadWait* Graph::call_of(uint32_t rank, const Part& part) const {
  const View& v = views_[rank];
  const auto at = static_cast<uint32_t>(&part - v.parts);
  for (uint32_t t = 0; t < v.thread_count; ++t)
    if (const ThreadWait& wait = v.threads[t];
        wait.kind == WaitKind::kAll && at >= wait.first_part && at < wait.first_part + wait.part_count)
      return &wait;
  return nullptr;
}

uint32_t Graph::receives_together(uint32_t rank, const Part& part) const {
  const ThreadWait* wait = part.kind == PartKind::kReceive ? call_of(rank, part) : nullptr;
  if (wait == nullptr) return 1;
  uint32_t count = 0;
  for (uint32_t i = wait->first_part; i < wait->first_part + wait->part_count; ++i)
    if (const Part& other = views_[rank].parts[i]; other.kind == PartKind::kReceive && other.comm == part.comm)
      count += part.tag == ring::kAnyTag || part.tag == other.tag;
  return count;
}

/// Locks that are held for certain, in order. Ranks that have finished have let go of theirs, or never came to it.
bool Graph::read_holds() {
  for (int pass = 0; pass < 2; ++pass) {
    uint32_t count = 0;
    for (uint32_t rank = 0; rank < ranks(); ++rank) {
      const View& v = views_[rank];
      if ((v.status != RankStatus::kCandidate && v.status != RankStatus::kGone) ||
          (state(rank).irregular & kLostWindow) != 0)
        continue;
      for (uint32_t i = 0; i < state(rank).part_count; ++i)
        if (v.parts[i].kind == PartKind::kHold) {
          if (pass == 1) holds_[count] = {v.parts[i].comm, v.parts[i].peer, v.parts[i].tag != 0, rank};
          ++count;
        }
    }
    if (pass == 0) {
      holds_ = arena_.allocate<Held>(count);
      hold_count_ = count;
      if (arena_.failed()) return false;
    }
  }
  heap_sort(holds_, hold_count_, [](const Held& a, const Held& b) {
    return a.window != b.window ? a.window < b.window : a.target != b.target ? a.target < b.target : a.rank < b.rank;
  });
  return true;
}

bool Graph::judge_parts() {
  Judge judge(*this);
  for (uint32_t rank = 0; rank < ranks(); ++rank) {
    const View& v = views_[rank];
    for (uint32_t i = 0; v.status == RankStatus::kCandidate && i < state(rank).part_count; ++i) {
      const Judge::Result result = judge.part(rank, v.parts[i]);
      facts_[v.first_part + i] = result.fact;
      targets_[v.first_part + i] = result.target;
    }
  }
  lower_ = judge.lower;
  shared_locks_ = judge.locks < kMostHolders ? static_cast<uint32_t>(judge.locks) : kMostHolders;
  return true;
}

}  // namespace resil::hang::graph
