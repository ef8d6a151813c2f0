// SPDX-License-Identifier: Apache-2.0
//
// The root of the overlay decides: it samples all ranks at ParaStack's random steps, looks closer when somebody waits,
// has the wait-for graph judged, and publishes what is certain enough. It calls nobody above it: each function returns
// the next question to the nodes, and the monitor puts it. Helper thread of the root's node.
#pragma once

#include <cstdint>

#include "detectors/hang/graph.h"
#include "detectors/hang/monitor/rounds.h"
#include "detectors/hang/monitor/wireup.h"
#include "detectors/hang/overlay/overlay.h"
#include "detectors/hang/reader/stacks.h"
#include "detectors/hang/root/names.h"
#include "detectors/hang/root/near_miss.h"
#include "detectors/hang/root/probes.h"
#include "detectors/hang/stats/adaptive_timeout.h"
#include "detectors/hang/stats/snapshot.h"
#include "detectors/hang/stats/watch.h"
#include "detectors/hang/verdict/format.h"

namespace resil::hang {

/// What is known of all ranks of the job at one instant.
struct JobStates {
  char* bytes;  ///< RankState records
  uint32_t used, count;  ///< count: of the world
  const RankState** by_rank;  ///< null: did not answer
};

/// A rank that is stopped or gone, as last seen.
struct Fact {
  RankActivity said;
  bool now, told;  ///< told: in hang.log
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
  uint64_t timer;  ///< by what is waited for and how far away it is (wait_errors.h)
  double seconds;
};

/// The line about a job that stands still (quiet_notice.h).
struct QuietNotice {
  double after;  ///< seconds without a move, by the configuration; 0: never
  double said_at;  ///< monotonic; 0: not said, or taken back
};

/// A call that MPI lets wait, and the processor time that its thread had used when it was first seen there.
struct CallCpu {
  uint64_t instance;
  uint32_t cpu_ms;
};

/// Which answer of the nodes is awaited.
enum class Phase : uint8_t {
  kIdle = 0,
  kSampling,  ///< a summary, at each random step
  kReading,  ///< the states of all ranks
  kCounting,  ///< what the graph has to know of their messages
  kConfirming,  ///< the states once more, younger than the counters
  kNaming,  ///< the names in the verdict
  kComparing,  ///< collectives
  kNamingMismatch,  ///< the names in a verdict about these
  kBalancing,  ///< unmatched messages, at the end
  kStacking,  ///< stacks of all threads, after a finding
  kSearching,  ///< messages like those that the verdict misses
  kProbing,  ///< which nodes reach which
};

constexpr uint64_t kAskedBefore = 10000000000;  ///< ns: a question to a leader that was stopped may wait for the next

/// A question to all nodes; kNone: none, the chain is over.
struct Ask {
  Round kind;
  const void* payload;
  uint32_t bytes;
};

struct Mismatch;

struct Root {
  const Wiring* wiring;
  Silence* silences;  ///< one a node
  uint32_t silent;  ///< of them said to be silent
  bool silence_told;
  ControlBlock* control;
  stats::Watch model;
  stats::FaultySearch faulty;
  stats::RankState *marks, *progress;  ///< one a rank
  JobStates states;
  stats::AdaptiveTimeout timeouts;
  stats::AdaptiveTimeout timers;  ///< by type and distance
  Probes probes;  ///< by timers that have expired (ways.h)
  Waited* waited;  ///< one a rank
  Mismatch* mismatch;
  CallCpu* call_cpu;  ///< one a rank
  uint64_t* cpu_then;  ///< one a rank: processor time at cpu_at, ns
  uint64_t overdue[16];  ///< kinds of waits that were suspected last
  uint32_t overdue_next;
  Fact* facts;  ///< one a rank
  Summary summary;
  Phase phase;
  bool states_due, mismatch_due, stacks_due, probes_due;  ///< what is left of this chain
  bool ending;  ///< after the collectives the unmatched messages, and no more
  StacksQuestion stacks_question;
  bool stacks;  ///< RESIL_HANG_STACKS
  uint32_t stacks_tries;  ///< of these
  char stacks_of[64];  ///< which finding or answer they belong to
  bool traced, suspected, abort_wanted;
  bool aborts;  ///< RESIL_HANG=abort
  bool lazy;  ///< messages are checksummed, and compared after they are used
  bool why_only;  ///< the verdict at hand answers a question, and is no new finding
  uint64_t why, why_told;  ///< question that waits for its answer (why.h), 0 none; the last one that has it
  double why_at;  ///< when the root has heard of it
  QuietNotice notice;
  uint32_t states_taken;  ///< since anybody has moved
  uint64_t moves, blocked_hash, familiar;  ///< familiar: least since the last sample of the model
  double begun_at, next_sample, next_look, looked_at, excused, starved, asked_at, states_at, mismatch_at, moved_at,
      blocked_since, cpu_at, longest_stop, faulty_since, published_at;
  stats::Verdict opinion;
  Learned learned;  ///< by this root and those before it
  Ending last_look;  ///< of a rank that ends the job; the last one
  uint64_t failed_comm, failed_sequence;  ///< of the call that was said to differ then
  Question* questions;
  Answer* answers;
  uint32_t question_count, answer_count;
  uint64_t wanted[kMostWanted];  ///< of which the next states tell who has freed them
  uint32_t wanted_count;
  NameList names;
  SearchQuestion searches[kMostSearches];
  Verdict verdict;  ///< the last one
  Verdict mismatched;  ///< the last one about collectives that differ
  Verdict amounts;  ///< the last one about amounts that differ: suspected, until MPI fails in that call
  Explanation explanation;  ///< its words
};

/// `watch`: the ranks of this node.
bool root_begin(Root& root, const Wiring& wiring, ControlBlock& control, Watch& watch);
/// What the node that leads has learned; any node.
void root_learn(Root& root, const Learned& from);
/// Seconds until something is due. `ask`: what to ask now.
double root_step(Root& root, double now, Ask* ask);
/// Somebody asks why the job does not go on: the next look comes at once.
void root_asked(Root& root, double now);
/// The answers to the last question. Returns the next one.
Ask root_finished(Root& root, Round kind, const void* merged, uint32_t bytes, const uint32_t* unanswered,
                  uint32_t count);
/// The last question could not be put. Returns the next one.
Ask root_refused(Root& root);
/// This node takes the place of a root that could not be reached any more: of node `silent`, which was heard last at
/// `heard` (kNoNode: it has gone). What that one was asked long ago is not answered again.
void root_instead(Root& root, uint32_t silent, double heard);
/// A node came, went or said good-bye.
void root_node(Root& root, uint32_t node, NodeState state);
inline bool root_busy(const Root& root) { return root.phase != Phase::kIdle; }
/// The last comparison of collectives, and the unmatched messages, when no chain is under way. Returns the first
/// question.
Ask root_unmatched(Root& root);
/// A comparison of collectives for a rank that is about to end the job, when no chain is under way. Returns the first
/// question.
Ask root_last_look(Root& root, const Ending& ending);
void root_end(Root& root);

}  // namespace resil::hang
