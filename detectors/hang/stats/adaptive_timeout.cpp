// SPDX-License-Identifier: Apache-2.0
#include "detectors/hang/stats/adaptive_timeout.h"

namespace resil::hang::stats {

/// Open addressing over the whole table; entries never leave, so that the first empty place ends the search.
AdaptiveTimeout::Entry* AdaptiveTimeout::place(uint64_t kind) {
  const uint64_t first = (kind * 0x9e3779b97f4a7c15) >> 32;
  for (uint32_t i = 0; i < kKinds; ++i) {
    Entry& entry = entries_[(first + i) % kKinds];
    if (entry.seen == 0 || entry.kind == kind) return &entry;
  }
  return &rest_;
}

const AdaptiveTimeout::Entry& AdaptiveTimeout::find(uint64_t kind) const {
  return *const_cast<AdaptiveTimeout*>(this)->place(kind);
}

void AdaptiveTimeout::ended(uint64_t kind, double seconds) {
  Entry& entry = *place(kind);
  entry.kind = kind;
  ++entry.seen;
  if (seconds > entry.longest) entry.longest = seconds;
}

double AdaptiveTimeout::longest(uint64_t kind) const { return find(kind).longest; }

uint64_t AdaptiveTimeout::seen(uint64_t kind) const { return find(kind).seen; }

double AdaptiveTimeout::limit(uint64_t kind) const {
  const Entry& entry = find(kind);
  const double floor = entry.seen < kFewest ? kUnfamiliar : kFloor;
  const double learned = kFactor * entry.longest;
  return learned > floor ? learned : floor;
}

}  // namespace resil::hang::stats
