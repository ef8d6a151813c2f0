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

/// The receives of one communicator.
struct CommReceives {
  Receive *wild_first, *wild_last;  ///< with a wildcard, in posting order (laid out as a List)
  Receive* parked_first;            ///< complete, in posting order, behind older ones that are pending
  uint64_t id;
  CommInfo* comm;
  uint32_t entries;                 ///< that point here
  bool lost;                        ///< a receive could not be followed: order of its lanes is unknown
  CommReceives* next_free;
};

struct Receive {
  View view;
  CommReceives* comm;
  Receive *previous, *next;   ///< in its bucket or among the wildcards
  Receive* next_parked;
  uint64_t order;             ///< of posting
  uint32_t bucket;            ///< of its lane as posted
  uint64_t lane_comm;         ///< id under which the packet is noted
  uint64_t bytes, digest;     ///< of what arrived
  uint64_t posted, evidence;  ///< blame.h
  uint64_t site;
  int32_t source, tag;        ///< as posted
  int32_t actual_source, actual_tag;
  uint16_t call;
  bool wild, persistent, partitioned, held, listed, done, failed, shared;
  bool waits;                 ///< complete, in its bucket behind older receives of its lane
  bool both_ways, no_status;  ///< MPI_Isendrecv; whose status says nothing
};

}  // namespace resil::p2p
