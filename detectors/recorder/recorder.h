// SPDX-License-Identifier: Apache-2.0
//
// The flight recorder: what the last calls of each thread were, readable after the process is gone. The user records
// of resil.h (steps, norms, checksums, counts) go through here as well.
#pragma once

#include <cstdint>

#include "shim/ring/ring_format.h"

namespace resil {

/// Appends one of resil.h's records to the calling thread's trace buffer. Interns `name` (at most 63 bytes are kept). A
/// call from a thread that never called MPI makes its trace buffer. Nothing happens when resil is not attached.
void record_user(ring::RecordState state, const char* name, uint64_t value);

}  // namespace resil
