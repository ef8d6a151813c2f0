// SPDX-License-Identifier: Apache-2.0
//
// Which ranks of the job are preloaded, known before resil sends its first message: a collective among ranks of which
// some are not preloaded would hang the job.
//
// Each rank publishes one line before PMPI_Init, or with PMIx inside it; the MPI library's own fence inside PMPI_Init
// makes it visible; after PMPI_Init each rank reads the others' lines without waiting for them. No fence of our own, no
// time-out. A carrier that fails costs what it was for, never the job. Carriers in this order: PMIx, PMI-1 on hydra's
// descriptor, files in the report directory.
//
// Context: application's thread, inside the wrapper of MPI_Init; presence_close in that of MPI_Finalize.
#pragma once

#include <cstddef>
#include <cstdint>

#include "shim/presence/identity.h"

namespace resil {

/// Publishes `value` (up to 350 characters) before PMPI_Init. `directory`: absolute report directory of the world's
/// root, made when files are needed; null or "" rules files out. False: nobody will see this rank as preloaded. True:
/// they will, unless PresenceVerdict::published says otherwise.
/// A singleton needs no carrier and succeeds.
bool presence_publish(const LaunchIdentity& identity, const char* directory, const char* value);

struct PresenceVerdict {
  const char* carrier;  ///< "PMIx", "PMI-1", "files", "none" (nothing was published; all others then count as missing)
  int missing;  ///< ranks without a value, this one included when it could not publish
  bool published;  ///< this rank's value has gone out
  bool synchronised;  ///< the MPI library waits for all ranks in MPI_Init. False: other ranks may have seen less
                      ///< than this one, so that even `missing` == 0 allows local work only
};

/// Reads the values after PMPI_Init and calls `visit` for every rank in ascending order, with null for a rank that has
/// none. `rank` and `size` are MPI's own. Call it once, between PMPI_Init and PMPI_Finalize. O(size), about 10
/// microseconds (PMIx, PMI-1) or one open (files) a rank.
PresenceVerdict presence_collect(int rank, int size, void (*visit)(int rank, const char* value, void* context),
                                 void* context);

/// After PMPI_Finalize, or a PMPI_Init that failed: removes this rank's file, if files were the carrier, and forgets
/// what was to be published. May be called without any call before.
void presence_close();

}  // namespace resil
