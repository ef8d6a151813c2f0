// SPDX-License-Identifier: Apache-2.0
//
// What a receive that is over has received: its status taken over, its data digested. For receives.cpp only, and
// inline, because every receive passes through it.
#pragma once

#include "checksum/ledger/blame.h"
#include "checksum/ledger/lives.h"
#include "checksum/p2p/p2p.h"
#include "checksum/p2p/receive_queue.h"
#include "shim/abi/backend.h"
#include "shim/model/view.h"
#include "shim/runtime/staged.h"

namespace resil::p2p {

/// A message that was too long. MPICH leaves the status of some calls as the program had it, so that only the arguments
/// say whose message it was; of a wildcard the status does, where the call is one that fills it (`told`). False:
/// neither.
inline bool fill_truncated(Receive& receive, const StatusInfo& status, bool told) {
  blame::drop_posted(receive.posted);
  receive.posted = receive.evidence = 0;
  const bool fits = status.source >= 0 && status.tag >= 0 &&
                    (receive.source == ring::kAnySource || receive.source == status.source) &&
                    (receive.tag == ring::kAnyTag || receive.tag == status.tag);
  if (receive.wild && !(told && fits)) {
    ledger::count_uncovered(ledger::Reason::kError, 1, receive.view.bytes);
    Guard guard;
    receive.comm->lost = true;
    return false;
  }
  receive.actual_source = receive.wild ? status.source : receive.source;
  receive.actual_tag = receive.wild ? status.tag : receive.tag;
  receive.bytes = receive.view.bytes;
  receive.failed = true;
  ledger::life_end(receive.order, 0);
  receive.shared = match_queue_is_shared(receive.comm->id, receive.source, receive.tag, false, true);
  return true;
}

/// Takes the status over and digests what arrived. False: no message was taken.
inline bool fill(Thread& thread, Receive& receive, const StatusInfo& said, ErrorKind error, bool told) {
  receive.staged = false;
  StatusInfo status = said;
  // MPICH 4.0 runs these as a schedule and leaves their status as it was, empty or some other message's: then the
  // arguments say whose message it was, not how long. Into no room no other length can come.
  const bool no_room = receive.both_ways && receive.view.bytes == 0 && !receive.wild;
  if (no_room) status = {receive.source, receive.tag, said.error, false, 0};
  const bool odd =
      status.bytes == 0 || (!receive.wild && (status.bytes != receive.view.bytes || status.source != receive.source ||
                                              status.tag != receive.tag));
  // MPICH 4.2 and 5.0 give the status of a persistent receive to the first who looks, and an empty one to all others.
  const bool looked_at = receive.persistent && status.source < 0 && !status.cancelled;
  receive.no_status =
      looked_at ||
      (receive.both_ways && !no_room && odd &&
       (receive.view.reason != ledger::Reason::kDeviceBuffer || staged_copies == nullptr));  // staging's are right
  if (receive.no_status && error == ErrorKind::kNone) {
    if (receive.wild) receive.comm->lost = true;
    receive.actual_source = receive.source;
    receive.actual_tag = receive.tag;
    receive.bytes = receive.view.bytes;
    receive.failed = false;
    blame::drop_posted(receive.posted);
    receive.posted = 0;
    return !receive.wild;
  }
  if (error == ErrorKind::kPending || error == ErrorKind::kOther) return false;
  if (error != ErrorKind::kNone) return fill_truncated(receive, status, told);
  if (status.cancelled || status.source < 0) return false;
  receive.actual_source = status.source;
  receive.actual_tag = status.tag;
  receive.bytes = status.bytes;
  StagedView copy;
  receive.staged = staged_receive(thread, receive.view, status.bytes, &copy);
  receive.failed = receive.view.reason == ledger::Reason::kNone && status.bytes > receive.view.bytes;
  receive.evidence = 0;
  receive.shared = match_queue_is_shared(receive.comm->id, receive.source, receive.tag, false, true);
  if (receive.staged) [[unlikely]] {
    receive.digest = copy.digest;
    ledger::life_end(receive.order, receive.digest);
    if (ledger::full_blame())
      receive.evidence =
          blame::receive_complete(receive.posted, copy.view, receive.bytes, receive.digest, blame::LookWhen::kNow);
  } else if (receive.failed || receive.view.reason != ledger::Reason::kNone) {
    blame::drop_posted(receive.posted);
    ledger::life_end(receive.order, 0);
  } else {
    receive.digest = view_digest(receive.view, receive.bytes);
    ledger::life_end(receive.order, receive.digest);
    if (ledger::full_blame())
      receive.evidence = blame::receive_complete(receive.posted, receive.view, receive.bytes, receive.digest);
  }
  receive.posted = 0;
  return true;
}

}  // namespace resil::p2p
