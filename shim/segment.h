// SPDX-License-Identifier: Apache-2.0
//
// The ring file: made in node-local memory, kept until MPI_Finalize, then copied beside the reports.
#pragma once

#include <cstddef>
#include <cstdint>

namespace resil {

constexpr unsigned kRingRequests = 8192;  ///< entries of section "requests"

/// Makes the ring of this rank, fills `runtime` and the header. Falls back to anonymous memory when /dev/shm is full
/// or missing (then nothing survives a kill, and the report says so). False: no memory at all.
bool segment_create(const char* launch);
/// Start time of a process in clock ticks after boot (field 22 of /proc/PID/stat), 0 when there is no such process (any more).
uint64_t process_start_time(int pid);
/// State letter of that process (R, S, D, T, t, ...), 0 when it is gone; `started` as above, so that a reused pid is not
/// taken for it.
int process_state(int pid, uint64_t started);
/// Identity of this process's pid namespace, 0 unknown.
uint64_t pid_namespace();
/// May this process make a file of that size? Beyond the limit (ulimit -f) the kernel would send SIGXFSZ, which kills.
/// False: errno is EFBIG.
bool file_size_allowed(uint64_t bytes);
/// Makes a file that is wholly reserved and maps it, zeroed. Null: no room, no permission, beyond the limit, or the name is
/// taken; nothing is ever removed to take its place.
void* map_new_file(const char* path, size_t bytes);

/// Collects the rings that killed ranks of this user left on this node: into their report directories if those are
/// still there, else away. One rank a node does it, in MPI_Init; bounded.
void segment_sweep();

/// Bytes of a module's own section, null when it asked for none.
void* segment_section(const char* name, unsigned long* bytes);
/// Path of the live ring, "" when it is in anonymous memory.
const char* segment_path();
bool segment_is_anonymous();
/// Where another rank of this job on this node has its live ring, if it has one.
void segment_path_of(int world_rank, char* path, size_t bytes);
/// Copies the ring to `path` (holes for zero pages) and removes the live one. False: could not be written, errno says.
bool segment_store(const char* path);
/// Removes the live ring without a copy.
void segment_discard();
/// Refreshes the second (ticks, wall clock) pair.
void segment_sync_clock();

}  // namespace resil
