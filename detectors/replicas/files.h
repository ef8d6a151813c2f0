// SPDX-License-Identifier: Apache-2.0
//
// libc's functions that open, make and remove files, as the program's objects call them: from MPI_Init on they go by
// the paths of the part (paths.h). Program's thread, in MPI_Init and later calls.
#pragma once

namespace resil::replicas {

/// `of_mpi`: what is new since the last time was loaded by MPI_Init. After paths_begin().
void files_scan(bool part_leads, bool of_mpi);
/// Looks at objects that the program has loaded since.
void files_look_again();
/// What gethostname and uname say from now on.
void files_host(const char* name);
/// For MPI_File_open and MPI_File_delete (PartHooks::file).
const char* file_of_mpi(const char* name, bool removes, int mode);

}  // namespace resil::replicas
