// SPDX-License-Identifier: Apache-2.0
//
// Memory for collectives that outlive their call: blocks of powers of two, kept for the next one, 64 MiB in all.
#pragma once

#include <cstddef>

namespace resil::collective {

/// At least `bytes`, aligned to 64; null: refused. Maps memory until as much is in use as ever was. Any thread.
void* memory_take(size_t bytes);
/// `bytes` as they were asked for.
void memory_give(void* memory, size_t bytes);

}  // namespace resil::collective
