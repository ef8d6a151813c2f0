// SPDX-License-Identifier: Apache-2.0
//
// The statements. Whoever reads them was woken up by them: first what happened, then who is odd, then what to do;
// below, who waits where, since when, and the counters that prove it.

#include "detectors/hang/graph/explain.h"

#include <string.h>

namespace resil::hang::graph {

namespace {

constexpr uint32_t kToldWaits = 4;  // of one kind, before the rest is only counted
constexpr uint32_t kLines = 20;  // of evidence

bool others_have_ended(const Graph& graph, const Comm& comm, uint32_t rank) {
  for (uint32_t i = 0; i < comm.count; ++i)
    if (const Member& other = graph.in_order(comm, i);
        other.rank != rank && !other.freed && !is_sink(graph.status(other.rank)))
      return false;
  return comm.count > 1;
}

}  // namespace

CallWait call_wait(const Graph& graph, const Wait& wait) {
  const ThreadWait& thread = thread_of(graph, wait);
  const uint64_t now = graph.input().now_ns;
  const bool known = thread.entered_ns != 0 && thread.entered_ns <= now;
  return {part_of(graph, wait), thread.site, known ? static_cast<double>(now - thread.entered_ns) * 1e-9 : -1,
          static_cast<int32_t>(wait.rank), thread.call};
}

RankSet Explainer::set_of(const uint8_t* flags) const {
  RankSet set = {};
  for (uint32_t rank = 0; rank < g_.ranks(); ++rank)
    if (flags[rank] != 0) set.add(static_cast<int32_t>(rank));
  return set;
}

void Explainer::explain_wait(const Wait& wait) {
  v_.add(Message::kWaits, call_wait(g_, wait));
  explain_why(wait);
}

/// A receive in vain: nothing was sent, or another receive has it.
void Explainer::explain_message(const Wait& of, const CallWait& wait) {
  const Part& part = wait.part;
  const Tally* t = g_.tallies().find(part.comm, part.peer, wait.rank, part.tag);
  const bool named = part.peer != ring::kAnySource, some = t != nullptr && t->sent > t->told();
  if (named && g_.wild_first() && part.needed != 0 && t != nullptr && t->sent >= part.needed) {
    v_.add(Message::kWildcardFirst, wait);
  } else if (!named && some && t->has_destination()) {
    Statement& made = v_.add(Message::kTooFewMessages, wait);
    made.n[0] = t->sent - t->told();
    made.n[1] = g_.receives_together(of.rank, part_of(g_, of));
  } else {
    v_.add(named ? Message::kNeverSent : Message::kNothingComes, wait);
  }
}

void Explainer::explain_why(const Wait& of) {
  const CallWait wait = call_wait(g_, of);
  switch (wait.part.kind) {
    case PartKind::kReceive:
    case PartKind::kProbe:
      explain_message(of, wait);
      if (wait.part.peer == ring::kAnySource && others_have_ended(g_, *g_.comm(wait.part.comm), of.rank))
        g_.comm(wait.part.comm)->left ? explain_freed(wait.part) : void(v_.add(Message::kOthersEnded));
      break;
    case PartKind::kSend: v_.add(Message::kNotPosted, wait); break;
    case PartKind::kToken: v_.add(Message::kNotCalled, wait); break;
    case PartKind::kLock: {
      uint32_t holders = 0, first = 0;
      g_.each_holder(of.rank, wait.part, [&](uint32_t rank) { first = holders++ == 0 ? rank : first; });
      if (holders == 0) break;
      Statement& held = v_.add(Message::kLockHeld);
      held.n[0] = first;
      held.n[1] = holders;
      break;
    }
    case PartKind::kSink: v_.add(Message::kNobodyEnds); break;
    default: break;
  }
}

/// Whether this deadlocked rank waits in that collective.
bool Explainer::waits_in(uint32_t rank, const Wave& wave) const {
  for (uint32_t p = 0; g_.deadlocked(rank) && p < g_.state(rank).part_count; ++p)
    if (const Part& part = g_.view(rank).parts[p]; part.kind == PartKind::kCollective && part.comm == wave.comm->id &&
                                                   part.sequence == wave.sequence && g_.stuck(g_.target(rank, p)))
      return true;
  return false;
}

void Explainer::explain_wave(const Wave& wave) {
  memset(scratch_, 0, g_.ranks());
  for (uint32_t i = g_.late(*wave.comm, wave.sequence); i < wave.comm->count; ++i)
    if (const uint32_t rank = g_.in_order(*wave.comm, i).rank; waits_in(rank, wave)) scratch_[rank] = 1;
  Statement& made = v_.add(Message::kWaveWaits, call_wait(g_, wave.first));
  made.ranks = set_of(scratch_);
  made.n[0] = made.ranks.total;
  made.n[1] = static_cast<uint64_t>(wave.comm->size + (wave.comm->remote_size > 0 ? wave.comm->remote_size : 0));
}

/// Who has freed that communicator or window, and where.
void Explainer::explain_freed(const Part& of) {
  const Comm* comm = g_.comm(of.comm);
  const Part* first = nullptr;
  RankSet set = {};
  int32_t rank = -1;
  for (uint32_t i = 0; comm != nullptr && comm->left && i < comm->count; ++i) {
    const Member& member = g_.members_of(*comm)[i];
    if (!member.freed || (core_.kind == CoreKind::kLeft && core_.member[member.rank] == 0)) continue;
    if (first == nullptr) {
      first = g_.freed(of.comm, member.rank);
      rank = static_cast<int32_t>(member.rank);
    }
    set.add(static_cast<int32_t>(member.rank));
  }
  if (first == nullptr) return;
  Statement& told = v_.add((first->flags & kFreedObject) != 0 ? Message::kFreedObject : Message::kFreedComm, set);
  told.rank = told.wait.rank = rank;
  told.call = first->call;
  told.wait.site = first->site;
}

/// What the late ones do instead: those who ended, those who wait elsewhere, and the rest.
void Explainer::explain_late(const Wave& wave) {
  const uint32_t late = g_.late(*wave.comm, wave.sequence);
  auto group = [&](Message id, auto belongs) {
    memset(scratch_, 0, g_.ranks());
    for (uint32_t i = 0; i < late; ++i)
      if (const uint32_t rank = g_.in_order(*wave.comm, i).rank; belongs(g_.status(rank))) scratch_[rank] = 1;
    if (const RankSet set = set_of(scratch_); set.total != 0) v_.add(id, set);
  };
  explain_freed(part_of(g_, wave.first));
  group(Message::kEndedBefore, [](RankStatus status) { return status == RankStatus::kGone; });
  group(Message::kFinalizedBefore,
        [](RankStatus status) { return status == RankStatus::kFinished || status == RankStatus::kFinalizing; });
  // Those in the core are told one by one, the others only if there is none.
  uint32_t told = 0;
  for (int core = 1; core >= 0; --core)
    for (uint32_t i = 0; i < late && (core == 1 || told == 0); ++i) {
      const uint32_t rank = g_.in_order(*wave.comm, i).rank;
      const Wait wait = g_.deadlocked(rank) && (core_.member[rank] != 0) == (core == 1) ? reason(rank) : Wait{};
      if (wait.valid() && told++ < kToldWaits) explain_wait(wait);
    }
  if (told > kToldWaits) v_.add(Message::kWaitLikewise).n[0] = told - kToldWaits;
}

/// Two communicators (or two calls of one) whose members wait for each other.
void Explainer::explain_orders() {
  v_.add(Message::kOrders);
  explain_wave(core_.waves[0]);
  explain_wave(core_.waves[1]);
  for (int side = 0; side < 2; ++side) {
    const Comm& comm = *core_.waves[1 - side].comm;
    const Member* member = g_.member(comm, core_.waves[side].first.rank);
    if (member == nullptr) continue;
    Statement& made = v_.add(Message::kCallsMade);
    made.rank = static_cast<int32_t>(member->rank);
    made.n[0] = member->sequence;
    made.comm = comm.id;
  }
  if (core_.wave_count > 2) v_.add(Message::kMoreCalls).n[0] = core_.wave_count - 2;
}

/// Point to point: along the cycle, beginning with its lowest rank.
void Explainer::explain_cycle() {
  if (core_.count > 1) v_.add(Message::kWaitForEachOther, set_of(core_.member));
  memset(scratch_, 0, g_.ranks());
  uint32_t told = 0;
  uint32_t rank = core_.first;
  while (told < core_.count && told < kToldWaits) {
    const Wait wait = reason(rank);
    scratch_[rank] = 1;
    if (wait.valid()) explain_wait(wait);
    ++told;
    uint32_t next = wait.valid() ? g_.target(rank, wait.part) : kNone;
    if (next >= g_.ranks() || core_.member[next] == 0 || scratch_[next] != 0 || !g_.deadlocked(next))
      for (next = 0; next < g_.ranks() && (core_.member[next] == 0 || scratch_[next] != 0); ++next) {}
    if (next >= g_.ranks()) break;
    rank = next;
  }
  if (told < core_.count) v_.add(Message::kWaitLikewise).n[0] = core_.count - told;
}

void Explainer::explain_near_miss() {
  if (near_.kind == NearMiss::kNothing) return;
  if (near_.send.valid()) {
    v_.add(Message::kNearWait, call_wait(g_, near_.send));
    return;
  }
  const Part& wanted = part_of(g_, near_.receive);
  Statement& made = v_.add(near_.kind == NearMiss::kOtherTag ? Message::kNearTag : Message::kNearComm);
  made.rank = static_cast<int32_t>(near_.sender);
  made.comm = wanted.comm;
  made.n[0] = near_.count;
  made.n[1] = near_.receive.rank;
  made.n[2] = static_cast<uint64_t>(wanted.tag);
}

void Explainer::explain_others() {
  memset(scratch_, 0, g_.ranks());
  for (uint32_t rank = 0; rank < g_.ranks(); ++rank) {
    bool told = victim_[rank] == 0 || core_.member[rank] != 0 || (of_ended(core_.kind) && core_.message.rank == rank);
    for (uint32_t w = 0; in_wave_ && w < core_.wave_count && w < 2 && !told; ++w) told = waits_in(rank, core_.waves[w]);
    scratch_[rank] = told ? 0 : 1;
  }
  if (const RankSet set = set_of(scratch_); set.total != 0) v_.add(Message::kWaitInTurn, set);
}

void Explainer::explain_calls() {
  const bool ended = of_ended(core_.kind);
  if (core_.kind == CoreKind::kCycle && core_.wave_count > 1) {
    explain_orders();
  } else if (in_wave_) {
    explain_wave(core_.waves[0]);
    explain_late(core_.waves[0]);
  } else if (ended && core_.message.valid()) {
    explain_wait(core_.message);
    if (core_.kind == CoreKind::kLeft) explain_freed(part_of(g_, core_.message));
    else v_.add(core_.kind == CoreKind::kGone ? Message::kEndedWithout : Message::kFinalized, set_of(core_.member));
  } else {
    explain_cycle();
  }
  explain_near_miss();
  explain_others();
}

void Explainer::advise() {
  const Part* message = core_.message.valid() ? &part_of(g_, core_.message) : nullptr;
  if (g_.may_buffer())
    v_.add(g_.wild_first()                         ? Message::kInferredOrder
           : g_.assumed() == Assumed::kDoneArrived ? Message::kInferredArrived
                                                   : Message::kInferred);
  else if (message != nullptr && (message->flags & kPermitted) != 0)
    v_.add(Message::kBlocksEarly).call = thread_of(g_, core_.message).call;
  auto about_message = [&] {
    switch (message != nullptr ? message->kind : PartKind::kOther) {
      case PartKind::kToken:
        return call_info(static_cast<CallId>(message->call)).call_class == CallClass::kComm ? Message::kDoCompareMembers
                                                                                            : Message::kDoMatchEpochs;
      case PartKind::kLock: return Message::kDoUnlock;
      case PartKind::kSend: return Message::kDoPostFirst;
      default: return core_.count > 1 ? Message::kDoSendFirst : Message::kDoFindSender;
    }
  };
  if (near_.kind == NearMiss::kOtherTag) v_.add(Message::kDoCompareTags);
  else if (near_.kind == NearMiss::kOtherComm) v_.add(Message::kDoCompareComms);
  else if (core_.kind == CoreKind::kGone) v_.add(Message::kDoSeeDeath);
  else if (core_.kind == CoreKind::kEnded) v_.add(Message::kDoCountCalls);
  else if (core_.kind == CoreKind::kLeft) v_.add(Message::kDoFreeLast);
  else if (core_.kind == CoreKind::kNever) v_.add(Message::kDoFindThread);
  else if (core_.wave_count > 1) v_.add(Message::kDoSameOrder);
  else if (in_wave_) v_.add(Message::kDoOtherPath, set_of(culprit_));
  else if (g_.wild_first()) v_.add(Message::kDoNameSource);
  else v_.add(about_message());
}

/// All deadlocked ranks of this side that wait in the same collective share a line.
void Explainer::evidence_of(const Wait& wait, uint8_t* told) {
  const Part& part = part_of(g_, wait);
  memset(scratch_, 0, g_.ranks());
  scratch_[wait.rank] = told[wait.rank] = 1;
  for (uint32_t rank = wait.rank + 1; part.kind == PartKind::kCollective && rank < g_.ranks(); ++rank) {
    if (!g_.deadlocked(rank) || told[rank] != 0 || core_.member[rank] != core_.member[wait.rank]) continue;
    const Wait other = reason(rank);
    if (!other.valid()) continue;
    const Part& its = part_of(g_, other);
    if (its.kind == part.kind && its.comm == part.comm && its.sequence == part.sequence && its.call == part.call)
      scratch_[rank] = told[rank] = 1;
  }
  const int32_t me = static_cast<int32_t>(wait.rank);
  const bool send = part.kind == PartKind::kSend, token = part.kind == PartKind::kToken;
  const Tally* tally = nullptr;
  if (part.kind <= PartKind::kSend)
    tally = g_.tallies().find(part.comm, send ? me : part.peer, send ? part.peer : me, part.tag);
  if (token) tally = g_.tallies().find(token_comm(part.comm), part.peer, me, part.tag);
  const bool numbered = send || token || part.needed != 0;
  Statement& line = v_.add(tally == nullptr ? Message::kWaitLine
                           : token          ? Message::kWaitLineToken
                           : send           ? Message::kWaitLineSend
                           : numbered       ? Message::kWaitLineReceive
                                            : Message::kWaitLineCounts,
                           call_wait(g_, wait));
  line.ranks = set_of(scratch_);
  if (tally == nullptr) return;
  line.n[0] = send ? part.ordinal : numbered ? part.needed : tally->sent;
  line.n[1] = send ? tally->capacity() : numbered ? tally->sent : tally->told();
}

void Explainer::evidence() {
  v_.add(g_.may_buffer() ? Message::kReasonInferred : Message::kReasonProved);
  // Whom nobody accuses stands apart: a rank that waits in a collective belongs to the cycle, and is not at fault.
  memset(scratch_, 0, g_.ranks());
  for (uint32_t rank = 0; rank < g_.ranks(); ++rank)
    scratch_[rank] = v_.culprit_count != 0 && core_.member[rank] != 0 && culprit_[rank] == 0 ? 1 : 0;
  const RankSet peers = set_of(scratch_);
  v_.add(Message::kCoreRanks, set_of(v_.culprit_count != 0 ? culprit_ : core_.member));
  if (peers.total != 0) v_.add(Message::kPeerRanks, peers);
  if (v_.victim_count != 0) v_.add(Message::kWaitingRanks, set_of(victim_));
  uint8_t* told = g_.arena().allocate<uint8_t>(g_.ranks());
  uint32_t lines = 0;
  for (int of_core = 1; told != nullptr && of_core >= 0; --of_core)
    for (uint32_t rank = 0; rank < g_.ranks() && lines < kLines; ++rank) {
      if (!g_.deadlocked(rank) || told[rank] != 0 || (core_.member[rank] != 0) != (of_core == 1)) continue;
      const Wait wait = reason(rank);
      if (!wait.valid()) continue;
      evidence_of(wait, told);
      ++lines;
    }
}

bool Explainer::explain() {
  v_.begin(HangClass::kDeadlock, g_.may_buffer() ? Confidence::kVerified : Confidence::kProved);
  if (!blame()) return false;
  const Wait main = in_wave_ ? core_.waves[0].first : core_.message.valid() ? core_.message : reason(core_.first);
  if (main.valid()) {
    v_.comm = part_of(g_, main).comm;
    v_.call = part_of(g_, main).kind == PartKind::kCollective ? part_of(g_, main).call : thread_of(g_, main).call;
    v_.sequence = in_wave_ ? part_of(g_, main).sequence : 0;
  }
  for (uint32_t rank = 0; rank < g_.ranks(); ++rank) {
    if (culprit_[rank] != 0) v_.add_culprit(static_cast<int32_t>(rank));
    if (victim_[rank] != 0) v_.add_victim(static_cast<int32_t>(rank));
  }
  v_.signature = signature();
  explain_calls();
  advise();
  evidence();
  return true;
}

}  // namespace resil::hang::graph
