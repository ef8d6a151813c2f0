// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace resil {

/// Looks up the functions of libpthread where the loader found none: before glibc 2.34 a program without threads may
/// get them with the MPI of a plug-in. Called once, before the library's first thread; not async-signal-safe.
void find_threads();

/// A function of libdl where no object in sight has it (before glibc 2.34); null: libdl cannot be had.
void* find_in_libdl(const char* name);

}  // namespace resil
