// SPDX-License-Identifier: Apache-2.0
//
// Standard input, which launchers give to one rank: what part 0's first rank reads, the first rank of each other part
// reads, too. Program's thread, in MPI_Init; then a thread of resil's own in each of these ranks.
#pragma once

namespace resil::replicas {

/// Of the first rank of a part. `file`: where the input is kept, in a directory that all of them see.
void input_begin(bool leads, const char* file);
/// Of part 0's: removes the file.
void input_end();

}  // namespace resil::replicas
