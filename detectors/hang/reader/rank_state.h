// SPDX-License-Identifier: Apache-2.0
//
// What the helper of a node makes of one rank's slots at one instant, and what travels between nodes: fixed-size,
// little-endian, no pointers. The wait-for graph is built from these and nothing else.
#pragma once

#include <cstdint>

#include "detectors/hang/slots/layout.h"
#include "shim/ring/device_work.h"

namespace resil::hang {

enum class RankActivity : uint8_t {
  kUnknown = 0,  ///< unreachable, or its slots cannot be read
  kComputing,  ///< outside MPI
  kBlocked,  ///< every thread that may call MPI is inside one blocking call
  kPolling,  ///< in a run of polls that complete nothing
  kFinished,  ///< MPI_Finalize has returned
  kGone,  ///< the process ended without MPI_Finalize
  kStopped,  ///< by a signal or a debugger
};

/// What a call waits for: all of its parts, or any one.
enum class WaitKind : uint8_t { kAll = 0, kAny = 1 };

enum class PartKind : uint8_t {
  kReceive = 0,  ///< a message from `peer` (or anybody: kAnySource) with `tag` (or any: kAnyTag) on `comm`
  kProbe,  ///< likewise, which stays
  kSend,  ///< `peer` to receive
  kCollective,  ///< collective `sequence` on `comm`
  kSink,  ///< nobody can end this wait (a thread of the program itself must)
  kOther,  ///< cannot be judged: I/O, partitioned, another world, untracked request
  kToken,  ///< `peer` to make the call `call` over the window or communicator `comm`, for the `needed`-th time
  kLock,  ///< the lock (tag 1: exclusive, 0: shared) of the window `comm` at `peer`
  kHold,  ///< no wait, and of no thread: that lock is certainly held by this rank
  kFreed,  ///< likewise: this rank (`peer` of `tag` ranks, `ordinal` in the other group) has freed `comm` by its call
           ///< `sequence` there, `call` at `site`, and will neither send nor call on it
};

enum PartFlag : uint8_t {
  kMayBuffer = 1,  ///< MPI does not say that the call must wait (small standard send, non-root of a rooted collective,
                   ///< zero bytes)
  kRootOnly = 2,  ///< collective: the wait is for the root (`peer`, world rank) alone: Bcast, Scatter off the root
  kLowerOnly = 4,  ///< collective: for the ranks below only: Scan, Exscan
  kNonblocking = 8,  ///< by a request
  kPersistentPart = 16,
  kTransfer = 64,  ///< collective over a file: takes as long as the storage does, also when all have come
  kOneSource =
      128,  ///< collective, with kRootOnly: one of the ranks that it gets data from; beside a part for all of it
  kPermitted = 32,  ///< with kMayBuffer: MPI permits the wait and gives the call no other reason to take long
};

constexpr uint32_t kReleases = 1;

/// Part::flags of kFreed.
enum FreedFlag : uint8_t {
  kUncounted = 1,  ///< its messages are not counted any more, or some may still come
  kFreedObject = 2,  ///< a window or a file, whose free waits for the others
};

/// Size: 56 bytes.
struct Part {
  PartKind kind;
  uint8_t flags;
  uint16_t call;  ///< that posted it
  int32_t peer;  ///< world rank, kAnySource, kUnknownRank
  uint64_t comm;  ///< job-wide id
  int32_t tag;
  uint32_t ordinal;  ///< see Pending; 0: unknown. Collectives: kReleases when the call frees the communicator
  uint64_t bytes;
  uint64_t
      needed;  ///< receives and probes with a named peer and tag: the message that ends it is number `needed` of its
  ///< envelope from 1 (= ordinal + taken); 0: cannot be told from ordinals. Sends: = ordinal
  uint64_t sequence;  ///< collectives
  uint64_t site;  ///< of the call that started the request, 0: none or not known
};
static_assert(sizeof(Part) == 56);

constexpr uint32_t kMaxParts = 64, kMaxThreads = 8;

/// One thread inside MPI.
struct ThreadWait {
  uint64_t instance;  ///< the call: TraceBuffer::current, which no other call of this trace buffer has had
  uint64_t polls;  ///< that found nothing, in this run
  uint64_t entered_ns;  ///< CLOCK_REALTIME of the entry, by the rank's tick pairs; a bound when untimed
  uint64_t site;
  uint32_t site_module;  ///< index in the ring's section "modules", ~0 unknown
  int32_t tid;
  uint16_t call;
  WaitKind kind;
  uint8_t truncated;  ///< more requests than kept: parts are some of them
  uint32_t first_part, part_count;
  uint32_t cpu_ms;  ///< processor time of the thread so far, modulo 2^32, where a part is kPermitted; 0: not known
};

/// One communicator of a rank.
struct Membership {
  uint64_t comm;
  uint64_t sequence;  ///< collectives entered
  int32_t rank, size;  ///< in it; of it (local group)
  int32_t remote_size;  ///< -1: intracommunicator
  uint32_t name;  ///< index in section "comms" of the ring it came from
};

/// The longest of what the rank waits for from its accelerator, of at least kDeviceLate.
struct DeviceSeen {
  uint64_t age_ns, bytes;
  int32_t peer, tag;  ///< of the message; -1: none, or not known
  DeviceWorkKind kind;  ///< kNone: nothing
  DeviceDone done;
  uint8_t reserved[6];
  char call[32];
};
static_assert(sizeof(DeviceSeen) == 64);
constexpr uint64_t kDeviceLate = 1000000000;  ///< ns

/// Variable part follows in this order: ThreadWait[thread_count], Part[part_count], Membership[comm_count].
struct RankState {
  int32_t rank;
  uint32_t bytes;  ///< of the whole record, header included
  RankActivity activity;
  uint8_t stable;  ///< set by the judge's caller: same calls in two snapshots far enough apart
  uint8_t provable;  ///< 0: threads that may call MPI are out of sight; nothing is proved with this rank
  uint8_t in_finalize;
  uint32_t irregular;  ///< IrregularFlag
  int32_t pid;
  uint32_t node;
  uint64_t calls, polls;  ///< over all lanes: progress counters
  uint64_t cpu_ns;  ///< of the process, 0 unknown
  char kernel_state;  ///< of the main thread: R S D T t Z, 0 unknown
  uint8_t reserved[3];
  uint32_t thread_count, part_count, comm_count;
  DeviceSeen device;
};

/// How many messages of an envelope, asked of the ranks' envelopes. `tag` may be kAnyTag: all tags, those of kOtherTags
/// included; `source` kAnySource: all ranks; `comm` 0: all communicators (never a proof, only a hint for messages).
struct Question {
  uint64_t comm;
  int32_t source, destination;  ///< world ranks
  int32_t tag;
  uint32_t reserved;
};

/// Sums over what the question covers, from one node; a node without the ranks in question gives none. The two halves
/// may come in one answer or in two. A node answers for a rank as long as it can read its slots, also when the rank has
/// finished or is gone; for kAnySource it sums over all its ranks, members of the communicator or not.
///
/// `posted` and `pending` count receives with just such an envelope, source and tag both named. Receives with
/// MPI_ANY_SOURCE or MPI_ANY_TAG (and matched probes) are in `taken` of the envelope of what came, once the program was
/// told, and before that in `wild_pending`: each that could still take a message that the question covers counts there.
/// So posted - pending + taken messages have certainly arrived, and posted + taken + wild_pending receives at most can
/// have taken any or still may.
struct Answer {
  uint32_t question;  ///< index
  int32_t source, destination, tag;  ///< as in the question
  uint64_t sent;  ///< at the source
  uint64_t posted, taken;  ///< at the destination
  uint64_t pending;  ///< at the destination: of `posted`, not told complete
  uint64_t wild_pending;  ///< at the destination
  uint8_t from_source, from_destination;  ///< which halves are filled in
  uint8_t other_tags;  ///< a named tag was asked, and some counts went to kOtherTags: only sums over all tags are exact
  uint8_t reserved;
  uint32_t covered;  ///< ranks whose `sent` was added up (1 for a named source); a proof needs all of the world's
};
static_assert(sizeof(Answer) == 64);

}  // namespace resil::hang
