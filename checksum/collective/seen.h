// SPDX-License-Identifier: Apache-2.0
//
// RESIL_BLAME=full: what the ranks next to this one in the tree got as the result of a reduction. They tell each other
// before any of them looks whether its own result comes late: where all have the same, nothing does. Nothing is counted
// or found here; the records of agreement.h do that.
#pragma once

#include <cstdint>

#include "checksum/collective/findings.h"
#include "checksum/collective/tree.h"

namespace resil::collective {

/// The ranks next to this one, copied: a tree may lie in a cache.
struct Around {
  explicit Around(const Tree& tree);
  ledger::Peer* peers[32];
  uint32_t count;
  bool whole;  ///< false: some cannot be reached
};

void seen_connect();
void seen_tell(Thread& thread, const Name& name, const Around& around, uint64_t digest);
/// Have all of them told that they got this? Of the last calls.
bool seen_by_all(const Name& name, const Around& around, uint64_t digest);

}  // namespace resil::collective
