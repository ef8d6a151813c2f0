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
/// The directory is there, but nothing can be written in it: this rank goes without files. `error`: errno.
void directory_give_up(int error);
/// Are the reports of this node's ranks merged into one node-HOST.jsonl (above 64 ranks a node or 1,024 a job)?
bool directory_merges();

}  // namespace resil
