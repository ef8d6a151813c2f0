// SPDX-License-Identifier: Apache-2.0
//
// Messages that nobody has received, for the report of the rank whose helper compared the accounts.
#pragma once

#include "detectors/hang/mismatch/accounts.h"
#include "shim/report/json.h"

namespace resil::hang {

/// What the accounts say; helper thread, which ends before the report is written.
UnreceivedList& unreceived_list();
/// Member `unreceived_messages`: [] when everything was received; absent where no accounts of all ranks were compared.
void unreceived_report(JsonWriter& json);

}  // namespace resil::hang
