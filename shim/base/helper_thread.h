// SPDX-License-Identifier: Apache-2.0
//
// Threads of resil's own: detached, all signals blocked (they are the program's), a small stack. They never call MPI.
#pragma once

#include <cstdint>

namespace resil {

/// Starts one. False: the system refused. Any thread of the program, not in a signal handler; allocates in libc.
/// `name` at most 15 characters, shown by ps -L and top -H.
bool helper_thread_start(const char* name, void (*run)());

/// Told by each such thread of itself, as its first and its last act. Null: nobody wants to know.
extern void (*helper_thread_told)(int32_t tid, bool begins);

}  // namespace resil
