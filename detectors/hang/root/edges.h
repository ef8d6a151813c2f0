// SPDX-License-Identifier: Apache-2.0
//
// Who waits for whom, as the states say it: the edges of hang-N.json and why-N.json. Helper thread of the root's node.
#pragma once

#include "detectors/hang/root/root.h"
#include "shim/report/json.h"

namespace resil::hang {

/// Whether this rank is a member, by its own account, and has not come to that call.
bool has_not_come(const RankState* state, uint64_t comm, uint64_t sequence);
/// Member `edges`: for a message one object a wait, for a collective one object for all who wait in that call.
void write_edges(JsonWriter& json, Root& root);

}  // namespace resil::hang
