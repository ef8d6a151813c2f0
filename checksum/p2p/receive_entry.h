// SPDX-License-Identifier: Apache-2.0
//
// A receive that is pending, or complete but not yet expected. For receives.cpp only.
#pragma once

#include <cstddef>
#include <cstdint>

#include "shim/model/view.h"

namespace resil {
struct CommInfo;
}

namespace resil::p2p {

struct Receive;
struct CommReceives;

/// Receives in posting order.
struct List {
  Receive *first, *last;
};

/// A source and tag as receives name them, on one communicator. While receives of it are pending, or wait at it.
struct Pattern {
  List pending;  ///< with a wildcard; others are in the buckets
  Receive* waiting;  ///< heap of complete ones that something older of this pattern holds back
  Pattern* next;
  CommReceives* comm;
  int32_t source, tag;
  uint32_t pending_count;
};

/// The receives of one communicator.
struct CommReceives {
  uint64_t id;
  CommInfo* comm;
  union {
    uint64_t order;  ///< both at once
    struct {
      uint32_t patterns;  ///< of its own; 0: no wildcard is pending, and nothing waits for one
      uint32_t waiting;  ///< of the entries, complete behind older ones of their matching queue
    };
  };
  uint32_t entries;  ///< that point here
  bool lost;  ///< a receive could not be followed: order of its matching queues is unknown
  CommReceives* next_free;
};

/// The first two cache lines are what a usual receive needs (fast_path.cpp).
struct alignas(64) Receive {
  View view;
  CommReceives* comm;
  Receive *previous, *next;  ///< in its bucket or among the pending ones of its pattern
  uint64_t order;  ///< of posting
  uint64_t site;
  int32_t source, tag;  ///< as posted
  uint32_t bucket;  ///< of its matching queue as posted
  uint16_t call;
  union {
    uint64_t flags[2];  ///< all of them at once
    struct {
      bool wild, persistent, partitioned, held, listed, counted, done, failed;
      bool shared;
      bool waits;  ///< complete, in its bucket behind older receives of its matching queue
      bool both_ways, no_status;  ///< MPI_Isendrecv; whose status says nothing
      bool staged;  ///< the digest is that of the pinned copy of a device buffer (staged.h)
    };
  };
  int32_t actual_source, actual_tag;
  alignas(64) Pattern* pattern;  ///< pending, with a wildcard: its own
  Receive *child, *sibling;  ///< in the heap of a pattern
  union {
    uint64_t match_queue_comm;  ///< partitioned: id under which the packet is noted
    uint64_t posted_as;  ///< from MPI_ANY_SOURCE: WildReceive::posted (candidates.h)
  };
  uint64_t bytes, digest;  ///< of what arrived
  uint64_t posted, evidence;  ///< blame.h
};
static_assert(offsetof(Receive, held) - offsetof(Receive, wild) == 3 &&
              offsetof(Receive, failed) - offsetof(Receive, wild) == 7);
static_assert(offsetof(Receive, pattern) == 128 && sizeof(Receive) == 192);

}  // namespace resil::p2p
