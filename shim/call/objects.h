// SPDX-License-Identifier: Apache-2.0
//
// Whose code an address is. Any thread; the first question about an object, and its being unloaded, go to the dynamic
// loader.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "shim/call/thread.h"

namespace resil {

/// The mapped object that holds `address`, by its program headers. Asks the loader, which looks through all symbols of
/// the object: some microseconds each time.
struct Extent {
  uint64_t start, end;
  uint64_t bias;  ///< what its addresses in the file lie beneath those in memory
  const char* path;  ///< as the loader has it: "" for the program itself
  bool holds(uint64_t address) const { return address - start < end - start; }
};
bool extent_of(uint64_t address, Extent* extent);

/// A mapped object. kUnknown: none is there (generated code).
struct CodeObject {
  uint64_t start, end;
  uint64_t shift;  ///< a call site of it is the return address and this; not 0 where another object lay before
  SiteClass kind;
};
CodeObject object_at(uint64_t address);

/// Class of the first loaded object with that file name; kUnknown: none has it.
SiteClass class_of_object_named(const char* name, size_t length);

/// After an object was unloaded, or may have been: forgets what is not there any more. False: all is.
bool objects_forget_unloaded();

/// Goes up when an object that was asked about is unloaded; what was derived from object_at() before is then void.
extern std::atomic<uint32_t> objects_unloaded;

}  // namespace resil
