// SPDX-License-Identifier: Apache-2.0
//
// Pings and votes between nodes (docs/SUNWAY.md): the root has the nodes of those who wait probe the nodes of those who
// are waited for, each on a way of its own. Where nothing comes back, it has others probe both: they vote whether a
// node is out of reach or only the way between two. Knows nodes, not ranks; asks and tells nobody. Helper thread.
#pragma once

#include "detectors/hang/monitor/rounds.h"
#include "detectors/hang/overlay/overlay.h"

namespace resil::hang {

constexpr uint32_t kMostWays = 96, kMostVoters = 6;
constexpr double kProbeTimeout = 2.5;  ///< seconds: the kernel's second try to connect is in them
constexpr uint32_t kFailures = 2;  ///< probes in a row without a reply that make a way broken

/// The way from one node to another, and what its probes have found.
struct Way {
  uint32_t from, to;
  Reach reach;  ///< by the last probe that is over
  bool asking;  ///< the last one is under way
  bool told;  ///< as broken
  uint32_t failures;  ///< probes in a row to which nothing came back
  double asked_at, failed_since;  ///< monotonic
};

struct Probes {
  uint32_t nodes;
  uint32_t count;
  Way ways[kMostWays];
  ProbeQuestion questions[kMostWays];
  uint64_t pings, votes;  ///< asked so far
};

/// What other nodes say of a way to which nothing came back.
struct Vote {
  uint32_t asked;  ///< nodes that have probed both ends
  uint32_t reach_from, reach_to, reach_both;  ///< of these
};

/// `from` waits for somebody on `to`: a ping, unless there was one within the last 10 s. True: a probe is due.
bool probes_want(Probes& probes, uint32_t from, uint32_t to, double now);
/// A vote about each way to which nothing came back, by nodes for which `answers` holds.
void probes_want_votes(Probes& probes, bool (*answers)(const void* of, uint32_t node), const void* of, double now);
/// Questions of the next round kProbe: of what is due or under way. 0: none.
uint32_t probes_questions(Probes& probes, double now);
void probes_came(Probes& probes, const ProbeAnswer* answers, uint32_t count, double now);
const Way* probes_way(const Probes& probes, uint32_t from, uint32_t to);
Vote probes_vote(const Probes& probes, const Way& way);
inline bool is_broken(const Way& way) { return way.failures >= kFailures; }

/// A node's part of a round kProbe: begins what it is asked for, tells what it knows. Returns how many answers.
uint32_t answer_probes(Overlay* overlay, uint32_t own, double now, const ProbeQuestion* questions, uint32_t count,
                       ProbeAnswer* answers, uint32_t room);

}  // namespace resil::hang
