// SPDX-License-Identifier: Apache-2.0
//
// Claimed messages: those that the program's own call completes in the library, and whose copies come after it
// (wait.cpp).
#pragma once

#include "pipeline/staging/message.h"
#include "pipeline/staging/staging.h"
#include "shim/call/dispatch.h"
#include "shim/model/event.h"

namespace resil::staging {

/// MPI_Isendrecv: is the send done? It has a request of its own, which the program does not know. True for other
/// messages.
bool sender_done(Thread& thread, const Message* receive);
/// What came with a claimed request that the library has completed, by the event's result and its status at `place`.
StatusInfo came_with(const Event& event, const Message& op, int64_t place);
/// The library has completed the claimed request: copies begin.
void begin_late(Thread& thread, Message* op, const StatusInfo& status);
/// The library has been asked about a persistent request, which it may have made inactive: what it said is all that
/// there will be, and is told by the call that completes the request.
void remember(Message& op, const StatusInfo& status);
/// Waits until they are done.
void end_late(Thread& thread, const Message* op);

/// A message that the library may not be asked about is tested by the call that the program has made: `test()` is the
/// library's. `stays`: it does not complete the request. True: the message is finished.
template <class Test>
bool complete_claimed(Event& e, Message* op, int64_t place, int* flag, int* result, bool stays, Test test) {
  *flag = *result = 0;
  flush(*e.thread);
  if (!give_statuses(e) || !sender_done(*e.thread, op) || !wire_claim(op)) return false;
  op->claimed = true;
  op->marks.fetch_or(kClosing, std::memory_order_seq_cst);
  *result = test(static_cast<char*>(e.given_statuses) + place * static_cast<int64_t>(backend->status_bytes));
  if (*flag == 0 && *result == 0) {
    op->claimed = false;
    op->marks.fetch_and(static_cast<uint8_t>(~kClosing), std::memory_order_relaxed);
    wire_append(op);
    return false;
  }
  e.result = *result;
  begin_late(*e.thread, op, came_with(e, *op, place));
  if (stays) {
    if (op->keeps) {  // an error has been raised now
      StatusInfo status = came_with(e, *op, place);
      status.error = 0;
      remember(*op, status);
    }
    op->closed = false;
    op->marks.fetch_and(static_cast<uint8_t>(~kClosing), std::memory_order_relaxed);
  }
  end_late(*e.thread, op);
  return true;
}

}  // namespace resil::staging
