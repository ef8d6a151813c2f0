// SPDX-License-Identifier: Apache-2.0
//
// What the root does with timers that have expired (wait_errors.h): has the nodes of those who wait ping the node of
// the rank that they wait for, has others vote where nothing comes back, says what came of it in hang.log, and adds it
// to a verdict that it explains. It makes no verdict: the network of the probes need not be the program's. Helper
// thread of the root's node.
#pragma once

#include "detectors/hang/root/root.h"

namespace resil::hang {

/// After the states of all ranks have come: whom to probe.
void plan_probes(Root& root, double now);
/// What the nodes say of their probes.
void note_probes(Root& root, const ProbeAnswer* answers, uint32_t count, double now);
/// Ways that are broken, to a verdict about the library or network; the vote about nodes that give no answer.
void add_ways(const Root& root, Verdict* verdict);

}  // namespace resil::hang
