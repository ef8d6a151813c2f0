// SPDX-License-Identifier: Apache-2.0
//
// How many shared objects the dynamic loader has loaded so far: when the number has not changed, no accelerator runtime
// is new in the process. glibc tells the number by dl_iterate_phdr, which takes the loader's lock; but it also lies in
// a word of the loader's data that all can read. No header says where, so the word is found by its values: see learn().
#pragma once

#include <cstdint>

namespace resil::gpu::loads {

namespace detail {
extern constinit const uint64_t* word;
}

/// The word that holds the number, which only grows; null: not found (yet). One load.
inline const uint64_t* found() { return __atomic_load_n(&detail::word, __ATOMIC_RELAXED); }

/// The number: of all namespaces, what has been unloaded included. Any thread; reads the word, or asks the loader.
uint64_t count();

/// The loader has said `count` just now. Among the words of its data one alone has the number each time that it is a
/// new one; then that word is found. It takes two numbers: one before MPI_Init, which loads things, and one after. Any
/// thread.
void learn(uint64_t count);

}  // namespace resil::gpu::loads
