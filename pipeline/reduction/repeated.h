// SPDX-License-Identifier: Apache-2.0
//
// Small reductions come again and again, with the same arguments but for the buffers. What was found out about such a
// call when it was first executed through node-local memory holds as long as handles do, and is kept here: a
// repetition compares the arguments, shows its contribution, looks at the others' and folds.
#pragma once

#include "pipeline/reduction/node.h"

namespace resil::reduction {

/// A thread's table.
Repeated* repeated_make();
void repeated_drop(Repeated* table);

/// The call has been executed by node memory: may the next one like it go the short way?
void repeated_learn(const Event& event, const Call& call, NodeGroup& group, PerThread& mine, Algorithm algorithm);
/// False: not known; nothing has been done.
bool repeated_execute(Event& event, PerThread& mine);

}  // namespace resil::reduction
