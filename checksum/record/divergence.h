// SPDX-License-Identifier: Apache-2.0
//
// The first difference between this run and the recording, as a finding: which rank, between which calls, which values,
// and whether what this rank had received agreed until then. Off the call path; formats, unwinds, may end the job.
#pragma once

#include <cstdint>

#include "checksum/record/state.h"

namespace resil::record {

enum class What : uint8_t {
  kCall,  ///< another call than the recorded one
  kOutput,  ///< this rank gives something else: send buffer, contribution, data for a file
  kInput,  ///< this rank got something else: message, result of a collective, data of a file
  kChoice,  ///< MPI decided otherwise, and that could not be forced
  kResult,  ///< the call failed, or did not
  kLogged,  ///< a logged value differs
  kEnd,  ///< more calls than recorded, or fewer
  kStuck,  ///< what the recording says should come does not come
};

struct Difference {
  What what;
  ValueType expected_type, found_type;  ///< kNone: no values; the texts say it
  uint64_t expected, found;
  int32_t source;  ///< kInput: world rank that it came from, -1: not one rank, or not known
  char expected_text[132], found_text[132];
};

constexpr Difference difference(What what) { return {what, ValueType::kNone, ValueType::kNone, 0, 0, -1, {}, {}}; }

/// Publishes it if it is this rank's first of its kind, and under RESIL_ON_MISMATCH=abort ends the job with status 91
/// if the cause is proved or the run cannot go on. `e` null: outside a call. After kCall, kEnd and kResult nothing more
/// is compared in this thread. Returns whether the recorded value is to take the place of what differs: it is only
/// suspected, or RESIL_VERIFY_IGNORE names the place.
bool diverged(const Event* e, PerThread& t, const Call* call, const Difference& difference);
/// A value that differs stayed as it is: what follows may differ for this reason.
void diverged_input_stays();
/// This rank goes on past a difference that others may receive: said to the ranks of this node, before it leaves.
void went_on();

/// A recording ends before its program did: other ranks may go another way from where this rank sends them something.
/// Said to them before that.
void recording_ended();
/// From here on nothing holds this thread to the recorded run.
void end_of_comparing(PerThread& t);

/// Tells entries of RESIL_VERIFY_IGNORE that name an MPI library or a language binding; they have no effect.
void refuse_foreign_entries();

/// Divergences of this rank so far, those that are only suspected included, and these alone.
uint64_t divergences();
uint64_t suspected_divergences();
/// Values of MPI_Wtime and MPI_Wtick that this rank has read and that did not come from the recording.
uint64_t clock_reads();

/// Name of the function that a call site lies in, as the linker knows it; "" when it does not.
void function_text(uint64_t site, char* name, size_t bytes);

}  // namespace resil::record
