// SPDX-License-Identifier: Apache-2.0
//
// Which loaded object an address lies in, without the loader's lock: _dl_find_object (glibc 2.35 and later), else a
// table taken in normal context. May touch: the loader's tables, read only.
#pragma once

#include <cstddef>
#include <cstdint>

#include "shim/runtime/stacks/memory.h"

namespace resil::stacks {

/// One loaded object (executable, library, vdso). Addresses are run-time addresses.
struct Object {
  uint64_t start, end;  ///< mapped range
  uint64_t base;  ///< load bias: file address = address - base
  uint64_t dynamic;  ///< its dynamic section, 0: none
  uint64_t eh_frame_hdr;  ///< its unwind index, 0: none
  uint64_t name;  ///< address of its path as the loader has it; "" is the executable
};

/// Looks for _dl_find_object and takes the table of loaded objects. Normal context (takes the loader's lock); again
/// whenever objects may have been loaded.
void prepare_objects();

/// Whether objects loaded after the last `prepare_objects` are known. Async-signal-safe.
bool objects_are_live();

/// The object at `address`. Async-signal-safe, lock-free.
bool find_object(uint64_t address, Object* object);

/// The object's path ("the executable's path" for the executable, "?" when unreadable). Async-signal-safe.
void object_path(const Object& object, Reader& reader, char* path, size_t capacity);

/// For tests: pretend glibc is older than 2.35.
void forget_find_object_for_tests();

}  // namespace resil::stacks
