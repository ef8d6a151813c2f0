// SPDX-License-Identifier: Apache-2.0
//
// What complete receives wait for. A message of the matching queue (source, tag) can be claimed by receives posted with
// (source, tag), (source, any), (any, tag) or (any, any): four gates, each held shut for what was posted later while an
// older receive of that pattern is pending. A complete receive waits at the first gate that is shut, in a heap by order
// of posting, so that any number of wildcards completed in any order costs a logarithm each. For receives.cpp only; all
// of it under the lock of receive_queue.h.
#pragma once

#include "checksum/p2p/receive_queue.h"

namespace resil::p2p {

/// Null: there is none.
Pattern* pattern_find(const CommReceives& comm, int32_t source, int32_t tag);

/// Is a gate shut for this complete receive? Which one.
bool is_shut(const Receive& receive, int32_t* source, int32_t* tag);
/// It waits at that gate. False: no memory.
bool park(Receive& receive, int32_t source, int32_t tag);
/// The oldest receive that waits at that gate, taken out, if the gate is open for it; else null.
Receive* unpark(CommReceives& comm, int32_t source, int32_t tag);

/// The usual case of a receive for which no gate is shut.
inline bool is_first(const Receive& receive) {
  return receive.comm->patterns == 0 && !receive.wild && buckets[receive.bucket].first == &receive;
}

}  // namespace resil::p2p
