// SPDX-License-Identifier: Apache-2.0
//
// What the leader of a node knows of its ranks: their slots, when each was last seen to move, and this node's part of
// every round. Helper thread only.
#pragma once

#include <cstdint>

#include "detectors/hang/monitor/rounds.h"
#include "detectors/hang/reader/snapshot.h"
#include "shim/base/clock.h"

namespace resil::hang {

/// One rank of this node.
struct Tracked {
  double open_since;  ///< seconds: first seen in its present call
  double moved_at;  ///< last seen to have moved
  double stable_since;  ///< first full snapshot with these very calls
  uint64_t instance;  ///< of the present call
  uint64_t calls_hash;  ///< over all threads' calls, of the last full snapshot
  RankActivity life;  ///< kGone, kStopped, kFinished, else kUnknown: lives
  char kernel_state;
  bool seen;
  double life_checked, life_since;
  uint64_t cpu_ns;
  uint64_t delay_ns, traffic;  ///< run delay and bytes read and written, of the last look at them; kNotRead: none yet
  uint64_t ran_ns;  ///< processor time of the main thread, read with delay_ns
  double sleeping_since;  ///< in uninterruptible sleep without a break; 0: not
  bool memory;  ///< see RankEvent
  uint32_t dumps;  ///< state dumps that it has written
};

struct Watch {
  uint32_t node, count;  ///< of the ranks of this node
  int32_t ranks[kMaxWatched];
  Watched watched[kMaxWatched];
  Tracked tracked[kMaxWatched];
  uint32_t seen;  ///< mapped so far
  uint32_t starved_asked;  ///< in this sample
  double opened_at, sampled_at;
  uint64_t open_attempts;
  uint64_t oom_kills;  ///< when the job began
  uint64_t why;  ///< Summary::why of the last state dump
};

/// Any time between two full snapshots proves that nothing moved in between; this is the shortest that is asked for.
constexpr double kStableSeconds = 0.4;

/// A longer time between two samples counts as none at all.
constexpr double kGapSeconds = 2.5;

constexpr uint64_t kNotRead = ~uint64_t{0};

/// Of the last `step` seconds, those in which this rank would have run and did not; 0 at the first look. System calls.
double starved(const Watched& watched, Tracked& rank, double step);
/// Whether the quiet of this rank, which is outside MPI, says nothing: stopped, asleep for a device, reading or
/// writing. More system calls.
bool works_in_kernel(const Watched& watched, Tracked& rank, double now);
/// How many processes the kernel's out-of-memory killer has ended in this process's control group and those below it; 0
/// where it does not say so. `groups`: /proc/self/cgroup, `root`: where control groups are mounted. System calls.
uint64_t oom_kills(const char* groups = "/proc/self/cgroup", const char* root = "/sys/fs/cgroup");
/// The same of this process's own groups since the first call of oom_kills; 0 before it. Async-signal-safe.
uint64_t oom_kills_since();
/// How often the function that the rank is in, or was in last, has been called before by its first thread.
uint64_t familiar(const Watched& watched);

void watch_start(Watch& watch, uint32_t node, const int32_t* ranks, uint32_t count);
/// Everything seen so far starts anew: see kGapSeconds.
void forget_times(Watch& watch, double now);
/// One sample. `now`: monotonic seconds.
void watch_sample(Watch& watch, double now, Summary* summary);
/// The latest question that `resil why` has put to a rank of this node; 0: none.
uint64_t watch_asked(const Watch& watch);
/// What is to be known of a rank of this node that ends the job. `ender`: ControlBlock::ender.
Ending watch_ending(Watch& watch, uint32_t ender);
/// Whole states; returns bytes.
uint32_t watch_states(Watch& watch, double now, WantedComms wanted, char* room, uint32_t room_bytes);
uint32_t watch_names(Watch& watch, const NameQuestion* questions, uint32_t count, char* room, uint32_t room_bytes);

}  // namespace resil::hang
