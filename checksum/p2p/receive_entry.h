// SPDX-License-Identifier: Apache-2.0
//
// A receive that is pending, or complete but not yet expected. For receives.cpp only.
#pragma once

#include <cstdint>

#include "checksum/view.h"

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
  List pending;       ///< with a wildcard; others are in the buckets
  Receive* waiting;   ///< heap of complete ones that something older of this pattern holds back
  Pattern* next;
  CommReceives* comm;
  int32_t source, tag;
};

/// The receives of one communicator.
struct CommReceives {
  uint64_t id;
  CommInfo* comm;
  uint32_t entries;                 ///< that point here
  uint32_t patterns;                ///< of its own; 0: no wildcard is pending, and nothing waits for one
  bool lost;                        ///< a receive could not be followed: order of its lanes is unknown
  CommReceives* next_free;
};

struct Receive {
  View view;
  CommReceives* comm;
  Receive *previous, *next;   ///< in its bucket or among the pending ones of its pattern
  Receive *child, *sibling;   ///< in the heap of a pattern
  Pattern* pattern;           ///< pending, with a wildcard: its own
  uint64_t order;             ///< of posting
  uint32_t bucket;            ///< of its lane as posted
  uint64_t lane_comm;         ///< id under which the packet is noted
  uint64_t bytes, digest;     ///< of what arrived
  uint64_t posted, evidence;  ///< blame.h
  uint64_t site;
  int32_t source, tag;        ///< as posted
  int32_t actual_source, actual_tag;
  uint16_t call;
  bool wild, persistent, partitioned, held, listed, counted, done, failed, shared;
  bool waits;                 ///< complete, in its bucket behind older receives of its lane
  bool both_ways, no_status;  ///< MPI_Isendrecv; whose status says nothing
};

}  // namespace resil::p2p
