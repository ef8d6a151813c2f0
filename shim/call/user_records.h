// SPDX-License-Identifier: Apache-2.0
//
// Records that the application makes by resil.h (steps, norms, checksums, counts), in the flight recorder beside the
// calls' own.
#pragma once

#include <cstdint>

#include "shim/ring/ring_format.h"

namespace resil {

/// Appends one of resil.h's records to the calling thread's trace buffer. Interns `name` (at most 63 bytes are kept). A
/// call from a thread that never called MPI makes its trace buffer. Nothing happens when resil is not attached.
void record_user(ring::RecordState state, const char* name, uint64_t value);

}  // namespace resil
