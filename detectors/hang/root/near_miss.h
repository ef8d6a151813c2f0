// SPDX-License-Identifier: Apache-2.0
//
// What may have been meant by the receives of a verdict. Helper thread of the root's node.
#pragma once

#include "detectors/hang/monitor/rounds.h"
#include "detectors/hang/verdict/verdict.h"

namespace resil::hang {

constexpr uint32_t kMostSearches = 8;

/// What to ask all nodes for; 0: the verdict names no message.
uint32_t near_miss_questions(const Verdict& verdict, SearchQuestion* questions);
/// Adds to the verdict what comes closest to each of these messages, if anything does.
void add_near_misses(const FoundMessage* found, uint32_t count, Verdict* verdict);

}  // namespace resil::hang
