// SPDX-License-Identifier: Apache-2.0
//
// What the two ways of a collective's check share: the general one (collective.cpp) and the fast path
// (fast_path.cpp).
#pragma once

#include <atomic>
#include <cstdint>

#include "checksum/ledger/ledger.h"
#include "shim/tables/tables.h"

namespace resil::collective {

using ledger::Reason;

/// What the report counts: calls (persistent: starts) of this rank.
struct Counts {
  uint64_t checked, agreement_only, nothing, failed, uncovered[static_cast<unsigned>(Reason::kCount)];
};
extern Counts counts;

/// Communicators on which a call failed: this rank's numbering may no longer be the other ranks'. More than
/// collective.cpp remembers: all are taken for lost.
extern std::atomic<uint32_t> lost_count;

/// Can anything on this communicator be compared?
inline Reason comm_reason(const CommInfo& comm) {
  if (!ledger::connected()) return Reason::kNotConnected;
  return comm.index < 2 || (comm.ring->flags & 2) != 0 || comm.size < 0 ? Reason::kUnknownCommunicator : Reason::kNone;
}

}  // namespace resil::collective
