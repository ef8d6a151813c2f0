// SPDX-License-Identifier: Apache-2.0
//
// Entries of the request table: what it keeps beside those of the ring file, how their fields are read and written, and
// where one was found.
// Used by request_table.cpp alone.
#pragma once

#include <cstdint>

#include "shim/call/module.h"
#include "shim/ring/ring_format.h"
#include "shim/tables/request_overflow.h"
#include "shim/tables/request_serial.h"
#include "shim/tables/tables.h"

namespace resil::request_entry {

/// The modules' words, 0: none.
struct alignas(kRequestStride * sizeof(uint64_t)) Cookies {
  uint64_t word[kRequestWords];
};
inline void copy(uint64_t* to, const uint64_t* from) {
  for (unsigned i = 0; i < kRequestWords; ++i) to[i] = from[i];
}
inline void clear(uint64_t* words) {
  for (unsigned i = 0; i < kRequestWords; ++i) words[i] = 0;
}

// Loaded and stored as single words: another thread may look at an entry that it thinks is its own.
template <class T>
inline T load(const T& field) {
  return __atomic_load_n(&field, __ATOMIC_RELAXED);
}

template <class T>
inline void store(T& field, T value) {
  __atomic_store_n(&field, value, __ATOMIC_RELAXED);
}

/// Of two entries of one key, is `a` the one that is meant by who asks?
inline bool better(const ring::Request& a, const ring::Request& b, RequestAsker asker) {
  return asker.prefers(load(a.serial), load(a.trace) == asker.trace, load(b.serial), load(b.trace) == asker.trace);
}

/// Where the entry of a key is: in the first level (`index`), in the second (`entry` and its `state`), or nowhere.
struct Found {
  uint32_t index;
  OverflowEntry* entry;
  OverflowState state;
};

}  // namespace resil::request_entry
