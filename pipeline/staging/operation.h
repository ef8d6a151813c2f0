// SPDX-License-Identifier: Apache-2.0
//
// A call that is given shadows in place of device buffers: collectives, and persistent requests of any kind. It lives from
// the call until that is complete, or until its request is, or is freed. Inside collective*.cpp and persistent.cpp.
//
// Copies of one call, and those of all requests of one MPI_Startall or MPI_Waitall, are enqueued first and waited for
// afterwards.
#pragma once

#include <cstdint>

#include "pipeline/request_word.h"
#include "pipeline/staging/packet.h"
#include "pipeline/staging/staging.h"

namespace resil::staging {

struct Operation {
  uint64_t reductions;    ///< their word beside the request (request_word.h): the first member
  Operation* next;        ///< in one of the lists of its thread
  Packet send, receive;   ///< host null: that side is not on a device
  uint64_t frame;         ///< of the call that it belongs to
  uint64_t comm;          ///< handle, 0: none
  CallId id;
  Path path;
  bool in_place;          ///< the receive side holds what this rank gives
  bool active;            ///< persistent: started and not complete
  bool delivered;         ///< what came is on the device, or was asked for
  bool failed;            ///< a copy was refused
  uint32_t own_first, own_last;  ///< in place: blocks of the receive side that the call reads
  uint64_t written_now;   ///< bytes that came, at most `written`
  uint64_t written;       ///< bytes that the call writes: the beginning of the receive side's stream
};

/// What a thread has under way. Lists are linked by Operation::next.
struct ThreadState {
  Operation* calls;      ///< open calls, the innermost first
  Operation* starting;   ///< being started by this call, copies enqueued
  Operation* finishing;  ///< completed by this call, copies enqueued
  Operation* refused;    ///< one that could not be started: MPI_Start is not made
};
ThreadState* thread_state(Thread& thread);  ///< null: no memory

/// A call with an operation begins: copies what this rank gives, unless it is persistent, and keeps it among the thread's
/// open calls. Null: the data could not be copied (counted); the call goes to the library as it is.
Operation* operation_begin(Event& event, const Operation& opened);
/// It has returned: waits for what came, or ties the operation to the request of the call.
void operation_end(Event& event, Operation* operation);

/// Enqueues the copies of what this rank gives.
void operation_down(Operation& operation);
/// Waits for them. False: the runtime refused; it has been said.
bool operation_down_done(Operation& operation, const Event& event);
/// Enqueues the copy of what came, at most `bytes` of it.
void operation_up(Operation& operation, uint64_t bytes);
bool operation_up_done(Operation& operation, uint64_t bytes, const Event& event);
/// Gives everything back.
void operation_close(Operation* operation);

/// Waits for all of a list of the thread (persistent.cpp): on the way into the library, and out of the call.
void operations_started(Event& event, ThreadState& state);
void operations_finished(Event& event, ThreadState& state);

/// Persistent receives of messages that exist now: their ends need a status.
extern constinit uint32_t persistent_receives;
/// The call that makes a persistent request of a message: gives it a shadow.
void persistent_before(Event& event);
/// A request of MPI_Start(all) cannot be started: the call's result is an error.
bool start_refused(Event& event);
/// MPI_Request_get_status: the program may look at the data without completing the request.
void look_at_status(Event& event);

/// Raises MPI_ERR_OTHER where MPI would; the code.
int raise_error(uint64_t comm);

}  // namespace resil::staging
