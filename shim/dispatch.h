// SPDX-License-Identifier: Apache-2.0
//
// The one way in and out of an MPI call, shared by all wrappers of all ABIs.
#pragma once

#include "shim/backend.h"
#include "shim/event.h"
#include "shim/thread.h"

namespace resil {

/// Decides on a call whose thread is unknown to resil or already inside MPI. Sets `event.thread` to the thread's state
/// when the call is the application's and is to be seen, else to null: pass it straight through.
void admit(Event& event);

/// Before the real call: call site, communicator, bytes, modules. False: the call is MPI's own, pass it through.
bool enter(Event& event);
/// After it: request and communicator tables, modules in reverse. `event.result` holds the return code.
void leave(Event& event);
/// A local query: counted and folded, never timed. Null thread: not to be seen.
void count_local(Thread* thread, CallId id, uint64_t return_address, uint64_t frame);
extern bool any_transform;
/// Does a transform module carry out this call instead of the library?
bool replaced(Event& event);
/// Before MPI_Type_free: cached sizes of reused handles must not survive.
void forget_types();

}  // namespace resil
