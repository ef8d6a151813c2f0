// SPDX-License-Identifier: Apache-2.0
//
// The simulator's one window: epochs of both kinds in the programs, what the library does with them, what the wrappers
// would have written of them.

#include <algorithm>

#include "hang_sim.h"

namespace hang_test {

/// Epochs that fit together, and messages in the midst of them.
void Sim::plan_windows(std::mt19937_64& random) {
  auto below = [&](int n) { return static_cast<int32_t>(random() % static_cast<uint64_t>(n)); };
  auto chance = [&](int percent) { return below(100) < percent; };
  auto program = [&](int32_t rank) -> std::vector<Op>& {
    return std::find_if(threads.begin(), threads.end(), [&](const SimThread& t) { return t.rank == rank; })->program;
  };
  auto message = [&](int32_t from, int32_t to) {
    program(from).push_back({.what = Do::kSend, .peer = to, .tag = 5, .small = chance(50)});
    program(to).push_back({.what = Do::kRecv, .peer = from, .tag = 5});
  };
  for (int events = 1 + below(3); events > 0; --events) {
    if (chance(50)) {
      std::vector<int32_t> origins, targets;
      for (int32_t rank = 0; rank < ranks; ++rank)
        if (const int32_t side = below(3); side != 2) (side == 0 ? origins : targets).push_back(rank);
      for (int32_t target : targets) program(target).push_back({.what = Do::kPost, .group = origins});
      for (int32_t origin : origins) {
        program(origin).push_back({.what = Do::kStart, .group = targets});
        for (int32_t target : targets)
          if (chance(50)) program(origin).push_back({.what = Do::kOperate, .peer = target, .brings = chance(40)});
      }
      if (chance(30) && !origins.empty() && !targets.empty())
        chance(50) ? message(origins[0], targets[0]) : message(targets[0], origins[0]);
      for (int32_t origin : origins) program(origin).push_back({.what = Do::kComplete});
      for (int32_t target : targets) program(target).push_back({.what = Do::kWinWait});
      continue;
    }
    const int32_t target = below(ranks), first = below(ranks), second = (first + 1) % ranks;
    auto section = [&](int32_t rank) {
      program(rank).push_back({.what = Do::kLock, .peer = target, .exclusive = chance(70)});
      if (chance(80)) program(rank).push_back({.what = Do::kOperate, .peer = target, .brings = chance(30)});
      if (chance(60)) program(rank).push_back({.what = Do::kFlush, .peer = target});
    };
    const bool nested = chance(70);
    section(first);
    if (nested) program(first).push_back({.what = Do::kRecv, .peer = second, .tag = 6});
    program(first).push_back({.what = Do::kUnlock, .peer = target});
    if (nested && chance(50)) program(second).push_back({.what = Do::kSend, .peer = first, .tag = 6, .small = true});
    section(second);
    program(second).push_back({.what = Do::kUnlock, .peer = target});
    if (nested && chance(60)) program(second).push_back({.what = Do::kSend, .peer = first, .tag = 6, .small = true});
  }
  if (noisy) sure_of_waits = chance(50);
}

uint64_t Sim::tokens(int32_t from, int32_t to, int32_t token) const {
  if (token == kCompleteToken && library.late_tokens) {
    const auto found = completed.find({from, to});
    return found != completed.end() ? found->second : 0;
  }
  const auto found = counts.find({from, token_comm(kWindow), to, token});
  return found != counts.end() ? found->second.sent : 0;
}

/// What the wrappers count before the call.
void Sim::start_window(const SimThread& thread, const Op& op) {
  SimEpochs& own = epochs[static_cast<size_t>(thread.rank)];
  const uint64_t comm = token_comm(kWindow);
  switch (op.what) {
    case Do::kPost:
      own.exposure.clear();
      for (int32_t peer : op.group) {
        own.exposure[peer] = ++count(thread.rank, comm, peer, kCompleteToken).posted;
        ++count(thread.rank, comm, peer, kPostToken).sent;
      }
      break;
    case Do::kStart:
      own.access.clear();
      own.brings.clear();
      for (int32_t peer : op.group) own.access[peer] = ++count(thread.rank, comm, peer, kPostToken).posted;
      break;
    case Do::kComplete:
      for (const auto& [peer, number] : own.access) ++count(thread.rank, comm, peer, kCompleteToken).sent;
      break;
    default:
      if (own.access.contains(op.peer) && op.brings) own.brings.insert(op.peer);
      else if (const auto place = own.locks.find(op.peer); place != own.locks.end()) place->second.pending = true;
  }
}

void Sim::finish_window(const SimThread& thread, const Op& op) {
  SimEpochs& own = epochs[static_cast<size_t>(thread.rank)];
  const auto place = own.locks.find(op.peer);
  switch (op.what) {
    case Do::kComplete:
      for (const auto& [peer, number] : own.access) ++completed[{thread.rank, peer}];
      own.access.clear();
      break;
    case Do::kLock:
      if (place == own.locks.end())
        own.locks[op.peer] = {op.exclusive, !library.lazy_locks || op.peer == thread.rank, op.peer == thread.rank};
      break;
    case Do::kFlush:
      if (place != own.locks.end() && place->second.pending) {
        place->second.had = place->second.certain = true;
        place->second.pending = false;
      }
      break;
    case Do::kUnlock: own.locks.erase(op.peer); break;
    default: break;
  }
}

/// The parts of a call over the window, as a reader would find them.
void Sim::show_window(const SimThread& thread, World& world) const {
  const Op& op = thread.program[thread.at];
  const SimEpochs& own = epochs[static_cast<size_t>(thread.rank)];
  std::vector<Part> parts;
  const auto place = own.locks.find(op.peer);
  switch (op.what) {
    case Do::kStart:
    case Do::kComplete: {
      const bool early = op.what == Do::kStart ? library.early_start : library.early_complete;
      const bool mixed = op.what == Do::kComplete && !own.brings.empty();  // processor time says nothing then
      for (const auto& [peer, number] : own.access) {
        const bool strict = op.what == Do::kComplete && own.brings.contains(peer);
        const bool insists = !early && !mixed && sure_of_waits;
        parts.push_back(token(peer, kPostToken, static_cast<uint32_t>(number),
                              strict    ? 0
                              : insists ? uint8_t{kPermitted}
                                        : uint8_t{kPermitted | kMayBuffer}));
      }
      break;
    }
    case Do::kWinWait:
      for (const auto& [peer, number] : own.exposure)
        parts.push_back(token(peer, kCompleteToken, static_cast<uint32_t>(number)));
      break;
    case Do::kLock:
      parts.push_back(lock(op.peer, op.exclusive,
                           op.peer == thread.rank                 ? 0
                           : !library.lazy_locks && sure_of_waits ? uint8_t{kPermitted}
                                                                  : uint8_t{kPermitted | kMayBuffer}));
      break;
    case Do::kFlush:
    case Do::kUnlock:
      if (place != own.locks.end() && place->second.pending && !place->second.certain)
        parts.push_back(lock(op.peer, place->second.exclusive));
      break;
    default: break;
  }
  world.block(thread.rank,
              op.what == Do::kStart      ? kStartCall
              : op.what == Do::kComplete ? kCompleteCall
              : op.what == Do::kWinWait  ? kWinWaitCall
              : op.what == Do::kLock     ? kLockCall
                                         : kUnlockCall,
              parts);
}

}  // namespace hang_test
