// SPDX-License-Identifier: Apache-2.0
//
// Nonblocking and persistent reductions: one collective that moves the contributions, or tells where they lie
// (by_deposits.h), is started in the program's own call, whose request is the program's; what came is folded when the
// program is told that the request is complete. A second collective is never started later: MPI wants them started in
// the same order on all ranks.
#pragma once

#include "pipeline/reduction/call.h"
#include "shim/call/stages.h"

namespace resil::reduction {

/// All contributions together that travel may take this many bytes on each rank; larger reductions are the library's
/// own.
constexpr int64_t kPendingBytes = int64_t{256} << 20;

/// The module's word beside a request: a Pending.
constexpr unsigned kWord = request_word(Stage::kReduction);

/// Starts it (event.result is set), or makes the persistent request. False: nothing was done, `algorithm` says why.
bool start_pending(Event& event, const Call& call, PerThread& mine, Algorithm* algorithm);
/// After MPI returned: the request is in the shim's table, and the reduction is tied to it.
void leave_pending(Event& event);
/// MPI_Request_get_status: the program may look at the result without completing the request.
void look_at_status(Event& event);
void activating(Event& event, uint64_t* cookie);
void completed(Event& event, int64_t place, uint64_t* cookie, bool freed);
/// Likewise of a request that completes on the fast path. MPI's code.
int reduction_over(Thread& thread, uint64_t word);

/// Those that are complete and wait for the next call like theirs (repeated.h). Null: there is none.
Pending* take_spare(Pending*& spares);
/// Starts it with other buffers, which the host may touch; event.result is set.
void start_again(Event& event, Pending* spare, const void* input, void* output);
void discard(Pending* pending);

}  // namespace resil::reduction
