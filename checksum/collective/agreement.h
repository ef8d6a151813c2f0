// SPDX-License-Identifier: Apache-2.0
//
// Results that must be equal everywhere: the history of what this rank got, and what happens when a parent in the tree
// finds that its child got something else. A case asks other ranks of the communicator what they got and votes.
#pragma once

#include <cstdint>

#include "checksum/collective/findings.h"
#include "checksum/collective/linear.h"

namespace resil::collective {

/// RESIL_BLAME=full: how the result of a reduction came to this rank.
struct Outcome {
  bool kept;  ///< the result's buffer was read before the call, after it, and once more: what follows holds
  bool untouched;  ///< it is what it was before the call
  bool changed;  ///< it did not stay the same
  bool input_changed;  ///< what this rank gave is not what it was when it was given
  LinearMode linear;  ///< kNone: the two sums do not hold
  uint64_t content;  ///< digest of the bytes after the call
  uint64_t first, last;  ///< canonical digest after the call, and at the last look
  Linear first_sum, last_sum;  ///< linear digest of the same
};

void agreement_connect();

/// One result, kept among the last 1,024. `orders`: a floating minimum or maximum, which NaNs make arbitrary; `nan`:
/// the own contribution holds one.
void agreement_note(const Name& name, uint64_t digest, bool orders, bool nan, const Outcome& outcome);
/// The same with cheap blame, below MPI_THREAD_MULTIPLE, of a name without its place among the calls.
void agreement_note_plainly(const Name& name, uint32_t tag, uint16_t calls, uint64_t digest);
/// The own result is wrong, as the own contribution shows; `text` and `element` as in publish_local().
void agreement_contradicted(const Name& name, const Outcome& outcome, const char* text, int64_t element);
/// At rank 0 of the communicator: contributions less result, over all ranks; kNone, or why that is not known. Finds out
/// who is wrong if it is not zero.
void agreement_sum(const Name& name, LinearMode mode, const Linear& rest, ledger::Reason reason);
/// Asks, counts votes, publishes. Not in handlers.
void agreement_progress(Thread& thread);
/// Open cases.
uint64_t agreement_pending();
/// In MPI_Finalize, when no answer comes any more: decides what is open by what is known.
void agreement_end(Thread& thread);

}  // namespace resil::collective
