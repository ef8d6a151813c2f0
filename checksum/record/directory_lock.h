// SPDX-License-Identifier: Apache-2.0
//
// Whose directory is it? Internal to checksum/record/; directory_lock() is in writer.h.
#pragma once

#include "checksum/record/format.h"

namespace resil::record {

/// After directory_lock() by all ranks: has it been made ready for this launch? Reads recording.json.
bool directory_is_locked(const char* directory, const char* launch, Problem* problem);

}  // namespace resil::record
