// SPDX-License-Identifier: Apache-2.0
//
// Who this process is before the MPI library has been initialised, as far as its launcher's environment tells: rank,
// size, job, launch, and whether its world was spawned. From it follow the names of report directory and segments,
// which all ranks of a job must compute alike without a message.
#pragma once

#include <cstddef>
#include <cstdint>

namespace resil {

/// The MPI library in the process: decides which launcher variables count (a rank of Open MPI under MPICH's mpirun is
/// a singleton although PMI_RANK is set). kUnknown: all count.
enum class MpiFamily : uint8_t { kUnknown, kOpenMpi, kMpich };

struct LaunchIdentity {
  int rank, size;  ///< in MPI_COMM_WORLD; -1 unknown
  int local_rank, local_size;  ///< on this node; -1 unknown
  int world;  ///< 0, or a number unique in the job and equal on all ranks of one spawned world
  char job[64];  ///< scheduler's job id, "" without one
  char launch[64];  ///< step, PMIx namespace or PMI name; equal in a world and in the worlds it spawned
  char key[72];  ///< like launch, but different for each world; names what belongs to one world only
  const char* launcher;  ///< "mpirun of Open MPI", "hydra", "srun", ..., "none"
  bool singleton;  ///< started by no launcher
  bool agreed;  ///< all ranks of the job compute the same `launch`; false: made from a process id
  MpiFamily family;
};

/// What the identity is made of; a parameter so that tests can invent it.
struct IdentitySource {
  char* const* environment;
  MpiFamily family;
  int pid, parent_pid;
  bool pmix_linked;  ///< libpmix is in the process. MPICH without it is not started by whoever set PMIX_RANK
  /// Asks hydra for the name of this job's key-value space (64 bytes or more); null or false: not known.
  bool (*kvs_name)(char* name, size_t size);
};

/// The identity of this process. Before PMPI_Init, application's thread; talks to hydra when that is the launcher.
LaunchIdentity launch_identity(MpiFamily family);
LaunchIdentity launch_identity(const IdentitySource& source);

/// A singleton of Open MPI that will spawn: its children get the environment that it has while it is inside PMPI_Init
/// (measured with 4.1.4), and from no other source could they learn its `launch`. Call the first before PMPI_Init and
/// the second after it; the application's environment is then as before. Both do nothing for everybody else.
void launch_export(const LaunchIdentity& identity);
void launch_unexport(const LaunchIdentity& identity);

/// Name of the default report directory, "resil-JOB.LAUNCH" or "resil-LAUNCH". Needs up to 136 bytes.
void directory_name(const LaunchIdentity& identity, char* name, size_t size);

}  // namespace resil
