// SPDX-License-Identifier: Apache-2.0
//
// What the program reads that no recording holds: clocks, random devices, process ids, memory use, dates of files, the
// order of its own threads. Verify proves a cause only while none of these has been read in this rank.
//
// No symbol is exported for it: in `before_init` of a run that is verified (or recorded with RESIL_RECORD_TIME=all) the
// slots by which the program's own objects call these functions (PLT and GOT) are pointed at stubs, which count, keep
// the first call's return address, and jump on. The slots of libc, the loader, the MPI library and what only it needs
// stay as they are, so that calls of theirs do not count; a process in any other mode is untouched. What was called
// before MPI_Init is known by the loader: slots that are bound lazily hold the function from its first call on.
#pragma once

#include <cstddef>
#include <cstdint>

#include "shim/report/finding.h"

namespace resil {
class JsonWriter;
}

namespace resil::record {

enum class Source : uint8_t { kNone, kClock, kRandom, kProcessId, kMemoryUse, kFileDates, kThreads };

/// How a name is treated.
enum SourceFlag : uint8_t {
  kInRuntimes = 1,  ///< also in libraries of a language (libgfortran, libstdc++, libgomp), which stand for the program
  kPath = 2,  ///< opens a file: counts if it is a random device or lies in /proc
  kPathSecond = 4,  ///< its name is the second argument
  kSystemCall = 8,  ///< syscall(): by its number
  kLoads = 16,  ///< loads objects, whose slots are looked at in the next call
  kGivenBack = 32,  ///< a clock that RESIL_RECORD_TIME=all records and gives back: then in runtimes, too
  kInside = 64,  ///< of a language's library, which reads such a clock: left alone then
};

struct SourceName {
  const char* name;
  Source source;
  uint8_t flags;
};

/// A function of the table, as the stubs see it (source_stubs.cpp): 32 bytes.
struct SourceSlot {
  uint64_t count;  ///< calls; several threads may lose some
  uint64_t site;  ///< return address of the first
  void* real;
  uint32_t before;  ///< bit 0: called before MPI_Init; bit 1: bound at load, may have been
  uint32_t reserved;
};
static_assert(sizeof(SourceSlot) == 32);

constexpr unsigned kMostSources = 100;
extern const SourceName kSourceNames[];
extern const unsigned kSourceCount;
/// Index of the row with that name; kSourceCount: there is none.
unsigned source_row(const char* name);

/// Looks at the objects that are loaded. `of_mpi`: what is new since the last time was loaded by MPI_Init. `clocks`:
/// functions of clocks.cpp take the place of the program's clocks. On the program's thread; takes the loader's lock,
/// maps memory.
void sources_scan(bool of_mpi, bool clocks);
/// Threads of the program that are there before MPI_Init. Reads /proc.
void sources_count_threads();
/// Has the program loaded objects since the last scan? Two loads.
bool sources_stale();

/// Whether any source is open in this rank, threads included.
bool sources_open();
/// One line of evidence each, up to `most`: "clock: time was called 3 times, first at app+0x1234". Returns how many
/// there are. May ask the loader.
unsigned sources_add(Finding& finding, unsigned most);
/// "clock (time, 3 calls), process id (getpid, 1 call)".
void sources_text(char* text, size_t bytes);
void sources_report(JsonWriter& json);

// --- source_stubs.cpp
void* source_stub(unsigned index, bool checked);

// --- clocks.cpp
/// What takes the place of a clock of libc; null: nothing does.
void* clock_stand_in(const char* name);
/// For these: the function itself, and that the program was told what no recording holds.
void* source_real(const char* name);
void source_read(const char* name, uint64_t site);

}  // namespace resil::record

/// By the stubs' index. Hidden.
extern "C" [[gnu::visibility("hidden")]] resil::record::SourceSlot resil_source_slots[resil::record::kMostSources];
