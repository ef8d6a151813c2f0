// SPDX-License-Identifier: Apache-2.0
//
// What the arguments of a receiving call say of its receive. For receives.cpp only.
#pragma once

#include "shim/model/event.h"
#include "shim/tables/buffer_view.h"

namespace resil::p2p {

inline bool replaces(CallId id) { return class_of(id) == CallClass::kSendReceiveReplace; }

inline View view_of(const Event& e) {
  const DataArgument& side = replaces(e.id) ? e.send : e.receive;
  View view = make_view(*e.thread, side.buffer, side.count, side.type);
  if ((e.attributes & kCallPartitioned) && view.reason != ledger::Reason::kDatatype) {
    view.count *= e.partitions;
    view.bytes *= static_cast<uint64_t>(e.partitions);
  }
  return view;
}

inline int32_t source_of(const Event& e) { return e.attributes & kCallBothWays ? e.receive_peer : e.peer; }
inline int32_t tag_wanted(const Event& e) { return e.attributes & kCallBothWays ? e.receive_tag : e.tag; }

}  // namespace resil::p2p
