// SPDX-License-Identifier: Apache-2.0
//
// Section "hang" of the ring file: what a rank's wrappers leave for the helper thread of its node beyond the flight
// record - whom a call waits for, how many messages of each envelope it has sent and awaited, which collectives it has
// called. Plain stores of the rank's own threads; read by other processes at any instant (a writer may die anywhere).
//
// What is already in the ring: TraceBuffer::current and the open record (inside MPI or not, call, communicator, peer,
// tag, bytes, call site, time of entry), TraceBuffer::calls (enter counter), Record::repeat (poll counter),
// Comm::collectives.
#pragma once

#include <cstddef>
#include <cstdint>

#include "shim/abi/backend_types.h"
#include "shim/base/hash.h"
#include "shim/model/calls.h"
#include "shim/ring/collective_history.h"
#include "shim/ring/device_work.h"
#include "shim/ring/ring_format.h"
#include "shim/ring/state_slots.h"
#include "shim/runtime/stacks/python.h"

namespace resil::hang {

using ring::CheckPoint;
using ring::CollectiveHistory;
using ring::Envelope;
using ring::history_add;
using ring::history_begin;
using ring::history_mark;
using ring::HistoryMark;
using ring::kAnyType;
using ring::kEarly;
using ring::kEmptyHere;
using ring::kFromAll;
using ring::kHistories;
using ring::kHistoryFailed;
using ring::kHistoryGap;
using ring::kHistoryLate;
using ring::kHistoryMarks;
using ring::kHistoryMembers;
using ring::kHistoryOneSided;
using ring::kLevels;
using ring::kLowestLevel;
using ring::kNoType;
using ring::kProbes;
using ring::kRecent;
using ring::kRun;
using ring::kSatisfied;
using ring::kTestAll;
using ring::kUnjudged;
using ring::kWaitedKeys;
using ring::Pending;
using ring::Probe;
using ring::roll;
using ring::unroll;
using ring::Wait;
using ring::WaitFlag;

constexpr uint32_t kEnvelopes = 2048;  ///< a power of two
constexpr uint32_t kSharedTraces = 8;  ///< threads beyond have no wait of their own: the rank's state is then unknown
constexpr uint32_t kOwnThreads = 61;
constexpr uint32_t kWindows = 64;  ///< windows whose collectives are numbered
constexpr uint32_t kFiles = 32;  ///< files likewise
constexpr uint32_t kHolds = 64;  ///< locks of windows that are held for certain
constexpr uint32_t kFreed = 256;  ///< communicators, windows and files freed last
constexpr uint32_t kSourceLists = 32;  ///< nonblocking vector and neighbourhood collectives whose partners are kept
constexpr uint32_t kSourceRanks = 31;
constexpr uint32_t kFreedPlaces = 512;  ///< entries of section "comms" whose last free is known
constexpr int32_t kOtherTags = -3;  ///< Envelope::tag: all tags of (comm, peer) that found no place of their own
constexpr int32_t kUnknownRank = -4;  ///< a world rank that cannot be told (another world)

/// What ranks tell each other by synchronising, counted like messages: by envelopes of a communicator of its own for
/// each window or communicator, so that no sum over messages ever meets them. Tags, which no program can use.
constexpr uint64_t token_comm(uint64_t id) { return hash_combine(id, 0x746f6b656e); }
constexpr int32_t kFirstToken = -100;
constexpr int32_t kPostToken = -100;  ///< MPI_Win_post, to each rank of its group
constexpr int32_t kCompleteToken = -101;  ///< MPI_Win_complete, likewise
constexpr int32_t kFirstLeaderToken =
    -1000;  ///< less the tag: MPI_Intercomm_create, leader to leader, on the peer communicator
constexpr int32_t kMostTokenTag = 1 << 29;  ///< such tags and higher ones are not counted
constexpr int32_t kFirstGroupToken = kFirstLeaderToken - kMostTokenTag;  ///< likewise: MPI_Comm_create_group, to each
                                                                         ///< other member

/// One rank that a synchronising call waits for: world rank << 32, kSyncStrict when MPI demands that it does (else it
/// may), and the number of the token, or kSyncExclusive for a lock of that rank's window.
enum SyncKey : uint32_t { kSyncStrict = 1u << 31, kSyncExclusive = 1 };

/// A persistent collective, by the communicator and the number there of the call that made it. Ranks may start theirs
/// in any order (MPI 4.0, 6.13), so that the n-th start of one matches the n-th start of the same one and nothing else:
/// like a communicator of its own.
constexpr uint64_t persistent_comm(uint64_t comm, uint64_t number) {
  return hash_combine(hash_combine(0x70657273697374, comm), number);
}

/// A window or a file: its collectives have an order of their own. The first kWindows, kFiles at a time.
struct WindowSlot {
  uint64_t id;  ///< job-wide; 0: free. Stored last
  uint64_t handle;  ///< the writer's own
  uint64_t ordered;  ///< collective calls so far: of a window, MPI_Win_fence and MPI_Win_free
  int32_t rank, size;
  uint32_t comm;  ///< index in section "comms" of the communicator that it was made from
  uint32_t reserved;
  uint64_t site;  ///< of the call that made it
};

/// A lock of a window that this rank certainly holds: an operation under it is complete at its target, or it is on the
/// rank's own window.
struct Hold {
  uint64_t window;  ///< WindowSlot::id; 0: free. Stored last
  int32_t target;  ///< world rank
  uint32_t exclusive;
};

/// The ranks of the world that a vector or neighbourhood collective receives data from, the first of them.
struct SourceList {
  uint64_t owner;  ///< ring::Request::key; 0 while the rest is written. Stored last
  uint32_t count;
  int32_t ranks[kSourceRanks];
};
static_assert(sizeof(SourceList) == 136);

/// What this rank has freed: it will send nothing on it any more, nor make a collective call over it. Written round and
/// round; the n-th free of this rank, from 0, is at n % kFreed.
struct Freed {
  uint64_t id;  ///< job-wide; 0 while the rest is written. Stored last
  uint64_t time;  ///< ticks on entry to the call
  uint64_t sequence;  ///< collective calls over it, the one that freed it included
  uint64_t site;
  int32_t rank, size, remote_size;  ///< as in ring::Comm
  uint32_t comm;  ///< index in section "comms"; 0: a window or a file
  uint16_t call;
  uint8_t uncounted;  ///< 1: its messages are not counted any more, or a persistent request may still send on it
  uint8_t reserved[5];
};
static_assert(sizeof(Freed) == 56);

enum IrregularFlag : uint32_t {
  kCancelled = 1,  ///< MPI_Cancel was called: counts of receives are bounds only
  kFailedCall = 2,  ///< a point-to-point or collective call failed
  kLostEnvelope = 4,  ///< a message found no envelope, not even of other tags
  kLostThread = 8,  ///< more threads than shared trace buffers
  kOtherWorld = 16,  ///< MPI_Comm_spawn, accept, connect or join was called: unseen ranks may send
  kPartitionedUse = 32,
  kUnknownSource = 64,  ///< a wildcard receive whose status nobody could read
  kSelfAttribute =
      128,  ///< the program set an attribute on MPI_COMM_SELF: its callback may communicate inside MPI_Finalize
  kUnknownOrder = 256,  ///< a collective failed: its communicator's numbers may be off
  kForgotten = 512,  ///< envelopes of communicators that are gone have been given up: counts on those are lost
  kLostWindow = 1024,  ///< a call that synchronises over a window was not counted, or failed
};

/// Who watches the node, in the section of its lowest rank; all its ranks write here. First page of the section.
struct ControlBlock {
  uint64_t term;  ///< term << 32 | world rank of the leader + 1 (0: nobody); changed by compare-and-swap
  uint32_t standby;  ///< world rank + 1 of the rank with the sleeping thread, 0: the next call may start one
  uint32_t had_standby;  ///< 1 once there has been one
  uint32_t bell;  ///< futex word: goes up when the leader shall not sleep on
  uint32_t asked;  ///< last looks at all calls that ranks have asked for: MPI_Abort, or a fatal error
  uint32_t answered;  ///< futex word: `asked` as it was before the last such look
  uint32_t ender;  ///< who asked last: world rank + 1, and kByLibrary
  uint64_t why;  ///< written by `resil why` from outside, in any rank: the number of its question; 0: none yet
  uint64_t oom_kills;  ///< written by a rank that somebody ends: processes of its control group that the out-of-memory
                       ///< killer has ended since the job began, as far as this rank knows its group
  alignas(64) uint64_t heartbeat;  ///< goes up with every step of the leader's loop
  uint64_t leader_start;  ///< start time of its process, with `leader_pid`
  int32_t leader_pid;
  uint32_t reported;  ///< findings of this job so far, so that a new leader numbers on
  alignas(64) uint64_t seen[8];  ///< signatures of the last findings: a new leader does not say them again
};
static_assert(sizeof(ControlBlock) == 192 && offsetof(ControlBlock, why) == 32 &&  // resil_tool/why.py writes there
              offsetof(ControlBlock, oom_kills) == 40);  // resil_tool/attach.py reads it
constexpr uint32_t kByLibrary = 1u << 31;  ///< ControlBlock::ender: the MPI library ends the job

struct Section {
  ControlBlock control;
  uint32_t irregular;  ///< IrregularFlag, set and never cleared
  uint32_t thread_level;  ///< 3: MPI_THREAD_MULTIPLE was provided; else 0
  uint32_t own_thread_count;
  int32_t abort_signal;  ///< makes this rank leave with exit status 92; 0: none was free
  int32_t own_threads[kOwnThreads];  ///< tids of threads that began inside MPI_Init, and of resil's: not the program's
  // So that nobody reads pages that were never written, which would make them resident. 0: not said.
  uint32_t histories_end;  ///< no history at this index or a higher one has ever been in use
  uint32_t unused_envelopes;  ///< bit i: none of the kEnvelopesTogether from i * kEnvelopesTogether on has ever been
  uint64_t final_comm;  ///< id of MPI_COMM_WORLD once MPI_Finalize was called (which may delete its entry in "comms")
  uint64_t final_sequence;  ///< of MPI_Finalize on it
  uint64_t hidden_receives;  ///< pending, and not in section "requests": that was full
  uint64_t persistent_collectives;  ///< made so far
  stacks::PythonAddresses python;
  DeviceWork device[kDeviceWaits + kDeviceCopies];
  Wait waits[kSharedTraces];
  WindowSlot windows[kWindows];
  WindowSlot files[kFiles];
  Hold holds[kHolds];
  SourceList sources[kSourceLists];
  uint64_t freed_count;  ///< so far; stored after the entry
  Freed freed[kFreed];
  uint64_t freed_at[kFreedPlaces];  ///< by index in section "comms": ticks of the last free, 0: none
  Envelope envelopes[kEnvelopes];
  CollectiveHistory histories[kHistories];
  // then Pending[request_count]
};

constexpr uint32_t kEnvelopesTogether = kEnvelopes / 32;

/// Calls visit(envelope) with those that may be in use, until it returns false.
template <class Visit>
void each_envelope(const Section& section, Visit visit) {
  for (uint32_t left = ~__atomic_load_n(&section.unused_envelopes, __ATOMIC_ACQUIRE); left != 0; left &= left - 1) {
    const Envelope* first = section.envelopes + static_cast<uint32_t>(__builtin_ctz(left)) * kEnvelopesTogether;
    for (uint32_t i = 0; i < kEnvelopesTogether; ++i)
      if (!visit(first[i])) return;
  }
}

/// Whether a thread of that rank is not the program's, but MPI's or resil's.
inline bool is_own_thread(const Section& section, int32_t tid) {
  const uint32_t stored = __atomic_load_n(&section.own_thread_count, __ATOMIC_ACQUIRE);
  for (uint32_t i = 0; i < stored && i < kOwnThreads; ++i)
    if (__atomic_load_n(&section.own_threads[i], __ATOMIC_ACQUIRE) == tid) return true;
  return false;
}

inline size_t section_bytes(uint32_t request_count) {
  return sizeof(Section) + size_t{request_count} * sizeof(Pending);
}

}  // namespace resil::hang
