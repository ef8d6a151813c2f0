// SPDX-License-Identifier: Apache-2.0
//
// Completion calls while staged messages are under way. None are, yet.

#include "pipeline/staging/staging.h"

namespace resil::staging {

bool completes(CallId) { return false; }
bool wait_replace(Event&) { return false; }

}  // namespace resil::staging
