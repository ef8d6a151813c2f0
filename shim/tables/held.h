// SPDX-License-Identifier: Apache-2.0
//
// Operators and datatypes that resil still needs although the program may free them: a program may do so as soon as a
// nonblocking call has returned. Freeing is put off until the last operation that uses the handle is complete, so that
// a user's operator sees the very handle that the program passed. Any thread; locks for a few instructions, never
// across an MPI call.
#pragma once

#include <cstdint>

namespace resil {

enum class HeldKind : uint8_t { kOp, kType };

/// Every hold() needs its let_go(), which calls MPI when the program has freed the handle meanwhile. False: too many
/// different handles (1,024) are held.
bool hold(HeldKind kind, uint64_t handle);
void let_go(HeldKind kind, uint64_t handle);

/// The program frees the handle. True: it is held, and will be freed later.
bool free_later(HeldKind kind, uint64_t handle);

/// Is anything held? So that frees need not ask.
extern uint32_t held_count;

}  // namespace resil
