// SPDX-License-Identifier: Apache-2.0
//
// The answer to who asks why a job does not go on (`resil why`, or a state dump): what is certain, else what the states
// say now, as suspected; and that the job moves, where it does. Looks only. Helper thread of the root's node.
#pragma once

#include "detectors/hang/root/root.h"

namespace resil::hang {

/// Whether a question of that number waits for an answer; numbers are CLOCK_REALTIME in ns, so that they only go up.
bool why_is_due(const Root& root, uint64_t ticket);
/// Nothing is certain: what there is to say of the states that have just come.
void why_verdict(const Root& root, double now, Verdict* verdict);
/// Ranks whose nodes have missed their first answer less than a second ago. They may only be slow: nobody accuses them.
RankSet find_just_silent(const Root& root, double now);
/// why-N.txt and why-N.json, after explain().
void answer_why(Root& root);

}  // namespace resil::hang
