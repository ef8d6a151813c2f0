// SPDX-License-Identifier: Apache-2.0
//
// The reading side: the ring files of the ranks of this node, mapped read-only by the helper thread, and what they say.
// Trusts nothing that it reads (a writer may die at any instruction). No MPI; system calls: open, mmap, /proc.
#pragma once

#include <cstdint>

#include "detectors/hang/rank_state.h"

namespace resil::hang {

struct Watched {
  const ring::Header* header;  ///< null: no such rank seen yet. Stays mapped when its file goes
  const Section* section;      ///< null: that rank runs without hang detection
  int32_t rank, pid;
  uint64_t pid_start;
  // of the last quick look
  uint64_t calls, polls;
};

constexpr uint32_t kMaxWatched = 1024;  ///< ranks of one node

/// Maps the rings of this job's ranks first..first+count-1 (world ranks of this node; `list` when not consecutive) that
/// are not mapped yet. Returns how many are now. Cheap when complete.
uint32_t watched_open(Watched* watched, const int32_t* ranks, uint32_t count);

/// What a sample of S_out needs of one rank: a few loads. `moved`: any call entered or left, or any poll that found
/// something, since the last look.
struct QuickLook {
  bool in_mpi, polling, moved, finished, inside_finalize;
  uint64_t instance;  ///< of the open call of the only or first lane; 0 outside
  uint64_t open_since_ns;
};
QuickLook look(Watched& watched, uint64_t now_ns);

/// Liveness by /proc/PID/stat: gone, stopped, else as before. A system call or three.
RankActivity liveness(const Watched& watched, char* kernel_state, uint64_t* cpu_ns);

/// The whole state; returns its bytes, 0 when `room` is too small or the slots kept changing. `room` of 16 KiB does always.
uint32_t snapshot(Watched& watched, void* room, uint32_t room_bytes);

/// This node's share of the answers. Returns how many (each question may have several).
uint32_t answer(Watched* watched, uint32_t count, const Question* questions, uint32_t question_count, Answer* answers,
                uint32_t room);

/// "lmp+0x1578" of an address in that rank; "MPI_COMM_WORLD" of a communicator's id. False: not known there.
bool site_name(const Watched& watched, uint64_t address, char* text, uint32_t bytes);
bool comm_name(const Watched& watched, uint64_t id, char* text, uint32_t bytes);

}  // namespace resil::hang
