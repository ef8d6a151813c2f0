// SPDX-License-Identifier: Apache-2.0
//
// The rounds in which the root asks all nodes, and what one node answers: fixed-size, little-endian.
#pragma once

#include <cstdint>

#include "detectors/hang/overlay/overlay.h"
#include "detectors/hang/reader/rank_state.h"

namespace resil::hang {

enum class Round : uint16_t {
  kNone = 0,
  kSummary = 1,  ///< answer: Summary, added up
  kStates,  ///< request: uint64_t[], communicators (WantedComms); answer: RankState records
  kAnswers,  ///< request: Question[]; answer: Answer[]
  kNames,  ///< request: NameQuestion[]; answer: NameAnswer[]
  kMismatch,  ///< mismatch.h
  kUnmatched,  ///< mismatch.h, at the end of the job
  kSearch,  ///< request: SearchQuestion[]; answer: FoundMessage[]
  kStacks,  ///< request: StacksQuestion; answer: StacksHead, StackEntry records (reader/stacks.h)
  kProbe,  ///< request: ProbeQuestion[]; answer: ProbeAnswer[]
};

/// A receive of `receiver` that waits for `sender` (or kAnySource) with `tag` (or kAnyTag); or a send of `sender`.
struct SearchQuestion {
  int32_t receiver, sender, tag;
  uint32_t of_send;
};

enum class FoundKind : uint8_t {
  kSent,
  kReceived,  ///< or asked for: receives posted and messages taken
  kAsleep,  ///< a persistent send that is not active; of a send: receive
};

/// Messages to that receiver, and from that sender with that tag, on any communicator: what one rank knows of them.
struct FoundMessage {
  uint64_t comm, count;
  uint64_t site;  ///< of the last send, or where the request was made; 0: not known
  int32_t source, destination, tag;  ///< world ranks
  uint32_t question;  ///< index
  FoundKind kind;
  uint8_t reserved[7];
};
static_assert(sizeof(FoundMessage) == 48);

/// For node `from`: probe node `to`, unless a probe of it is under way, or began within the last `seconds`.
struct ProbeQuestion {
  uint32_t from, to;
  float seconds;
  uint32_t zero;
};

struct ProbeAnswer {
  uint32_t from, to;
  Reach reach;
  uint8_t reserved[3];
  float seconds;  ///< until the reply
};
static_assert(sizeof(ProbeQuestion) == 16 && sizeof(ProbeAnswer) == 16);

enum class Order : uint16_t { kAbort = 100 };
enum class Raised : uint16_t { kWhy = 1 };  ///< without a payload: the question goes with the summary

/// Something about one rank that is a fact whatever the program does.
struct RankEvent {
  int32_t rank;
  RankActivity what;  ///< kGone, kStopped; kUnknown: its slots cannot be read
  uint8_t memory;  ///< kGone: the out-of-memory killer has ended processes on its node meanwhile
  uint8_t reserved[2];
};

constexpr uint32_t kMaxEvents = 16;

/// A rank that is about to end the job waits for one more comparison of collectives, at most a second.
struct Ending {
  int32_t name;  ///< world rank + 1; 0: nobody
  uint32_t by_library;  ///< 1: not by MPI_Abort
  uint64_t comm, sequence;  ///< of the collective that it is in, or waits for; 0: none
};

/// What the root has learned, told with every question for a summary: who leads after it knows what is usual.
struct Learned {
  double longest;  ///< quiet interval that ended, by the clock, seconds
  double limit;  ///< of quiet, by the shape of its tail (stats/quiet.h)
  double watched;  ///< seconds
  double notices = 0;  ///< lines about a job that stands still, so far (quiet_notice.h)
};

/// One sample of S_out over the ranks of one or more nodes.
struct Summary {
  uint32_t ranks;  ///< that are looked at: neither finished nor gone
  uint32_t out;  ///< outside MPI
  uint32_t polling;  ///< in a loop of polls that find nothing; inside MPI
  uint32_t finished, gone, stopped;
  uint32_t moved;  ///< made progress since the last sample of its node
  uint32_t waiting;  ///< inside one call for half a second or longer
  uint32_t finalizing;
  uint32_t event_count;  ///< may exceed what is kept
  uint64_t oldest_open_ns;  ///< longest time inside one call
  uint64_t familiar;  ///< how often the least familiar of the calls that ranks are in, or left last, was made before
  double
      excused;  ///< seconds since the last sample in which being quiet says nothing: the most of any rank outside MPI
  double starved;  ///< of these, those in which that rank waited for a CPU
  double quiet;  ///< seconds since any rank that is looked at entered or left a call, as far as is known
  Ending ending;  ///< of any such rank
  uint64_t why;  ///< number of the latest question why the job does not go on; 0: none
  RankEvent events[kMaxEvents];
};

enum class NameKind : uint8_t {
  kSite,  ///< of an address: "lmp+0x1578"
  kComm,  ///< of a communicator id: "MPI_COMM_WORLD"
  kHost,  ///< of the rank: "nid0042, pid 1234"
  kLast,  ///< its last call: "MPI_Allreduce on MPI_COMM_WORLD, collective 17, at lmp+0x1578"
  kPlace,  ///< of the rank, outside MPI: "at lmp+0x1578 to 0x15a0"
  kNode,  ///< not asked of others: of a node, "nid0042, rank 7"
};

struct NameQuestion {
  int32_t rank;  ///< any member, for communicators
  NameKind kind;
  uint8_t reserved[3];
  uint64_t value;  ///< address, communicator id, 0
};

struct NameAnswer {
  uint32_t question;
  char text[124];
};

}  // namespace resil::hang
