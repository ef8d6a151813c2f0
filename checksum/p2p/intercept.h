// SPDX-License-Identifier: Apache-2.0
//
// Blocking calls that the module carries out by their nonblocking twins: large sends, so that the digest is taken while
// the message travels, and waits, so that a rank that waits sends its records and answers other ranks meanwhile.
#pragma once

#include <cstdint>

#include "shim/model/calls.h"

namespace resil {
struct Event;
}

namespace resil::p2p {

bool intercepts(CallId id);
bool intercept(Event& event);
/// On the way into a call that may block and is not carried out here: sends what is unsent, at most a hundredth of the
/// time (a rank that waits for long must not sit on records that others wait for).
void before_blocking(Event& event);
extern uint64_t next_flush;  ///< ticks: not before

}  // namespace resil::p2p
