// SPDX-License-Identifier: Apache-2.0
//
// Whose directory is it? Internal to checksum/record/; directory_claim() is in writer.h.
#pragma once

#include "checksum/record/format.h"

namespace resil::record {

/// After directory_claim() by all ranks: has it been made ready for this launch? Reads recording.json.
bool directory_is_claimed(const char* directory, const char* launch, Problem* problem);

}  // namespace resil::record
