// SPDX-License-Identifier: Apache-2.0
//
// A call that is given shadows in place of device buffers: collectives, and persistent requests of any kind. It lives
// from the call until that is complete, or until its request is, or is freed. Inside collective*.cpp and
// persistent.cpp.
//
// Copies of one call, and those of all requests of one MPI_Startall or MPI_Waitall, are enqueued first and waited for
// afterwards.
#pragma once

#include <cstdint>

#include "pipeline/staging/packet.h"
#include "pipeline/staging/staging.h"
#include "shim/call/stages.h"

namespace resil::staging {

/// The module's word beside a request: the operation.
constexpr unsigned kWord = request_word(Stage::kStaging);

struct Operation {
  Operation* next;  ///< in one of the lists of its thread
  Packet send, receive;  ///< host null: that side is not on a device
  uint64_t frame;  ///< of the call that it belongs to
  uint64_t comm;  ///< handle, 0: none
  CallId id;
  Path path;
  bool in_place;  ///< the receive side holds what this rank gives
  bool active;  ///< persistent: started and not complete
  bool delivered;  ///< what came is on the device, or was asked for
  bool failed;  ///< a copy was refused
  uint32_t own_first, own_last;  ///< in place: blocks of the receive side that the call reads
  uint64_t written;  ///< bytes that the call writes: the beginning of the receive side's stream
};

/// What a thread has under way. Lists are linked by Operation::next.
struct ThreadState {
  Operation* calls;  ///< open calls, the innermost first
  uint64_t started_frame;  ///< of the MPI_Start(all) whose requests have all been looked at
  Operation* finishing;  ///< completed by this call, copies enqueued
  uint64_t refused_frame, refused_comm;  ///< a call that is not made, since data cannot be copied from the device
};
ThreadState* thread_state(Thread& thread);  ///< null: no memory

/// A call with an operation begins: copies what this rank gives, unless it is persistent, and keeps it among the
/// thread's open calls. Null: the data could not be copied, and the call is refused; or no memory, and it goes to the
/// library as it is (counted).
Operation* operation_begin(Event& event, const Operation& opened);
/// It has returned: waits for what came, or ties the operation to the request of the call.
void operation_end(Event& event, Operation* operation);

/// Enqueues the copies of what this rank gives.
void operation_down(Operation& operation);
/// Waits for them. False: the runtime refused; it has been said.
bool operation_down_done(Operation& operation);
/// Enqueues the copy of what came, at most `bytes` of it.
void operation_up(Operation& operation, uint64_t bytes);
bool operation_up_done(Operation& operation);
/// Data could not be copied `from` or `to` the device: says so, once in a run, and notes it.
void say_refused(CallId id, const char* what);
/// Gives everything back.
void operation_close(Operation* operation);

/// Waits for what the requests got that this call has completed (persistent.cpp).
void operations_finished(Event& event, ThreadState& state);

/// Persistent receives of messages that exist now: their ends need a status.
extern constinit uint32_t persistent_receives;
/// The call that makes a persistent request of a message: gives it a shadow.
void persistent_before(Event& event);
/// MPI_Request_free of an active one: a message that nobody asks for is looked after to its end (progress.cpp), which
/// then frees the library's request. True: carried out; else the request is the library's to free.
bool persistent_freed(Event& event);
/// All requests of an MPI_Start(all) have been told.
void start_entered(Thread& thread);
/// The call is not made, but ends with an error: refused() carries it out that way.
void refuse(ThreadState& state, const Event& event, uint64_t comm);
bool refused(Event& event);
/// MPI_Request_get_status: the program may look at the data without completing the request.
void look_at_status(Event& event);

/// Raises MPI_ERR_OTHER where MPI would; the code.
int raise_error(uint64_t comm);

}  // namespace resil::staging
