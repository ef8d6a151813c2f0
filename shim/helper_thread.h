// SPDX-License-Identifier: Apache-2.0
//
// Threads of resil's own: detached, all signals blocked (they are the program's), a small stack. They never call MPI.
#pragma once

namespace resil {

/// Starts one. False: the system refused. Any thread of the program, not in a signal handler; allocates in libc.
/// `name` at most 15 characters, shown by ps -L and top -H.
bool helper_thread_start(const char* name, void (*run)());

}  // namespace resil
