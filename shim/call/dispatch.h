// SPDX-License-Identifier: Apache-2.0
//
// The one way in and out of an MPI call, shared by all wrappers of all ABIs.
#pragma once

#include "shim/abi/backend.h"
#include "shim/call/local_data.h"
#include "shim/call/thread.h"
#include "shim/model/event.h"

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
/// How many modules change, execute or look at a call between all hooks and the library (module.h, `intercepts`).
extern uint8_t intercepted[kCallCount];
/// Whether some module has to do with a request whose status the program asks for (module.h, `asks_status`).
extern bool status_one_by_one;
/// A buffer that may activate the dormant module: asks it.
void look_at_buffer(Thread& thread, const void* buffer);
/// Not if the cache holds all (HostRangeCache::all).
inline void notice(Thread& thread, const void* buffer) {
  if (reinterpret_cast<uintptr_t>(buffer) - thread.host_ranges.low >= thread.host_ranges.bytes) [[unlikely]]
    look_at_buffer(thread, buffer);
}
/// Around a local call that moves data, which may activate the dormant module. A module may give the library other
/// buffers. local_leave() only when it did: `packed`, how far the position has moved; the call's result.
LocalWay local_enter(Thread& thread, LocalData& data);
int local_leave(Thread& thread, LocalData& data, int result, int64_t packed);
/// What the program is told by MPI_Wtime and MPI_Wtick, null: the truth (module.h, `time`).
extern double (*time_hook)(Thread& thread, CallId id, double value);
/// The modules' before_call, then execute_instead: did one execute this call instead of the library?
bool intercept(Event& event);
void after_call(Event& event);
/// Makes the library fill statuses that the application ignores, so that hooks can read them in `leave`. False: no
/// memory for them, the application's choice stands. From `enter` hooks only.
bool give_statuses(Event& event);

}  // namespace resil
