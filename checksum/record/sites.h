// SPDX-License-Identifier: Apache-2.0
//
// Verify, by call site: how many values were compared there and how many differ, what RESIL_VERIFY_IGNORE says of it,
// and what the user would have to add to it. Any thread: the table is append-only.
#pragma once

#include <cstddef>
#include <cstdint>

#include "shim/tables/tally.h"

namespace resil {
struct Event;
class JsonWriter;
}  // namespace resil

namespace resil::record {

struct SiteCount {
  uint64_t site;
  Tally compared, differed;
  uint16_t call;  ///< of the first one that differed
  enum Ignored : uint8_t { kNotAsked, kNo, kYes } ignored, place_ignored;
  bool told;  ///< a suspected difference there has been told or counted
};

/// Of that call site, made if needed; null: there is no room.
SiteCount* site_count(uint64_t site);

/// A value was compared there. Whether others have differed there.
inline bool site_compared(uint64_t site) {
  SiteCount* count = site_count(site);
  if (count == nullptr) return false;
  count->compared += 1;
  return count->differed != 0;
}

/// Does RESIL_VERIFY_IGNORE name it, as object+0xoffset or by its function? Looked up once; may read object files.
bool site_ignored(SiteCount* count, uint64_t site);

/// The same of any place in the program's own code, as object+0xoffset only.
bool place_ignored(uint64_t place);

/// Why ignoring a site would hide more than it should; null: it may be advised.
const char* site_would_blind(uint64_t site);

/// The value of RESIL_VERIFY_IGNORE with which this run would have told nothing: what it was, and the sites that
/// differed and may be advised. False: there is nothing to add. `left`: sites that may not.
bool sites_to_ignore(char* text, size_t bytes, unsigned* left);
/// Of so much data nothing would be compared any more that nothing is advised: more than one value in ten differs.
bool sites_are_too_many();
void sites_report(JsonWriter& json);

}  // namespace resil::record
