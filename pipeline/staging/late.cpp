// SPDX-License-Identifier: Apache-2.0
//
// See late.h.

#include "pipeline/staging/late.h"

#include "shim/abi/backend.h"
#include "shim/model/event.h"

namespace resil::staging {

bool sender_done(Thread& thread, const Message* receive) {
  if (receive->parts.load(std::memory_order_acquire) <= 1) return true;
  Message* sender = may_ask(*receive) ? nullptr : wire_claim_owned(receive);
  if (sender == nullptr) return false;
  int flag = 0;
  const int result = backend->messages->test(&sender->handle, &flag, nullptr);
  if (flag == 0 && result == 0) {
    wire_append(sender);
    return false;
  }
  sender->closed = !sender->persistent;
  sender->failed = sender->failed || result != 0;
  finish(thread, sender);
  return true;
}

StatusInfo came_with(const Event& e, const Message& op, int64_t place) {
  StatusInfo status = {};
  if (op.sends) return status;
  backend->messages->status_read(e.given_statuses, place, &status);
  ErrorKind kind = backend->messages->error_kind(e.result);
  if (kind == ErrorKind::kInStatus) kind = backend->messages->error_kind(status.error);
  if (status.cancelled || (kind != ErrorKind::kNone && kind != ErrorKind::kTruncated)) status.bytes = 0;
  return status;
}

void remember(Message& op, const StatusInfo& status) {
  if (status.error != 0) {
    op.error = status.error;
    op.failed = true;
  }
  if (!op.keeps) return;
  op.came = op.came != 0 ? op.came : status.bytes;
  op.cancelled = status.cancelled;
  op.told = true;
}

void begin_late(Thread& thread, Message* op, const StatusInfo& status) {
  op->claimed = false;
  op->closed = !op->persistent;
  wire_done(thread, op, status);
}

void end_late(Thread& thread, const Message* op) {
  wait_while_working(thread, [&] {
    sender_done(thread, op);
    return finished(*op);
  });
}

}  // namespace resil::staging
