// SPDX-License-Identifier: Apache-2.0
//
// The flattened datatype (shim/model/datatype/type_map.h) behind a handle, made once and kept as long as MPI keeps the
// type.
#pragma once

#include "shim/model/datatype/type_map.h"
#include "shim/tables/tables.h"

namespace resil {

const TypeMap* type_map_slow(Thread& thread, uint64_t type);

/// The flattened datatype; null: cannot be flattened (more than a million runs, unknown constructor, no memory, x86
/// long doubles among other data): count the message as uncovered, reason "datatype". `type` must be an argument of the
/// program's current call. May ask MPI the first time, takes 1 to 2 ns afterwards. Valid while the type is; hold it for
/// what goes on after the call, and while the call waits (another thread may free the type meanwhile).
inline const TypeMap* type_map(Thread& thread, uint64_t type) {
  const TypeCacheEntry& entry = thread.types[(type ^ (type >> 9)) % kTypeCache];
  if (entry.handle == type && entry.map != nullptr &&
      thread.type_generation == handle_generation.load(std::memory_order_relaxed)) [[likely]]
    return entry.map;
  return type_map_slow(thread, type);
}

/// The same without asking MPI: null, too, when it is not in the thread's cache.
inline const TypeMap* type_map_cached(const Thread& thread, uint64_t type) {
  const TypeCacheEntry& entry = thread.types[(type ^ (type >> 9)) % kTypeCache];
  const bool is = entry.handle == type && thread.type_generation == handle_generation.load(std::memory_order_relaxed);
  return is ? entry.map : nullptr;
}

/// Keeps the map although the program frees the type; any thread. Free of cost for predefined types.
void type_map_hold(const TypeMap* map);
void type_map_release(const TypeMap* map);

}  // namespace resil
