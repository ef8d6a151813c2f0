// SPDX-License-Identifier: Apache-2.0
//
// What data that differs says of the reason by what it looks like: addresses, dates, process ids, names of ports and of
// temporary files are others in each run. Off the call path.
#pragma once

#include <cstddef>

#include "checksum/record/divergence.h"
#include "shim/model/view.h"

namespace resil::record {

/// Phrases, joined by semicolons; what does not fit is left out, and counted all the same.
struct Phrases {
  char text[400];
  unsigned count;

  [[gnu::format(printf, 2, 3)]] void add(const char* format, ...);
};

/// The bytes that differ, as this run has them; a reason other than kNone where they are not in one place.
View differing_data(const Event* e, const Difference& d);
/// These bytes, if they are text in this run; "" otherwise.
void text_of(const View& view, char* text, size_t room);
/// Reads the data, and looks up in this process's memory what may be an address.
void data_says(const Difference& d, const View& view, const char* text, Phrases& phrases);

}  // namespace resil::record
