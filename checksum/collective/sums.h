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
/// Passes on what is complete now. Not in handlers.
void sums_progress(Thread& thread);
bool sums_ready();  ///< is there something for it?
/// Sums that this rank has contributed to and not passed on.
uint64_t sums_pending();
/// Records for which there was no memory.
uint64_t sums_lost();

}  // namespace resil::collective
