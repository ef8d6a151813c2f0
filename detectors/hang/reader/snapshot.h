// SPDX-License-Identifier: Apache-2.0
//
// The reading side: the ring files of the ranks of this node, mapped read-only by the helper thread, and what they say.
// Trusts nothing that it reads (a writer may die at any instruction). No MPI; system calls: open, mmap, /proc.
#pragma once

#include <cstdint>

#include "detectors/hang/monitor/rounds.h"
#include "detectors/hang/reader/rank_state.h"

namespace resil::hang {

/// One rank's slots. All zeros before watched_open(). The pointers lie inside the mapping whatever the rank writes
/// later.
struct Watched {
  const ring::Header* header;  ///< null: no such rank seen yet. Stays mapped when its file goes
  const Section* section;  ///< null: that rank runs without hang detection
  int32_t rank, pid;
  uint64_t pid_start;
  const ring::TraceBuffer* traces;
  const ring::Comm* comms;
  const ring::Request* requests;
  const Pending* pending;
  const ring::Module* modules;
  uint32_t trace_count, comm_count, request_count, module_count;  ///< lanes: at most kSharedTraces
  // of the last quick look
  uint64_t calls, polls;  ///< sums over the trace buffers, local queries not counted
  uint64_t mark;  ///< changes with every call that is entered or left, but not within a run of polls
  uint64_t trace_polls[kSharedTraces], trace_run[kSharedTraces];  ///< run: Wait::instance of the run of polls, 0: none
  uint64_t trace_at[kSharedTraces];  ///< CLOCK_REALTIME, ns, of the look that saw it go on last
  bool trace_polling[kSharedTraces];  ///< the run went on between the last two looks, or has just done so
  bool looked;
};

constexpr uint32_t kMaxWatched = 1024;  ///< ranks of one node

/// Maps the rings of the ranks `ranks[0..count-1]` (world ranks of this node and this job) that are not mapped yet.
/// Returns how many are now. Cheap when complete.
uint32_t watched_open(Watched* watched, const int32_t* ranks, uint32_t count);
/// One ring, by its file. False: no such file, not yet complete, not a living rank of this user, or damaged.
bool watched_open_file(Watched& watched, const char* path, int32_t rank);

/// What a sample of S_out needs of one rank: a few loads. `moved`: any call entered or left, or any poll that found
/// something, since the last look (true on the first).
struct QuickLook {
  bool in_mpi, polling, moved, finished, inside_finalize;
  uint64_t instance;  ///< of the main thread's open call or run of polls (else of the first thread that calls MPI); 0:
                      ///< neither
  uint64_t open_since_ns;  ///< CLOCK_REALTIME; 0: outside
  uint64_t last_ns;  ///< on the first look: when the rank entered or left a call last; 0: not known
};
QuickLook look(Watched& watched, uint64_t now_ns);

/// Liveness by /proc/PID/stat: kGone, kStopped, else kUnknown: it lives. Three system calls. `kernel_state` and
/// `cpu_ns` (of the process, 10 ms steps) are those of a living process, else 0.
RankActivity liveness(const Watched& watched, char* kernel_state, uint64_t* cpu_ns);

/// Communicators, windows and files of which somebody waits: of these, a state also tells that the rank has freed them.
struct WantedComms {
  const uint64_t* ids;
  uint32_t count;
};
constexpr uint32_t kMostWanted = 64;

/// The whole state; returns its bytes, 0 when `room` is too small (kStateRoom always does) or the rank cannot be read.
/// Threads that enter or leave calls all the while are taken for computing. `stable`, `node` and what liveness() knows
/// are the caller's. Whether a run of polls goes on is judged by the look() before: so look first.
uint32_t snapshot(Watched& watched, void* room, uint32_t room_bytes, WantedComms wanted = {});
constexpr uint32_t kStateRoom = 17 << 10;

/// This node's share of the answers, see Answer. Returns how many; what finds no room is left out.
uint32_t answer(Watched* watched, uint32_t count, const Question* questions, uint32_t question_count, Answer* answers,
                uint32_t room);

/// Call site of the last call of that rank that sent to `partner` (world rank), or received, with that communicator and
/// tag; 0: the flight record has none.
uint64_t site_of_message(const Watched& rank, uint64_t comm, int32_t tag, int32_t partner, bool sent);

/// What this node knows of messages like those that somebody waits for; returns how many. Hints, see search.cpp.
uint32_t search(const Watched* watched, uint32_t count, const SearchQuestion* questions, uint32_t question_count,
                FoundMessage* messages, uint32_t room);

/// The trace buffer of the first thread that called MPI; null when the ring makes no sense.
const ring::TraceBuffer* first_trace(const Watched& watched);
/// "lmp+0x1578" of an address in that rank; "MPI_COMM_WORLD" of a communicator's id. False: not known there.
bool site_name(const Watched& watched, uint64_t address, char* text, uint32_t bytes);
bool comm_name(const Watched& watched, uint64_t id, char* text, uint32_t bytes);
/// "nid0042, pid 1234"; and the last call of the first thread, with what it was on and where it came from.
bool host_name(const Watched& watched, char* text, uint32_t bytes);
bool last_call(const Watched& watched, char* text, uint32_t bytes);
/// Where that thread is in its Python program, "relax at spin.py:6". False: it is none, or its memory may not be read.
bool python_at(const Watched& watched, int32_t tid, char* text, uint32_t bytes);
/// Where its first thread is at work outside MPI, "at lmp+0x1578 to 0x15a0", by program counters of 50 ms, which this
/// takes; "asleep in system call 35". False: the kernel does not tell.
bool computing_place(const Watched& watched, char* text, uint32_t bytes);

}  // namespace resil::hang
