// SPDX-License-Identifier: Apache-2.0
//
// Names for addresses, from the dynamic symbol tables that are in memory anyway: no file, no lock, no allocation.
// Functions that an object does not export have no name there and are given as object+0xoffset, for addr2line.
#pragma once

#include <cstddef>
#include <cstdint>

#include "shim/base/safe_text.h"
#include "shim/runtime/stacks/memory.h"
#include "shim/runtime/stacks/objects.h"

namespace resil::stacks {

/// Remembers symbols and objects for the length of one dump: all threads share their outer frames. About 14 KiB,
/// preallocated; zero it by `reset`. One dump at a time.
class Symbols {
 public:
  void reset();
  /// Cuts names after `limit` bytes from now on (C++ names are long), until `reset`.
  void limit_names(size_t limit) { name_limit_ = limit; }
  /// Looks at so many symbols of an object at most from now on, until `reset`.
  void limit_search(uint64_t symbols) { search_limit_ = symbols; }
  /// Writes "name+0xoff (object)", "object+0xoff" or "0xaddress". `call_site`: the address is a return address, so
  /// the instruction before it is what is looked up. Async-signal-safe.
  void put(SafeText& text, uint64_t address, bool call_site);
  /// Writes "object+0xoff" and, where the function is exported, " (name+0xoff)". Async-signal-safe.
  void put_site(SafeText& text, uint64_t address);
  /// Writes one line for each object that was named: its short name, base and path. Async-signal-safe.
  void put_objects(SafeText& text);

 private:
  struct Entry {
    uint64_t address;  ///< looked up; 0: free
    uint64_t name;  ///< address of the symbol's name; 0: none
    uint64_t value;  ///< run-time address of the symbol
  };
  const Entry& lookup(uint64_t address, const Object& object);
  bool search(uint64_t address, const Object& object, Entry* entry);
  void put_object(SafeText& text, const Object& object);
  void put_name(SafeText& text, uint64_t offset);

  static constexpr uint32_t kEntries = 256;
  static constexpr uint32_t kObjects = 64;
  Reader reader_;
  Entry entries_[kEntries];
  Object objects_[kObjects];
  uint32_t object_count_;
  size_t name_limit_;
  uint64_t search_limit_;
  char name_[512];
};

}  // namespace resil::stacks
