// SPDX-License-Identifier: Apache-2.0
//
// PMIx, through the very copy of libpmix that the MPI library in the process uses. Application's thread, inside
// MPI_Init only.
#pragma once

#include "shim/presence/carrier.h"

namespace resil {

extern const Carrier kPmixCarrier;

/// Whether Open MPI has been told to leave MPI_Init without waiting for the other ranks (async_mpi_init, async_modex):
/// what they published may then come later. After PMPI_Init.
bool openmpi_init_is_asynchronous();

}  // namespace resil
