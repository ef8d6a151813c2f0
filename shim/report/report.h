// SPDX-License-Identifier: Apache-2.0
//
// The rank's report file.
#pragma once

namespace resil {

/// `schema_version` of rank-*.json: goes up when a member is renamed or removed.
constexpr int kReportSchema = 1;

/// Writes rank-NNNNN.json (or appends to node-HOST-ID.jsonl) with that outcome: `running`, `finished`, `aborted`,
/// `stopped`. Valid JSON at any time: written aside, then renamed. False: not written (said once).
bool report_write(const char* outcome);

/// The first one, before the ranks know of each other. When it cannot be written the rank goes without files, and the
/// job says it once (presence) instead of every rank.
void report_first();

/// The process exits within MPI_Init.
void report_exit_in_init(int status);

/// The last report, the ring beside it, and rank 0's closing line.
void report_final(const char* outcome);

/// What a module has to say in the job's last line, before the directory; from its `report`. Copied. `complete`: false
/// where checks were asked for and not all were made, so that the line does not begin with CLEAN.
void report_last_words(const char* text, bool complete = true);

}  // namespace resil
