// SPDX-License-Identifier: Apache-2.0
//
// PMIx, through the very copy of libpmix that the MPI library in the process uses, once that library has initialised
// it. Application's thread, inside MPI_Init only. Exports PMIx_Commit, which does nothing of its own at any other time.
#pragma once

#include "shim/presence/carrier.h"

namespace resil {

extern const Carrier kPmixCarrier;

/// Whether Open MPI has been told to leave MPI_Init without waiting for the other ranks (async_mpi_init): what they
/// published may then come later. After PMPI_Init. An asynchronous exchange (pmix_base_async_modex, Open MPI 6's
/// default) is waited for at the end of MPI_Init.
bool openmpi_init_is_asynchronous();

/// Whether its fence brings what others put to every rank, as it does unless told not to (pmix_base_collect_data).
bool openmpi_fence_collects();

/// Whether Slurm's PMIx server or PRRTE (Open MPI 5 and later) started this process. Their job's status is what
/// PMIx_Abort says. Where ranks of several nodes only leave with a status it is often another one: srun ends the others
/// itself (143, 137), and Open MPI 5's ranks abort with 14 when they see one of them gone.
bool pmix_takes_status();
/// Whether ORTE (Open MPI 3 and 4) started this process.
bool pmix_is_orte();

/// Asks the server to end the job with this status; may wait for its answer. Does nothing where the MPI library has not
/// initialised PMIx. Any thread, not in a signal handler.
void pmix_abort(int status);

}  // namespace resil
