// SPDX-License-Identifier: Apache-2.0
//
// By which calls a rank can tell another one anything, itself or through what the others wait for. All that is not in
// this list takes in, or is the rank's own affair. Synchronous sends tell their sender that a receive has been posted:
// whoever asks here has to leave programs with such sends out.
#pragma once

#include "shim/model/calls.h"
#include "shim/ring/ring_format.h"

namespace resil {

constexpr bool tells_others(CallId id) {
  if (id == CallId::kMPI_Publish_name || id == CallId::kMPI_Unpublish_name)
    return true;  // local to the name server only
  switch (class_of(id)) {
    case CallClass::kLocal:
    case CallClass::kReceive:
    case CallClass::kProbe:
    case CallClass::kMatchedProbe:
    case CallClass::kMatchedReceive:
    case CallClass::kPartitionArrived:
    case CallClass::kCompletion:
    case CallClass::kGetStatus:
    case CallClass::kRequestFree: return false;
    case CallClass::kLifecycle:
    case CallClass::kSend:
    case CallClass::kSendReceive:
    case CallClass::kSendReceiveReplace:
    case CallClass::kPartitionedSend:
    case CallClass::kPartitionedReceive:
    case CallClass::kPartitionReady:
    case CallClass::kBuffer:
    case CallClass::kCancel:  // a send that cannot be cancelled any more has been received
    case CallClass::kStart:  // of a send, it may be
    case CallClass::kGeneralizedRequest:
    case CallClass::kCollective:
    case CallClass::kComm:
    case CallClass::kWindow:
    case CallClass::kRma:
    case CallClass::kFile: break;
  }
  return true;
}

/// Of a call's record, or one that the program or resil itself made, which is nobody's call.
inline bool tells_others(const ring::Record& record) {
  const bool call = record.state == static_cast<uint8_t>(ring::RecordState::kOpen) ||
                    record.state == static_cast<uint8_t>(ring::RecordState::kDone);
  return call && (record.call >= kCallCount || tells_others(static_cast<CallId>(record.call)));
}

}  // namespace resil
