// SPDX-License-Identifier: Apache-2.0
//
// What the root asks of the monitor it belongs to. Helper thread.
#pragma once

#include "detectors/hang/monitor/rounds.h"

namespace resil::hang {

/// Starts a round; root_finished is called when it is over, at once in a job of one node. False: not now.
bool monitor_ask(Round kind, const void* payload, uint32_t bytes);
/// A name that this node knows itself; false: ask the others.
bool monitor_local_name(const NameQuestion& question, char* text, uint32_t bytes);
/// Every node makes its ranks leave with exit status 92.
void monitor_order_abort();

}  // namespace resil::hang
