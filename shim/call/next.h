// SPDX-License-Identifier: Apache-2.0
//
// The real function behind one of this library's names. Any thread, no MPI.
#pragma once

namespace resil {

/// The function that the caller at `return_address` would have called without this library: its own dependencies' (two
/// CUDA runtimes of different versions may be in one process), else the next in the global order, else that of any
/// library in the process. Null: there is none. A few loads after the first call from a place.
void* next_function(const char* name, const void* return_address);

/// What dlsym finds, unless it is this library's own; null: nothing else.
void* foreign(void* handle, const char* name);

/// The next one in the global order only; looked up each time.
void* next_in_order(const char* name);

}  // namespace resil
