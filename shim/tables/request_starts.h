// SPDX-License-Identifier: Apache-2.0
//
// What the number of a call that makes a request says of it. For the request table alone.
#pragma once

#include "shim/model/request_class.h"
#include "shim/ring/ring_format.h"

namespace resil {

/// As dumps show it.
constexpr ring::RequestKind kind_of(RequestClass of, bool receives) {
  switch (of) {
    case RequestClass::kMessage:
    case RequestClass::kPersistentMessage:
    case RequestClass::kExchange:
    case RequestClass::kPartitioned: return receives ? ring::RequestKind::kReceive : ring::RequestKind::kSend;
    case RequestClass::kCollective:
    case RequestClass::kPersistentCollective: return ring::RequestKind::kCollective;
    case RequestClass::kCommunicator: return ring::RequestKind::kCommunicator;
    case RequestClass::kRma: return ring::RequestKind::kRma;
    case RequestClass::kFile: return ring::RequestKind::kIo;
    case RequestClass::kGeneralized:
    case RequestClass::kNothing:
    case RequestClass::kUnknown:
    case RequestClass::kCount: break;
  }
  return ring::RequestKind::kGeneralized;
}

/// What the call's number alone says about a request; worked out by the compiler.
struct Starts {
  uint8_t kind[kCallCount], flags[kCallCount], of[kCallCount];
  bool testable[kCallCount];
};
inline constexpr Starts kStarts = [] {
  Starts starts = {};
  for (unsigned id = 0; id < kCallCount; ++id) {
    const CallInfo& info = call_info(static_cast<CallId>(id));
    starts.kind[id] = static_cast<uint8_t>(kind_of(request_class_of(info), info.has(kCallReceives)));
    starts.flags[id] = static_cast<uint8_t>((info.attributes & kCallPersistent ? ring::kPersistent : ring::kActive) |
                                            (info.attributes & kCallPartitioned ? ring::kPartitioned : 0));
    starts.of[id] = static_cast<uint8_t>(request_class_of(info));
    starts.testable[id] = may_be_tested(request_class_of(info));
  }
  return starts;
}();

}  // namespace resil
