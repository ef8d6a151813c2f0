// SPDX-License-Identifier: Apache-2.0
//
// Whether a process is there and what it does. Any thread, no signal handler. May touch: /proc, read only.
#pragma once

#include <cstddef>
#include <cstdint>

namespace resil {

/// The fields of /proc/PID/stat behind the process's name, which may hold anything, into `text`: from the state's
/// letter on; "" if there are none. Null: there is no such process.
const char* process_fields(int pid, char* text, size_t bytes);
/// Start time of a process in clock ticks after boot (field 22 of /proc/PID/stat), 0 when there is no such process (any
/// more).
uint64_t process_start_time(int pid);
/// State letter of that process (R, S, D, T, t, ...), 0 when it is gone; `started` as above, so that a reused pid is
/// not taken for it.
int process_state(int pid, uint64_t started);

}  // namespace resil
