// SPDX-License-Identifier: Apache-2.0
//
// Results that must be equal everywhere: the history of what this rank got, and what happens when a parent in the tree
// finds that its child got something else. A case asks other ranks of the communicator what they got and votes.
#pragma once

#include <cstdint>

#include "checksum/collective/findings.h"

namespace resil::collective {

void agreement_connect();

/// One result, kept among the last 1,024. `orders`: a floating minimum or maximum, which NaNs make arbitrary; `nan`:
/// the own contribution holds one.
void agreement_note(const Name& name, uint64_t digest, bool orders, bool nan);
/// Asks, counts votes, publishes. Not in handlers.
void agreement_tend(Thread& thread);
/// Open cases.
uint64_t agreement_pending();

}  // namespace resil::collective
