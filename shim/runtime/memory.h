// SPDX-License-Identifier: Apache-2.0
//
// Memory from the system: the one place that maps private pages. Nothing in the library calls malloc: the program may
// be inside it, may have replaced it, or may have forked while another thread held its lock. One system call, no lock,
// no state: async-signal-safe, callable before main and in a forked child.
//
// What grows out of it: pool.h (objects of one size), block_pool.h (blocks of any size), arena.h (many at once).
// Not from here: shared mappings of files (shim/ring/), pages without access (shim/runtime/stacks/memory.cpp).
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstring>

namespace resil::memory {

/// `bytes` > 0 of zeroed pages; null: refused. Address space until touched: no commit charge is reserved, as many
/// tables are sized for the worst case and stay nearly empty.
[[gnu::noinline]] inline void* map(size_t bytes) {
  void* mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return mapped != MAP_FAILED ? mapped : nullptr;
}

/// `bytes` as mapped. Null is allowed.
inline void unmap(void* mapped, size_t bytes) {
  if (mapped != nullptr) munmap(mapped, bytes);
}

/// For types whose zeroed bytes are a valid start.
template <class T>
T* map_array(size_t count = 1) {
  return static_cast<T*>(map(count * sizeof(T)));
}

template <class T>
void unmap_array(T* mapped, size_t count = 1) {
  unmap(mapped, count * sizeof(T));
}

/// Room for `wanted` items or more, at least doubled, so that appending is cheap; false: refused, nothing has changed.
/// `*room` is 0 before the first call and `first` the room that is mapped then. Items are moved as bytes.
template <class T, class Count>
bool grow_array(T** items, Count* room, Count wanted, Count first) {
  if (wanted <= *room) return true;
  Count larger = *room != 0 ? *room : first;
  while (larger < wanted) larger *= 2;
  T* made = map_array<T>(larger);
  if (made == nullptr) return false;
  if (*room != 0) memcpy(static_cast<void*>(made), *items, *room * sizeof(T));
  unmap_array(*items, *room);
  *items = made;
  *room = larger;
  return true;
}

}  // namespace resil::memory
