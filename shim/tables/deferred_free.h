// SPDX-License-Identifier: Apache-2.0
//
// Operators and datatypes that resil still needs although the program may free them: a program may do so as soon as a
// nonblocking call has returned. Freeing is put off until the last operation that uses the handle is complete, so that
// a user's operator sees the very handle that the program passed. Any thread; locks for a few instructions, never
// across an MPI call.
#pragma once

#include <cstdint>

namespace resil {

enum class FreedKind : uint8_t { kOp, kType };

/// Every keep_handle() needs its release_handle(), which calls MPI when the program has freed the handle meanwhile.
/// False: too many different handles (1,024) are held.
bool keep_handle(FreedKind kind, uint64_t handle);
void release_handle(FreedKind kind, uint64_t handle);

/// The program frees the handle. True: it is held, and will be freed later.
bool defer_handle_free(FreedKind kind, uint64_t handle);

/// Is anything held? So that frees need not ask.
extern uint32_t deferred_free_count;

}  // namespace resil
