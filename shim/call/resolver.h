// SPDX-License-Identifier: Apache-2.0
//
// The dynamic loader's side of the shim. Not for the call path.
#pragma once

namespace resil {

/// A function of the MPI library by name (next in the PMPI_ or MPI_ layer), null when it has none.
void* mpi_function(const char* name);

/// How many MPI libraries (objects that define PMPI_Init) are loaded. Takes the loader's lock.
unsigned count_mpi_libraries();

/// Functions by which an object is known as the MPI library's own. Open MPI 6 has its core in a library apart, which
/// programs are linked with, too.
inline constexpr const char* kOfMpi[] = {"PMPI_Init", "PMPI_Get_library_version", "ompi_mpi_init"};

}  // namespace resil
