// SPDX-License-Identifier: Apache-2.0
//
// A module that looks at messages, on the fast path of the call path (fast_path.h).
#pragma once

#include <cstdint>

#include "shim/call/stages.h"
#include "shim/call/thread.h"
#include "shim/model/calls.h"

namespace resil::fast {

struct Call;

/// What a module that looks at messages does on the fast path in place of its hooks. The call is open; Thread::message,
/// and what it receives besides in Thread::received, say what it is about. Below MPI_THREAD_MULTIPLE.
struct MessageHooks {
  /// Calls that are carried out by tests on the fast path, too: MPI_Recv, MPI_Wait and MPI_Waitall, and sends of at
  /// least so many bytes.
  bool (*intercepts)(CallId id);
  uint64_t send_bytes;
  /// A blocking call has sent it, or is about to where it wants to know early.
  void (*sent)(Call call, CallId id);
  bool (*early)(CallId id);  ///< asked of calls that send and receive
  void (*describe)(Event& e);  ///< of a call that goes on the general way: what was done early
  /// A request is there. `words`: beside it; null: it is complete at once, or untracked with this key.
  void (*started)(Call call, CallId id, uint64_t* words, uint64_t key);
  /// It has come. `status`: whether the program wants it or not.
  void (*received)(Call call, CallId id, const GivenMessage& message, const void* status);
  /// May the wait be carried out by tests? Else others are given what they wait for, since the library waits now.
  bool (*tests)(Thread& thread, const void* requests, int64_t count);
  /// A request with this word is complete. False: not the usual case, nothing was done.
  bool (*completed)(Thread& thread, uint64_t word, const void* statuses, int64_t place);
  /// After all of these that a call has completed. Null: nothing is to be done then.
  void (*over)(Thread& thread);
};
extern const MessageHooks* messages;  ///< null: nobody does
constexpr unsigned kMessageWord = request_word(Stage::kChecksum);  ///< MessageHooks::completed's

}  // namespace resil::fast
