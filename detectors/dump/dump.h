// SPDX-License-Identifier: Apache-2.0
//
// The state dump without the signal (RESIL_SIGNAL).
#pragma once

namespace resil {

/// request_dump (shim/runtime/request_dump.h), which other modules call.
void dump_now(const char* reason);

}  // namespace resil
