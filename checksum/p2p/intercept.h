// SPDX-License-Identifier: Apache-2.0
//
// Blocking calls that the module carries out by their nonblocking twins: large sends, so that the digest is taken while
// the message travels, and waits, so that a rank that waits sends its records and answers other ranks meanwhile.
#pragma once

#include <cstdint>

#include "shim/model/calls.h"

namespace resil {
struct Event;
struct Thread;
}

namespace resil::p2p {

bool intercepts(CallId id);
bool intercept(Event& event);
/// Is that so of this wait? Else what others may wait for is handed over, since all wait in MPI then.
bool waits_by_tests(Thread& thread, const void* requests, int64_t count);
constexpr uint64_t kOverlapBytes = 32768;  ///< sends from this size on are digested while they travel
/// Strict: Open MPI's MPI_Send of more waits until the receiver has taken it.
constexpr uint64_t kAnnounceBytes = 512;
/// On the way into a call that may block and is not carried out here: sends what is unsent, at most a hundredth of the
/// time (a rank that waits for long must not sit on records that others wait for).
void before_blocking(Event& event);
extern uint64_t next_flush;  ///< ticks: not before

}  // namespace resil::p2p
