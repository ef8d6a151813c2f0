// SPDX-License-Identifier: Apache-2.0
//
// Notes of hang detection in this rank's report, by their ids in the catalogue. Any thread inside an MPI wrapper, and
// the helper.
#pragma once

#include "detectors/hang/verdict/verdict.h"

namespace resil::hang {

/// The message of a finding that is no more than a note.
void note(const char* text);
void note(Message id, uint64_t first = 0, uint64_t second = 0);
/// A line on standard error.
void print(Message id);

}  // namespace resil::hang
