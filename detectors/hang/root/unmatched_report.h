// SPDX-License-Identifier: Apache-2.0
//
// Messages that nobody has received, for the report of the rank whose helper counted them.
#pragma once

#include "detectors/hang/mismatch/unmatched.h"
#include "shim/report/json.h"

namespace resil::hang {

/// As found; helper thread, which ends before the report is written.
UnmatchedList& unmatched_list();
/// Member `unreceived_messages`: [] when everything was received; absent where the messages of some rank could not be
/// counted.
void unmatched_report(JsonWriter& json);

}  // namespace resil::hang
