// SPDX-License-Identifier: Apache-2.0
//
// Reading memory that may not be there. A dump follows pointers from a stack that may be broken and from objects that
// may just be unloaded; a fault in the handler would kill a healthy program. So every such read goes through here.
// May touch: nothing but the memory asked for. All functions but `prepare_memory` are async-signal-safe.
#pragma once

#include <cstddef>
#include <cstdint>

namespace resil::stacks {

/// Finds out how this kernel lets a page be tested (some emulators and sandboxes lie). Normal context, once.
/// Returns whether reads can be guarded; without it no read succeeds.
bool prepare_memory();

struct Object;

/// Another process, by its own functions (remote.h).
struct OtherProcess {
  bool (*read)(OtherProcess& of, uint64_t address, void* to, size_t size);
  bool (*find_object)(OtherProcess& of, uint64_t address, Object* object);
};

/// Guarded reads with a small cache of pages known to be readable. One per thread and use, short-lived: the cache is
/// right only as long as nobody unmaps the pages.
class Reader {
 public:
  /// Forgets all pages. `other`: reads that process instead of this one; must outlive the use.
  void reset(OtherProcess* other = nullptr);
  /// The object at `address`, of the process that is read.
  bool find(uint64_t address, Object* object) const;
  /// Copies `size` bytes from `address` to `to`; false (and `to` untouched or partly written) when unreadable.
  bool read(uint64_t address, void* to, size_t size);
  template <class T>
  bool load(uint64_t address, T* to) {
    return read(address, to, sizeof(T));
  }
  /// Copies a NUL-terminated string, cut after `capacity` - 1 bytes. False when its first byte is unreadable.
  bool text(uint64_t address, char* to, size_t capacity);

 private:
  bool readable(uint64_t page);
  static constexpr int kPages = 8;
  OtherProcess* other_ = nullptr;
  uint64_t pages_[kPages];  ///< direct-mapped cache of page addresses; 0: none
};

}  // namespace resil::stacks
