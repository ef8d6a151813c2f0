// SPDX-License-Identifier: Apache-2.0
//
// State slots that every message and every wait writes, in section "hang" of the ring file: whom the open call waits
// for, how many messages an envelope has had, what belongs to a pending request. Written by the call path itself for
// calls that repeat themselves (shim/call/fast_path.h), by detectors/hang/ for all others; read by other processes at
// any instant. The section as a whole: detectors/hang/slots/layout.h.
#pragma once

#include <cstdint>

#include "shim/model/calls.h"
#include "shim/ring/collective_history.h"
#include "shim/ring/ring_format.h"

namespace resil::ring {

constexpr uint32_t kWaitedKeys = 64;  ///< requests of one completing call that are kept
constexpr uint32_t kProbes = 8;  ///< messages that one run of polls asks for
constexpr uint64_t kRun = uint64_t{1} << 63;  ///< Wait::instance of a run of polls: with Wait::steps

/// A message that a run of polls asks for with MPI_Iprobe or MPI_Improbe.
struct Probe {
  uint64_t comm;  ///< job-wide id
  int32_t peer;  ///< world rank, kAnySource, kUnknownRank
  int32_t tag;
};

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
  uint64_t sequence;  ///< collectives: number on the communicator, see CollectiveHistory
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

/// What a call's slot holds of the usual nonblocking message, or of a collective with a request (`made`: Pending's
/// receive_tag), but for peer and `both`.
inline void keep_message(Pending& pending, const Wait& wait, const CallInfo& info) {
  pending.ordinal = info.call_class == CallClass::kReceive ? wait.receive_ordinal : wait.send_ordinal;
  pending.mode = static_cast<uint8_t>(info.mode);
}
inline void keep_collective(Pending& pending, const Wait& wait, uint64_t sequence, int32_t made = 0) {
  pending.ordinal = bytes_in(wait.signature);
  pending.mode = operator_in(wait.signature);
  pending.flags = wait.flags;
  pending.receive_tag = made;
  pending.sequence = sequence;
}

}  // namespace resil::ring
