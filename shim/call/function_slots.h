// SPDX-License-Identifier: Apache-2.0
//
// The slots by which the program's own objects call functions of other objects (PLT and GOT): for modules that put a
// function of resil's own in the place of one of libc's without exporting its name. Slots of libc, the loader, what is
// preloaded, the MPI library and what only it needs are not looked at.
//
// Program's thread, in MPI_Init and later in any call after objects were loaded; takes the loader's lock, maps memory.
#pragma once

#include <cstdint>

namespace resil {

/// One slot, as it is found.
struct FunctionSlot {
  const char* name;  ///< of the function that it is for
  uint64_t now;  ///< what it holds
  bool bound;  ///< that is the function already: it is bound at load, or was called
  bool jump;  ///< it is for calls alone; else the program may keep the function's address
  bool bound_at_load;  ///< all of the object's are
  bool language;  ///< of a library of a language (libgfortran, libstdc++), which stands for the program
  bool executable;  ///< of the executable itself
  bool first;  ///< in the first scan
  void* instead;  ///< what it is to hold from now on
  const void* scan;  ///< the scan's own

  /// Does that function lie in an object of the program's?
  bool is_programs(uint64_t function) const;
};

/// Those of one user. Zero-initialised.
struct FunctionSlots {
  enum class Whose : uint8_t { kUnknown, kProgram, kRuntime, kMpi, kNobody };
  /// Kept from scan to scan; an object is known by where it lies and its name.
  struct Known {
    uint64_t base, name;
    Whose whose;
    bool done;
  };
  Known* known;
  uint32_t known_count, known_room;
  bool scanned;

  /// Looks at the objects that are new since the last time. `of_mpi`: those were loaded by MPI_Init. `look` is asked
  /// about each slot; true: the slot is to hold `instead`. Inside the loader's lock: it may not call the loader.
  void scan(bool of_mpi, bool (*look)(FunctionSlot& slot, void* context), void* context);
};

}  // namespace resil
