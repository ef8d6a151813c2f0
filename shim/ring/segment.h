// SPDX-License-Identifier: Apache-2.0
//
// The ring file: made in node-local memory, kept until MPI_Finalize, then copied beside the reports.
#pragma once

#include <cstddef>
#include <cstdint>

#include "shim/ring/node_file.h"
#include "shim/ring/ring_format.h"

namespace resil {

constexpr unsigned kRingRequests = 8192;  ///< entries of section "requests"

/// Makes the ring of this rank, fills `runtime` and the header. Falls back to anonymous memory when /dev/shm is full
/// or missing (then nothing survives a kill, and the report says so). False: no memory at all.
bool segment_create(const char* launch);
/// May this process make a file of that size? Beyond the limit (ulimit -f) the kernel would send SIGXFSZ, which kills.
/// False: errno is EFBIG.
bool file_size_allowed(uint64_t bytes);
/// Collects the rings that killed ranks of this user left on this node: into their report directories if those are
/// still there, else away. In a thread of its own, since files and directories may be slow or worse, and MPI_Init does
/// not wait for it; at most kSweepSeconds. One rank a node does it.
void segment_sweep_start();
constexpr double kSweepSeconds = 2;
/// Before the process ends: no further file, and at most `seconds` for the one under way.
void segment_sweep_end(double seconds);
/// The work itself; returns how many files it has removed. `prefix`: of the names.
int segment_sweep(const char* prefix);

/// Bytes of a module's own section, null when it asked for none.
void* segment_section(const char* name, unsigned long* bytes);
/// Path of the live ring, "" when it is in anonymous memory.
const char* segment_path();
bool segment_is_anonymous();
/// With what the names of all live rings of this world of this launch begin: "resil-UID-LAUNCH-WORLD-".
void segment_prefix(char* text, size_t bytes);
/// Where another rank of this job on this node has its live ring, if it has one.
void segment_path_of(int world_rank, char* path, size_t bytes);
/// Copies the ring to `path` (holes for zero pages) and removes the live one. False: could not be written, errno says.
bool segment_store(const char* path);
/// Removes the live ring without a copy.
void segment_discard();
/// This rank has finished (phase) and leaves its ring where it is. The last rank of the node that does so removes those
/// of all that did, or, where `keep` says so, puts them into the report directory. Nobody waits; if a rank never
/// comes here, the rings stay for whoever collects those of dead ranks. Needs a launch key that the ranks have agreed
/// on.
void segment_leave(bool (*keep)());
/// Refreshes the second (ticks, wall clock) pair.
void segment_sync_clock();
/// What this rank is at, for whoever reads the ring.
void segment_set_phase(ring::Phase phase);

}  // namespace resil
