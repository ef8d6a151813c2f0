// SPDX-License-Identifier: Apache-2.0
//
// Standard output of a rank, and what another part needs to lead in its place (docs/REPLICAS.md, "When a rank hangs or
// dies"). Program's thread; a thread of resil's own in each rank, `resil-output`.
#pragma once

#include <cstddef>
#include <cstdint>

namespace resil::replicas {

/// Where a rank is in the program, as its own thread says it while somebody asks.
struct At {
  uint64_t place, beat;  ///< times_place(); more each time
  double longest;  ///< seconds from one call to the next, at most
};

/// In MPI_Init, after the split, before followers are silenced: what the rank writes to standard output goes through a
/// pipe. The leading part's is passed on, a follower's kept. False: standard output stays what it is.
bool output_begin();
/// Is standard output passed on, and was it a terminal? For isatty().
bool output_was_terminal(bool* terminal);
/// What was written so far has been passed on, if this part leads, or five seconds have passed.
void output_drain();
/// In MPI_Finalize, or where a process ends without it: standard output is what it was, or /dev/null, from here on.
void output_end();
/// This part leads now, and cannot go on with what the one before has written. Null: it can, as far as is known.
const char* output_fails();

/// Of another rank. False: it says nothing.
bool output_at(int world_rank, At* at);
/// What libraries of languages still hold of the program's output: they write it when they are unloaded, later.
void flush_output();
/// Longest time between two calls, for others.
void output_longest(double seconds);
/// Another part has led in this one's place, and come to its end. Any thread.
bool output_is_void();
/// Files of this kind of a rank, to be removed.
void output_forget(int world_rank);

}  // namespace resil::replicas
