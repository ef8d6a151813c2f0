// SPDX-License-Identifier: Apache-2.0
//
// For fault injection that changes a buffer between two looks at it.
#pragma once

#include <cstdint>

namespace resil {

/// Called when a completed transfer's data at that address has been read for the Nth time, from 1. Null otherwise. Set
/// before MPI_Init returns. Application's threads.
inline void (*buffer_looked_at)(const void* buffer, uint32_t looks) = nullptr;

}  // namespace resil
