// SPDX-License-Identifier: Apache-2.0
//
// Files in the report directory, for launchers that offer neither PMIx nor PMI-1. Application's thread, inside
// MPI_Init only.
#pragma once

#include "shim/presence/carrier.h"

namespace resil {

extern const Carrier kFilesCarrier;

}  // namespace resil
