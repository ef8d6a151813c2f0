// SPDX-License-Identifier: Apache-2.0
//
// A copy of a flight record while its thread goes on. Async-signal-safe. May touch: the ring, read only.
#pragma once

#include <cstdint>
#include <cstring>

#include "shim/ring/ring_format.h"

namespace resil::dump {

/// Copies a record; false when it may have been overwritten meanwhile. `number` counts from 0, as TraceBuffer::head
/// does.
inline bool copy_record(const ring::TraceBuffer& trace, uint64_t number, ring::Record* record) {
  const auto* from = reinterpret_cast<const uint64_t*>(&ring::record_at(trace, number));
  uint64_t words[sizeof *record / 8];
  for (size_t i = 0; i < sizeof *record / 8; ++i) words[i] = __atomic_load_n(&from[i], __ATOMIC_ACQUIRE);
  memcpy(record, words, sizeof words);
  // Ordered after the copy, and the writer's fence before it (flight::place_for_next): the record whose place comes
  // next is being written over, all after it are whole.
  const uint64_t head = __atomic_load_n(&trace.head, __ATOMIC_RELAXED);
  return number < head && head - number < ring::records_of(trace);
}

}  // namespace resil::dump
