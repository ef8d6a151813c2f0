// SPDX-License-Identifier: Apache-2.0
//
// One MPI call as every module sees it: normalised values, whatever the ABI. Lives on the stack of the wrapper, which
// stores just what the call has: a field is meaningful only when the call's table entry has such an argument, and is
// left uninitialised otherwise (clear_event says which ones are always set).
#pragma once

#include <cstdint>

#include "shim/model/calls.h"
#include "shim/ring/ring_format.h"

namespace resil {

struct CommInfo;
struct Thread;

/// One data argument: buffer, how many of what. `counts` and `types` are arrays of the vector collectives.
struct DataArgument {
  const void* buffer;
  int64_t count;
  uint64_t type;  ///< datatype handle's bits
  const void* counts;  ///< int[], or MPI_Count[] when Event::large; null: `count` holds
  const void* types;  ///< handle[]
  const void* displacements;  ///< int[], MPI_Aint[] when Event::large or for the W calls of neighbours; null: none
};

struct Event {
  CallId id;
  bool large;  ///< a `_c` call: counts are MPI_Count
  uint8_t untimed;  ///< ring::kUntimed when `time` is an earlier call's
  bool nested;  ///< made from a callback inside another call of this thread
  uint32_t attributes;  ///< CallAttribute bits
  int32_t peer;  ///< destination, source, target or root as communicator rank, normalised as in ring_format.h
  int32_t tag;
  Thread* thread;
  uint64_t comm_handle;  ///< 0: the call has no communicator
  uint64_t time;  ///< ticks on entry, or of the last clock read before it (see flight.h)
  uint64_t return_address;
  uint64_t frame;  ///< canonical frame address of the wrapper: the stack just above the return address
  uint64_t site;  ///< the application's call site (a Fortran binding's caller, not the binding)
  CommInfo* comm;  ///< null when the call has no communicator
  uint64_t bytes;  ///< named by the call, 0 when it has no data
  uint64_t sequence;  ///< collectives: number on the communicator, from 1
  ring::Record* record;  ///< the flight recorder's
  uint64_t record_number;
  uint64_t outer_frame;  ///< Thread's, restored on the way out
  uint32_t outer_depth;
  uint64_t outer_record;  ///< number of the record that was open around this call, 0: none
  struct Timing* timing;
  int result;
  DataArgument send, receive;
  int32_t receive_peer;  ///< Sendrecv only: source
  int32_t receive_tag;
  int64_t partitions;  ///< of a partitioned message: how many
  int64_t partition;  ///< MPI_Parrived: which one
  void* requests;  ///< handle array (of the ABI's handle size)
  int64_t request_count;
  void* saved_requests;  ///< their values before a completing call; saved_few when they fit
  void* scratch;  ///< what the call borrowed for copies of handles and for statuses
  void* status_room;  ///< for all statuses of a completing call that ignores them; null: none
  uint64_t saved_few[8];
  uint32_t entered;  ///< completing calls with MPI_THREAD_MULTIPLE: serial number (request_serial.h); else undefined
  uint64_t request_key;  ///< of the request that the call started; 0: none, or complete at once
  int* flag;
  int* index;
  int* outcount;
  int* indices;  ///< MPI_Comm_spawn: error codes, one for each process
  void* statuses;  ///< the application's, MPI_STATUS(ES)_IGNORE (which may be null) included; null too when the call
                   ///< has none
  // What the library is given in place of the application's arguments: equal to them unless a module changed it on the
  // way in (before_call for buffers and count; statuses by give_statuses()).
  const void* given_send;
  const void* given_receive;
  int64_t given_count;  ///< point-to-point calls in one direction only
  void* given_statuses;
  uint64_t own_status[4];  ///< room for one status of any ABI
  /// Between `enter` and `leave` the checksum module's own, through state(). Left uninitialised by the core.
  alignas(8) unsigned char module_state[40];
  uint64_t* cookies;  ///< the modules' words beside the request that the call started, by request_word(); null:
                      ///< complete at once, or untracked
  void* message;  ///< handle of a matched message
  // Where the call stores the handle of what it makes.
  void *new_comm, *new_window, *new_file;
  uint64_t group, op;
  uint64_t object;  ///< window or file that the call is about
  int64_t target_displacement, target_count;  ///< one-sided: in units of the target's window; elements of target_type
  uint64_t target_type;
  int lock_type, assertion;  ///< MPI_Win_lock's and MPI_Win_fence's, as the ABI has them
  const char* string;
  int local_leader, remote_leader;  ///< MPI_Intercomm_create
  uint64_t peer_comm;  ///< likewise: the communicator of both leaders
  uint64_t derived_id;  ///< id of the communicator that the call creates

  /// The module's state of this call: of the one type that all its hooks use for calls of this kind.
  template <class State>
  State& state() {
    static_assert(sizeof(State) <= sizeof(module_state) && alignof(State) <= 8 && __is_trivially_copyable(State));
    return *reinterpret_cast<State*>(module_state);
  }
  template <class State>
  const State& state() const {
    return const_cast<Event*>(this)->state<State>();
  }
};

/// What every event has, whatever the call; folded into the wrapper's own stores by the compiler.
template <CallId id>
[[gnu::always_inline]] inline void clear_event(Event& e) {
  constexpr CallInfo info = call_info(id);
  e.id = id;
  e.nested = false;
  e.attributes = info.attributes;
  e.large = (info.attributes & kCallLargeCount) != 0;
  e.peer = ring::kNoPeer;
  e.tag = ring::kNoTag;
  e.comm_handle = 0;
  if constexpr ((info.attributes & (kCallStarts | kCallActivates | kCallCompletes | kCallPoll)) != 0) {
    e.request_count = 0;
    e.request_key = 0;
    e.flag = e.index = e.outcount = nullptr;
    e.cookies = nullptr;
  }
  e.statuses = e.given_statuses = nullptr;
  if constexpr ((info.attributes & kCallCollective) != 0)
    e.send.counts = e.receive.counts = e.send.types = e.receive.types = nullptr;
}

}  // namespace resil
