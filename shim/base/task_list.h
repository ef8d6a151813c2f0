// SPDX-License-Identifier: Apache-2.0
//
// Which threads a process has. Raw system calls only: async-signal-safe, no cancellation point. May touch: /proc, read
// only.
#pragma once

#include <cstddef>
#include <cstdint>

namespace resil {

/// Fills `tids` with the threads of process `pid` (0: this one), at most `capacity`; returns how many there are (may be
/// more), -1 when /proc cannot be read. `scratch`: 1 KiB or more.
int list_threads(int pid, int32_t* tids, int capacity, char* scratch, size_t scratch_bytes);

}  // namespace resil
