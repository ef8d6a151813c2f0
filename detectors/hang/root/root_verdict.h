// SPDX-License-Identifier: Apache-2.0
//
// Verdicts that are not the graph's: a rank that does not come back from its own code, one that stays stopped, and no
// progress for no reason that can be seen. Verified at most. Helper thread of the root's node.
#pragma once

#include "detectors/hang/root/root.h"

namespace resil::hang {

constexpr uint32_t kWaitGroups = 8;
/// Ranks that wait in the same call.
struct WaitGroup {
  uint16_t call;
  uint64_t comm, sequence;  ///< of a collective, else 0
  RankSet ranks;
};
/// All ranks that wait, but for the culprits of `verdict`, by call, into `kinds` (kWaitGroups; further ones are left
/// out), and as victims into the verdict.
uint32_t find_wait_groups(const Root& root, Verdict* verdict, WaitGroup* kinds);
/// A statement about them: {ranks}, {call}, {collective}, {n1} how many.
Statement& add_wait_group(Verdict* verdict, Message id, const WaitGroup& kind);
/// Whether every node that has not left was in the last summary: ranks that nobody sees may make progress.
bool all_answer(const Root& root);

/// By the statistics and five snapshots in which the same ranks were outside MPI without a move.
bool computation_verdict(const Root& root, Verdict* verdict);
/// By a rank that is stopped while no other rank has moved for longer than any stop before that ended.
bool stopped_verdict(const Root& root, double now, Verdict* verdict);
/// Waits that MPI permits but does not demand count after so many seconds without any of them returning.
double may_buffer_after(const Root& root);
/// The same where all that the calls wait for has happened, or ranks poll.
double inside_after(const Root& root);
/// By nodes that have given no answer since the others' last progress, for longer than this program has ever been
/// quiet.
bool silent_verdict(const Root& root, double now, Verdict* verdict);
double silent_limit(const Learned& learned);  ///< seconds

/// In a job of several nodes: hosts and processes of the culprits, eight of them.
void add_places(const Root& root, Verdict* verdict);
/// What ranks wait for from their accelerators: the first as a sentence, and a line of evidence each.
void add_devices(const Root& root, Verdict* verdict);
/// Calls that MPI lets wait but does not oblige to, in states that have just come: after half a second of processor
/// time they count as waiting.
void note_blocking_calls(Root& root);
/// Notes how much processor time all ranks have used, soon after they have come to their present calls.
void note_cpu(Root& root, double now);
/// Ranks that have used none since, if the others that wait have, ascending, into `ranks` (kMaxCulprits); how many.
uint32_t find_cpu_idle(const Root& root, double now, int32_t* ranks);
/// By a rank that is in a call, uses no processor time and is waited for, when all are inside MPI for no reason that is
/// seen.
bool cpu_idle_verdict(const Root& root, double now, Verdict* verdict);
/// By a rank that is in a call which waits for no other rank, while all are inside MPI.
bool local_call_verdict(const Root& root, double now, Verdict* verdict);
/// By copies between devices and host memory, of staged messages, that have been under way as long as nobody has moved.
bool device_verdict(const Root& root, double now, Verdict* verdict);
/// Names those who have used none since, if the others that wait have: in calls that do not return for no reason seen.
void name_cpu_idle(const Root& root, double now, Verdict* verdict);

/// Whether calls that should return, but have not for that many seconds, are calls whose amounts differ.
bool amounts_explain(const Root& root, double blocked, const Verdict& verdict);
/// Makes those amounts the cause.
void promote_amounts(const Root& root, Verdict* verdict);

/// Ranks that are stopped or gone, by the last summary; nodes that missed it (ascending).
void note_facts(Root& root, double now);
void note_silence(Root& root, const uint32_t* unanswered, uint32_t count, double now);

/// Waits that last longer than any of their kind: noted as suspected, whatever the rest of the job does.
void learn_timeouts(Root& root);

}  // namespace resil::hang
