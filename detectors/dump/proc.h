// SPDX-License-Identifier: Apache-2.0
//
// What the kernel says about the threads of this process (/proc/self/task). Raw system calls only: async-signal-safe,
// no cancellation point. May touch: /proc, read only.
#pragma once

#include <cstddef>
#include <cstdint>

namespace resil::dump {

/// What /proc/self/task/TID tells of a thread.
struct ThreadState {
  char name[16];
  char wchan[40];  ///< kernel function it sleeps in; "" when running or not told
  char letter;  ///< R S D T t Z X…; '?' when it could not be read
  bool gone;  ///< no such thread any more
  bool blocks;  ///< blocks the signal asked about
  bool sleeping;  ///< inside a system call: `call`, `sp` and `pc` are valid
  int32_t call;  ///< system call number, -1: none (page fault and the like)
  uint64_t sp, pc;  ///< user registers at the system call
};

/// Reads the state of one thread. `signal`: for `blocks`. `scratch`: 2 KiB or more.
void read_thread(int32_t tid, int signal, ThreadState* state, char* scratch, size_t scratch_bytes);

}  // namespace resil::dump
