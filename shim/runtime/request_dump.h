// SPDX-License-Identifier: Apache-2.0
//
// The state dump for other modules. The signal (RESIL_SIGNAL) needs none of this.
#pragma once

namespace resil {

/// Writes a dump of this process as the signal would: file, short form on standard error, all threads asked for their
/// stacks. Normal context of any thread that may be blocked for about 200 ms and by file output; not from a signal
/// handler, not in a forked child (does nothing there). `reason` appears in the dump ("a suspected hang"). When
/// another thread is dumping, that thread makes one more dump and this call returns at once. Before MPI_Init: nothing.
/// Null until MPI_Init, and where there are no dumps.
inline void (*request_dump)(const char* reason) = nullptr;

}  // namespace resil
