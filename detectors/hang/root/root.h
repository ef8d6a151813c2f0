// SPDX-License-Identifier: Apache-2.0
//
// The root of the overlay decides: it samples all ranks at ParaStack's random steps, looks closer when somebody waits,
// has the wait-for graph judged, and publishes what is certain enough. Helper thread of the root's node.
#pragma once

#include <cstdint>

#include "detectors/hang/graph.h"
#include "detectors/hang/monitor/rounds.h"
#include "detectors/hang/monitor/wireup.h"
#include "detectors/hang/overlay/overlay.h"
#include "detectors/hang/root/verdict.h"
#include "detectors/hang/stats/patience.h"
#include "detectors/hang/stats/snapshot.h"
#include "detectors/hang/stats/watch.h"

namespace resil::hang {

/// What is known of all ranks of the job at one instant.
struct JobStates {
  char* bytes;  ///< RankState records
  uint32_t used, count;  ///< count: of the world
  const RankState** by_rank;  ///< null: did not answer
};

constexpr uint32_t kMaxNames = 512;

struct NameList {
  uint32_t count;
  bool asked;  ///< some are not known on this node
  NameQuestion questions[kMaxNames];
  char texts[kMaxNames][sizeof(NameAnswer::text)];
};

/// A rank that is stopped or gone, as last said in hang.log.
struct Fact {
  RankActivity said;
  bool now;
  double since;
};

/// A node that does not answer.
struct Silence {
  double since;  ///< seconds, 0: it answers
  bool said;
  bool left;  ///< it said good-bye: its ranks have finished
};

/// The call in which a rank was last seen to wait.
struct Waited {
  uint64_t instance, kind;
  double seconds;
};

/// A call that MPI lets wait, and the processor time that its thread had used when it was first seen there.
struct Insistence {
  uint64_t instance;
  uint32_t cpu_ms;
};

struct Root {
  const Wiring* wiring;
  Silence* silences;  ///< one a node
  uint32_t silent;  ///< of them said to be silent
  bool silence_told;
  NodeBoard* board;
  stats::Watch model;
  stats::FaultySearch faulty;
  stats::RankState *marks, *progress;  ///< one a rank
  JobStates states;
  stats::Patience patience;
  Waited* waited;  ///< one a rank
  Insistence* insistences;  ///< one a rank
  uint64_t* cpu_then;  ///< one a rank: processor time at cpu_at, ns
  uint64_t impatient[16];  ///< kinds of waits that were suspected last
  uint32_t impatient_next;
  Fact* facts;  ///< one a rank
  Summary summary;
  bool busy, ending, traced, confirming, with_states, with_mismatch, suspected, verified;
  uint64_t moves, blocked_hash, familiar;  ///< familiar: least since the last sample of the model
  double begun_at, next_sample, next_look, looked_at, excused, starved, asked_at, states_at, mismatch_at, moved_at,
      blocked_since, cpu_at, longest_stop, faulty_since;
  stats::Verdict opinion;
  Learned learned;  ///< by this root and those before it
  Question* questions;
  Answer* answers;
  uint32_t question_count, answer_count;
  NameList names;
  Verdict verdict;  ///< being named and published
  bool naming, renaming;  ///< waiting for names: the graph's verdict; mismatches
};

bool root_begin(Root& root, const Wiring& wiring, NodeBoard& board);
/// What the node that leads has learned; any node.
void root_learn(Root& root, const Learned& from);
/// Seconds until something is due.
double root_turn(Root& root, double now);
void root_finished(Root& root, Round kind, const void* merged, uint32_t bytes, const uint32_t* unanswered,
                   uint32_t count);
/// A node came, went or said good-bye.
void root_node(Root& root, uint32_t node, NodeState state);
bool root_busy(const Root& root);
/// Asks for the last accounts; false: not now.
bool root_accounts(Root& root);
void root_end(Root& root);

}  // namespace resil::hang
