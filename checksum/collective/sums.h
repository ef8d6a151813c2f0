// SPDX-License-Identifier: Apache-2.0
//
// Sums of linear digests up the binomial tree: every rank adds (contribution - its part of the result); at rank 0 of
// the communicator the sum over all ranks must be zero.
#pragma once

#include <cstdint>

#include "checksum/collective/findings.h"
#include "checksum/collective/linear.h"
#include "checksum/collective/tree.h"

namespace resil {
class JsonWriter;
}

namespace resil::collective {

bool sums_prepare();
void sums_connect();

/// This rank's part. `reason`: kNone, or why there is none: the sum is then given up by all.
void sums_own(Thread& thread, const Name& name, const Tree& tree, LinearMode mode, const Linear& part,
              ledger::Reason reason);
/// At the root of the tree, before its own part is in: would the sum vanish with it? False: or it is not complete yet.
bool sums_vanish_with(const Name& name, const Tree& tree, LinearMode mode, const Linear& part);
/// Passes on what is complete now. Not in handlers.
void sums_progress(Thread& thread);
/// In MPI_Finalize: takes out a sum that waits for a rank which has told all that it ever will, and returns that rank;
/// null: there is none (any more).
ledger::Peer* sums_take_unanswered(bool (*has_told_all)(const ledger::Peer&), Name* name);
/// Ranks whose parts are awaited, at most so many.
uint32_t sums_awaited(int32_t* ranks, uint32_t most);
bool sums_ready();  ///< is there something for it?
/// Sums that this rank has contributed to and not passed on.
uint64_t sums_pending();
/// Records for which there was no memory.
uint64_t sums_lost();

}  // namespace resil::collective
