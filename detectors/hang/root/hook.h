// SPDX-License-Identifier: Apache-2.0
//
// RESIL_HANG_HOOK: the user's command, once for each finding. Helper thread.
#pragma once

namespace resil::hang {

/// Starts it, with RESIL_HANG_REPORT naming the report.
void run_hook(const char* json_path);
/// Waits for those that have ended, now and then and without blocking, so that none stays a zombie.
void reap_hooks();

}  // namespace resil::hang
