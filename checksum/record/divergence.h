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

/// Publishes it if it is this rank's first, and ends the job with status 91 if the policy says so. `e` null: outside a
/// call. After kCall, kEnd and kResult nothing more is compared in this thread.
void diverged(const Event* e, PerThread& t, const Call* call, const Difference& difference);

/// Tells entries of RESIL_VERIFY_IGNORE that name an MPI library or a language binding; they have no effect.
void refuse_foreign_entries();

/// Divergences of this rank so far, the first one included.
uint64_t divergences();
/// Calls of MPI_Wtime and MPI_Wtick by this thread so far.
uint64_t clock_reads(const Thread& thread);

}  // namespace resil::record
