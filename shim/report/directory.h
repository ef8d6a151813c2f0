// SPDX-License-Identifier: Apache-2.0
//
// Where this rank's files go. A directory holds the reports of one launch. Before MPI_Init each rank looks for the one
// that its launch has claimed, or claims one; what a launcher tells before MPI_Init may be the same for two launches,
// so afterwards all ranks take over the choice of the lowest one that has a directory, and move.
//
// Application's thread, in MPI_Init and MPI_Finalize.
#pragma once

#include <cstddef>
#include <cstdint>

#include "shim/presence/identity.h"

namespace resil {

constexpr size_t kPlaceText = 112;  ///< longest name of a directory that is made here, with its zero byte

/// Finds and makes the report directory; sets runtime.directory, "" when it cannot be written (directory_problem()).
void directory_prepare(const LaunchIdentity& identity);
/// Why there is none: "PATH: reason"; "" when there is one.
const char* directory_problem();
/// The directory is there, but nothing can be written in it: this rank goes without files. `error`: errno.
void directory_give_up(int error);
/// Does this rank's report go into the file of its node? Above 64 ranks a node or 1,024 a job from the first one on;
/// else (RESIL_FILES) when the rank knows its directory, at the end of MPI_Init.
bool directory_merges();
/// It has been written there: the file of this rank alone, if it had one, is removed.
void directory_merged();
/// Its name: node-HOST-ID.jsonl, where ID tells apart machines and containers that share a host name.
constexpr size_t kNodeFileText = 96;
void directory_node_file(char* name);

/// What this rank has chosen, for the others: the claim's id (0: no directory) and the directory's name below RESIL_DIR
/// or the working directory ("": RESIL_DIR itself).
uint64_t directory_lock_id();
const char* directory_place();
/// What the ranks of this world have chosen, in ascending order of rank, this one's included. The first choice that is
/// seen here too (on nodes that share no file system those of other nodes are not) holds for this rank.
void directory_offer(uint64_t claim, const char* place);
/// Moves there, if need be. Then, once for the job, says where the reports are when that is not where one would look.
void directory_settle();
/// This file has been written as this rank's report: what is removed when the rank moves.
void directory_wrote(uint64_t device, uint64_t inode);

}  // namespace resil
