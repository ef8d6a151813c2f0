// SPDX-License-Identifier: Apache-2.0
//
// Memory for collectives that outlive their call: at most 64 MiB in all, so that a program with many open ones loses
// checks and not its memory.
#pragma once

#include "shim/runtime/block_pool.h"

namespace resil::collective {

/// Aligned to 64 at least; a cookie keeps flags in the low bits of such an address.
inline constinit memory::BlockPool<memory::BlockRules{
    .header = 0, .least = 9, .most = 24, .chunk = 64 << 10, .bound = 64 << 20}>
    pool;

}  // namespace resil::collective
