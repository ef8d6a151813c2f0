// SPDX-License-Identifier: Apache-2.0
//
// Memory of flattened datatypes: blocks of any size, reused, so that a program that makes and frees datatypes in its
// time loop costs no system call after the first rounds.
#pragma once

#include <cstddef>

namespace resil {

/// At least `bytes`, 16-byte aligned, not cleared; null when the system refuses. Any thread, also inside MPI callbacks.
void* block_acquire(size_t bytes);
/// Null is allowed.
void block_release(void* memory);
/// What an acquired block really holds.
size_t block_bytes(const void* memory);

}  // namespace resil
