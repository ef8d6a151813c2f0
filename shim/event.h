// SPDX-License-Identifier: Apache-2.0
//
// One MPI call as every module sees it: normalised values, whatever the ABI. Lives on the stack of the wrapper.
// A field is set only when the call has such an argument (see the table); the others are left uninitialised on
// purpose, but for those with an initialiser here.
#pragma once

#include <cstdint>

#include "shim/call_info.h"
#include "shim/ring_format.h"

namespace resil {

struct CommInfo;
struct Thread;

/// One data argument: buffer, how many of what. `counts` and `types` are arrays of the vector collectives.
struct Side {
  const void* buffer;
  int64_t count;
  uint64_t type;       ///< datatype handle's bits
  const void* counts = nullptr;  ///< int[], or MPI_Count[] when Event::large
  const void* types;   ///< handle[]
};

struct Event {
  CallId id;
  bool large = false;  ///< a `_c` call: counts are MPI_Count
  bool nested;         ///< made from a callback inside another call of this thread
  int32_t peer = ring::kNoPeer;  ///< destination, source, target or root as communicator rank, normalised as in ring_format.h
  int32_t tag = ring::kNoTag;
  int32_t receive_peer;  ///< Sendrecv only: source
  int32_t receive_tag;
  Thread* thread;
  uint64_t time;  ///< ticks on entry; 0 for polls
  uint64_t return_address;
  uint64_t frame;  ///< canonical frame address of the wrapper: the stack just above the return address
  uint64_t site;   ///< the application's call site (a Fortran binding's caller, not the binding)
  uint64_t comm_handle = 0;
  CommInfo* comm;  ///< null when the call has no communicator
  uint64_t bytes;  ///< named by the call, 0 when it has no data
  uint64_t sequence;  ///< collectives: number on the communicator, from 1
  Side send, receive;
  int64_t partitions;
  void* requests;  ///< handle array (of the ABI's handle size)
  int64_t request_count = 0;
  void* saved_requests;  ///< their values before a completing call; &saved_one for a single request
  uint64_t saved_one;
  int* flag = nullptr;
  int* index = nullptr;
  int* outcount = nullptr;
  int* indices;
  void* statuses;
  void* message;
  void* new_comm;
  uint64_t group, op, object;
  const char* string;
  int color, order;
  uint64_t derived_id;     ///< id of the communicator that the call creates
  ring::Record* record;    ///< the flight recorder's
  uint64_t record_number;
  uint64_t outer_frame;    ///< Thread's, restored on the way out
  uint32_t outer_depth;
  uint64_t request_key = 0;  ///< of the request that the call started; 0: none, or complete at once
  int result;
};

}  // namespace resil
