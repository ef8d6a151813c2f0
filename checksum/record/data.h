// SPDX-License-Identifier: Apache-2.0
//
// Values of a recording, beyond what shim/tables/call_data.h has of every call: how they take the place of others, and
// how people read them.
#pragma once

#include <cstdint>

#include "checksum/record/format.h"
#include "shim/tables/call_data.h"

namespace resil::record {

/// Puts a recorded number in the place of what the view shows. False: it is no single number in one piece.
bool write_value(const View& view, ValueType type, uint64_t bits);
/// The one block that the layout has, for that; `reason` is not kNone where there are several.
View only_block(Event& event, const FlatTransfer& layout);
/// Makes the call give the recorded number (`room`: eight bytes that stay until it returns), or what it gave this rank
/// the recorded one. Blocking calls only; false: it is left as it is.
bool give_recorded(Event& event, ValueType type, uint64_t bits, uint64_t* room);
bool take_recorded(Event& event, ValueType type, uint64_t bits);

/// Distance of two values in units in the last place; false: not floating-point numbers, or not numbers at all.
bool distance_in_ulps(ValueType type, uint64_t one, uint64_t other, uint64_t* ulps);
/// "0x1.8p+1 (3)", "42", "digest 0123…".
void value_text(ValueType type, uint64_t bits, char* text, size_t bytes);

}  // namespace resil::record
