// SPDX-License-Identifier: Apache-2.0
//
// What the overlay has counted, from the helper thread to the rank's report.
#pragma once

#include "detectors/hang/overlay/overlay.h"
#include "shim/report/json.h"

namespace resil::hang {

/// Helper thread, after a turn of the overlay.
void overlay_keep_counters(const Overlay* overlay);

/// Application's thread: member "overlay" of the object that is open; nothing where this rank never had an overlay.
void overlay_report(JsonWriter& json);

}  // namespace resil::hang
