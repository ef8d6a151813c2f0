// SPDX-License-Identifier: Apache-2.0
//
// Whether something was found anywhere in this job, as far as this rank can see: by a mark in the report directory,
// which the first rank that found something makes before it goes into MPI_Finalize, and by the files of hang detection.
// Nobody waits.
//
// Application's thread, around MPI_Finalize.
#pragma once

namespace resil {

/// This rank goes into MPI_Finalize. Makes the mark if it has findings.
void found_mark();
/// Findings of this rank, the mark, or a hang's file. Ranks on nodes that do not share the directory are not seen.
bool found_any();

}  // namespace resil
