// SPDX-License-Identifier: Apache-2.0
//
// Does the MPI library say that it takes device buffers?
#pragma once

namespace resil::staging {

/// Sets mode.mpi_takes_device. After MPI_Init, when the library knows.
void ask_library();

}  // namespace resil::staging
