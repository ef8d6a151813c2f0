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
#include "shim/ring/device_work.h"
#include "shim/ring/ring_format.h"

namespace resil::hang {

constexpr uint32_t kWaitedKeys = 64;  ///< requests of one completing call that are kept
constexpr uint32_t kEnvelopes = 2048;  ///< a power of two
constexpr uint32_t kTracks = 128;  ///< communicators whose collectives are compared: indices below in section "comms"
constexpr uint32_t kRecent = 16;  ///< signatures kept for each
constexpr uint32_t kEarly = 32;
constexpr uint32_t kLevels = 16;  ///< of check points: level k holds multiples of 2^k
constexpr uint32_t kSharedTraces = 8;  ///< threads beyond have no wait of their own: the rank's state is then unknown
constexpr uint32_t kProbes = 8;  ///< messages that one run of polls asks for
constexpr uint32_t kOwnThreads = 61;
constexpr uint32_t kWindows = 64;  ///< windows whose collectives are numbered
constexpr uint32_t kFiles = 32;  ///< files likewise
constexpr uint32_t kHolds = 64;  ///< locks of windows that are held for certain
constexpr uint32_t kFreed = 256;  ///< communicators, windows and files freed last
constexpr uint32_t kSourceLists = 32;  ///< nonblocking vector and neighbourhood collectives whose partners are kept
constexpr uint32_t kSourceRanks = 31;
constexpr uint32_t kFreedPlaces = 512;  ///< entries of section "comms" whose last free is known
constexpr uint64_t kRun = uint64_t{1} << 63;  ///< Wait::instance of a run of polls: with Wait::steps
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

/// A message that a run of polls asks for with MPI_Iprobe or MPI_Improbe.
struct Probe {
  uint64_t comm;  ///< job-wide id
  int32_t peer;  ///< world rank, kAnySource, kUnknownRank
  int32_t tag;
};

/// One rank that a synchronising call waits for: world rank << 32, kSyncStrict when MPI demands that it does (else it
/// may), and the number of the token, or kSyncExclusive for a lock of that rank's window.
enum SyncKey : uint32_t { kSyncStrict = 1u << 31, kSyncExclusive = 1 };

/// Bits of Wait::flags.
enum WaitFlag : uint8_t {
  kSatisfied = 1,  ///< one of the requests is complete already: a call that waits for any of them returns
  kTestAll = 2,  ///< a run of polls which is one call of MPI_Testall, again and again
  kUnjudged = 4,  ///< a run of polls that also asks for something else
  kEmptyHere = 8,  ///< collectives: this rank receives no data
  kFromAll = 16,  ///< vector collectives: it receives data from each other rank
};

/// What the open call of one trace buffer waits for, beyond its flight record. Valid for the call whose
/// TraceBuffer::current is `instance`, which is stored last and 0 while the rest is written. A run of polls that find
/// nothing, with nothing else called in between (local queries aside), has one Wait for all of its calls: `instance` is
/// kRun | `steps`; keys and probes are added to it as the run goes on.
struct Wait {
  uint64_t instance;
  uint32_t count;  ///< completing calls: requests given that can be waited for, at most kWaitedKeys + 1
  uint32_t kept;  ///< of which are in `keys`; handle bits, compare ring::Request::key
  int32_t peer;  ///< world rank of destination, source or root; kAnySource, kProcNull, kUnknownRank, kNoPeer
  int32_t receive_peer;  ///< likewise: source of a call that also receives (MPI_Sendrecv and the like); else kNoPeer
  int32_t receive_tag;
  uint32_t send_ordinal;  ///< of this message among those sent with its envelope, from 1; 0: none, or not known
  uint32_t receive_ordinal;  ///< of this receive among those posted with its envelope, from 1; 0: none, or not known
  SendMode mode;
  uint8_t flags;  ///< WaitFlag
  uint8_t probe_count;  ///< kProbes + 1: there were more
  uint8_t reserved;
  uint64_t signature;  ///< collectives: see signature.h
  uint64_t sequence;  ///< collectives: number on the communicator, see Track
  uint64_t polls;  ///< completing or probing polls so far that found nothing, over the life of the trace buffer
  uint64_t steps;  ///< all other calls but local queries, likewise, and polls that found something
  uint64_t keys[kWaitedKeys];  ///< synchronisation: id of the window or communicator, then `kept` entries SyncKey.
                               ///< Vector and neighbourhood collectives likewise, for whom data is received from
  Probe probes[kProbes];
};

constexpr uint32_t kNoType = 0;  ///< no data yet
constexpr uint32_t kAnyType = ~0u;  ///< of several types, or of one that goes with any

/// Messages between this rank and one other with one envelope. Receives with MPI_ANY_SOURCE or MPI_ANY_TAG have
/// envelopes of their own (peer kAnySource, tag kAnyTag); when the status tells what came, that message is counted in
/// `taken` of the envelope that it had.
struct Envelope {
  uint64_t comm;  ///< job-wide id; 0: free. Stored last
  int32_t peer;  ///< world rank, kAnySource
  int32_t tag;  ///< kAnyTag, kOtherTags
  uint64_t sent;  ///< sends started (persistent ones each time)
  uint64_t posted;  ///< receives started with just this envelope
  uint64_t taken;  ///< messages of this envelope that wildcard receives or matched probes took, as the program was told
  uint64_t told;  ///< receives started with just this envelope and told complete; kept for wildcards, else 0
  struct {
    uint32_t sent, posted;
  } types,  ///< type signature of all messages and receives with data; kNoType, kAnyType
      handles;  ///< the writer's own: lower half of the handle of the last datatype that `types` knows
};
static_assert(sizeof(Envelope) == 64);

/// Beside the entry of the same index in section "requests".
struct Pending {
  int32_t peer;  ///< world rank (collectives: of the root), kAnySource, kUnknownRank, kNoPeer
  uint32_t ordinal;  ///< point-to-point: among those of its envelope, from 1; collectives: the bytes of the signature
  uint8_t mode;  ///< SendMode; collectives: the operator of the signature
  uint8_t flags;  ///< WaitFlag
  uint8_t both;  ///< MPI_Isendrecv and the like: also a receive, see `sequence`
  uint8_t sources;  ///< collectives: place in Section::sources + 1; 0: none
  int32_t receive_tag;  ///< of those. Persistent collectives: number of the call that made it; 0: cannot be told.
                        ///< Persistent messages: type signature of the data, see Envelope::types
  uint64_t
      sequence;  ///< collectives: number on the communicator; persistent ones: starts so far. `both`: source's world
  ///< rank << 32 | ordinal
};
static_assert(sizeof(Pending) == 24);

struct CheckPoint {
  uint64_t sequence;  ///< 0: none yet
  uint64_t rolling;  ///< hash of the signatures 1..sequence
};

/// A persistent collective, by the communicator and the number there of the call that made it. Ranks may start theirs
/// in any order (MPI 4.0, 6.13), so that the n-th start of one matches the n-th start of the same one and nothing else:
/// like a communicator of its own.
constexpr uint64_t persistent_comm(uint64_t comm, uint64_t number) {
  return hash_combine(hash_combine(0x70657273697374, comm), number);
}

/// One communicator's collectives, in their order: blocking and nonblocking ones when they are called, persistent ones
/// when they are made, never when they are started; and whatever else is collective over it (communicators, windows and
/// files made from it, MPI_Comm_free; MPI_Finalize on MPI_COMM_WORLD). Their number is ring::Comm::ordered, also for
/// communicators without a track. In use when `comm` equals the id in section "comms" at the same index. `recent` and
/// `points` hold signatures, see signature.h.
struct Track {
  uint64_t comm;
  uint64_t sequence;  ///< of the last signature; stored after it
  uint64_t rolling;
  uint64_t shape;  ///< bits 0-23 members of the communicator, 24-31 marks, 32-63 how often the track was begun: track.h
  uint64_t recent[kRecent];  ///< signature of collective n at n % kRecent
  uint32_t types[kRecent];  ///< type signature of its data where all ranks must have the same; 0: goes with any
  CheckPoint points[kLevels][2];  ///< the last two multiples of 2^level: n at [level][(n >> level) & 1]
  uint64_t early[kEarly];  ///< hash of the signatures 1..2^k: never overwritten, so that what happened before
                           ///< anybody looked is known to a factor of two
};

/// A window or a file: its collectives have an order of their own. The first kWindows, kFiles at a time.
struct WindowSlot {
  uint64_t id;  ///< job-wide; 0: free. Stored last
  uint64_t handle;  ///< the writer's own
  uint64_t ordered;  ///< collective calls so far: of a window, MPI_Win_fence and MPI_Win_free
  int32_t rank, size;
  uint32_t comm;  ///< index in section "comms" of the communicator that it was made from
  uint32_t reserved;
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
  uint64_t final_comm;  ///< id of MPI_COMM_WORLD once MPI_Finalize was called (which may delete its entry in "comms")
  uint64_t final_sequence;  ///< of MPI_Finalize on it
  uint64_t hidden_receives;  ///< pending, and not in section "requests": that was full
  uint64_t persistent_collectives;  ///< made so far
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
  Track tracks[kTracks];
  // then Pending[request_count]
};

inline size_t section_bytes(uint32_t request_count) {
  return sizeof(Section) + size_t{request_count} * sizeof(Pending);
}

}  // namespace resil::hang
