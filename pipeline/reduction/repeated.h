// SPDX-License-Identifier: Apache-2.0
//
// Small reductions come again and again, with the same arguments but for the buffers. What was found out about such a
// call when it was first executed through node-local memory holds as long as handles do, and is kept here: a
// repetition compares the arguments, shows its contribution, looks at the others' and folds. A nonblocking one takes
// over what an equal one has left that is complete; one that is the library's own affair is left to it.
#pragma once

#include "pipeline/reduction/node.h"
#include "shim/call/fast_path.h"

namespace resil::reduction {

/// A thread's table.
Repeated* repeated_make();
void repeated_drop(Repeated* table);

/// The call has been executed by node memory: may the next one like it go the short way?
void repeated_learn(const Event& event, const Call& call, NodeGroup& group, PerThread& mine, Algorithm algorithm);
/// Likewise of a call that the library's result is good enough for.
void repeated_learn_safe(const Event& event, PerThread& mine);

/// Of a nonblocking reduction: where those like it are kept once they are complete.
struct SpareKind {
  uint64_t number;  ///< of all kinds of all threads; 0: it is not kept
  unsigned entry;
};
/// The one of this call.
SpareKind repeated_learn_started(const Event& event, const Call& call, PerThread& mine, Algorithm algorithm);
/// Null: there are none of that kind any more in this thread.
Pending** repeated_spares(PerThread& mine, const SpareKind& kind);

/// kUnknown: nothing has been done.
fast::Instead repeated_execute(Event& event, PerThread& mine);

}  // namespace resil::reduction
