// SPDX-License-Identifier: Apache-2.0
//
// Memory for copies of packets, never returned to the system: a communication library may have registered it. Any
// thread inside an MPI wrapper.
#pragma once

#include "shim/runtime/block_pool.h"

namespace resil::fault {

/// Aligned to 64.
inline constinit memory::BlockPool<memory::BlockRules{.header = 64, .least = 12, .most = 47}> pool;

}  // namespace resil::fault
