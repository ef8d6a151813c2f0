// SPDX-License-Identifier: Apache-2.0
//
// Where this rank's files go.
#pragma once

#include <cstddef>

#include "shim/presence/identity.h"

namespace resil {

/// Finds and makes the report directory; sets runtime.directory, "" when it cannot be written (directory_problem()).
void directory_prepare(const LaunchIdentity& identity);
/// Why there is none: "PATH: reason"; "" when there is one.
const char* directory_problem();
/// Are the reports of this node's ranks merged into one node-HOST.jsonl (above 64 ranks a node or 1,024 a job)?
bool directory_merges();

}  // namespace resil
