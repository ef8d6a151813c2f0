// SPDX-License-Identifier: Apache-2.0
//
// The AND/OR wait-for graph (Hilbrich et al., SC'12 and SC'13): from the states of all ranks to the proof of a
// deadlock, or none. No MPI, no clock, no system call but mmap for its arena. Thread: the root's helper.
#pragma once

#include <cstdint>

#include "detectors/hang/reader/rank_state.h"
#include "detectors/hang/verdict/verdict.h"

namespace resil::hang {

/// States of ranks 0..count-1 of one world in order (nullptr: unknown).
struct GraphInput {
  const RankState* const* states;
  uint32_t count;
  uint64_t now_ns;  ///< CLOCK_REALTIME, for ages in messages
  uint64_t world = 0;  ///< job-wide id of MPI_COMM_WORLD, where MPI_Finalize counts as a call; 0: not known
};

/// Communicators, windows and files on which some rank waits and of which not all members have told: the next states
/// are to say who has freed them (WantedComms). Returns how many.
uint32_t graph_wanted(const GraphInput& input, uint64_t* ids, uint32_t room);

/// What must be known of envelopes before anything can be judged. Returns how many; never more than `room` (false
/// completeness is safe: what is not answered is not proved). The most important come first, so that a small `room`
/// does for a small core. 0: nothing to ask; judge all the same (waits in collectives need no answers).
uint32_t graph_questions(const GraphInput& input, Question* questions, uint32_t room);

/// What the graph says of the job.
enum class Judgement : uint8_t {
  kNothing = 0,
  kProved,  ///< strict waits only
  kInferred,  ///< with waits that MPI permits but does not demand
  kInsideMpi,  ///< all that the calls wait for has happened, and they do not return; or a deadlock, if what was sent
               ///< has come or was taken by another receive
};

/// `may_buffer`: also lets waits count that MPI permits but does not demand; the caller grants that after a long
/// timeout. Fills `verdict`, of ids, unless it is null (then only whether there is one). At most one: the core of the
/// graph.
///
/// A proof needs one instant at which all states and answers were true together: take the states, ask, take the
/// answers, take the states once more, and mark as `stable` only ranks that are in the same call instances in both
/// (their counters cannot have moved in between). Judge with the second states.
Judgement graph_judge(const GraphInput& input, const Question* questions, uint32_t question_count,
                      const Answer* answers, uint32_t answer_count, bool may_buffer, Verdict* verdict);

}  // namespace resil::hang
