// SPDX-License-Identifier: Apache-2.0
//
// Points the slots by which the program's objects call the functions of the table (sources.cpp) at the stubs. Whose
// object one is: shim/call/function_slots.cpp.

#include <dlfcn.h>

#include "checksum/record/sources.h"
#include "shim/call/function_slots.h"

namespace resil::record {

namespace {

constinit FunctionSlots slots = {};

bool look_at_slot(FunctionSlot& slot, void* context) {
  const bool clocks = *static_cast<const bool*>(context);
  const unsigned row = source_row(slot.name);
  if (row == kSourceCount) return false;
  const unsigned flags = kSourceNames[row].flags;
  const bool given_back = clocks && (flags & kGivenBack) != 0;
  if (slot.language && !(flags & kInRuntimes) && !given_back) return false;
  if (clocks && (flags & kInside) != 0) return false;
  SourceSlot& source = resil_source_slots[row];
  if (source.real == nullptr) {
    if (!slot.bound) return false;
    source.real = reinterpret_cast<void*>(slot.now);
  }
  const auto real = reinterpret_cast<uint64_t>(source.real);
  if (slot.bound && slot.now != real) return false;  // another function of that name
  if (slot.is_programs(real)) return false;  // the program's own function of that name is no source
  const bool checked = (flags & (kPath | kSystemCall)) != 0;
  if (slot.jump && slot.bound && !checked && !(flags & kLoads)) {
    // What is bound at load is bound whether it is called or not. A library calls little before MPI_Init: only of the
    // executable that is to be feared.
    if (!slot.bound_at_load) source.before |= 1;
    else if (slot.executable && slot.first) source.before |= 2;
  }
  slot.instead = given_back ? clock_stand_in(kSourceNames[row].name) : source_stub(row, checked);
  return true;
}

}  // namespace

void sources_scan(bool of_mpi, bool clocks) {
  // Names first: the loader's functions take locks that must not be taken inside dl_iterate_phdr.
  for (unsigned i = 0; i < kSourceCount; ++i)
    if (resil_source_slots[i].real == nullptr) resil_source_slots[i].real = dlsym(RTLD_DEFAULT, kSourceNames[i].name);
  slots.scan(of_mpi, look_at_slot, &clocks);
}

}  // namespace resil::record
