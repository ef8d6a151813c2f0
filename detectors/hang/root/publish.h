// SPDX-License-Identifier: Apache-2.0
//
// A verdict that stands and has its names goes out: hang.log (suspicions too), hang-N.json, hang-N.txt, a block on
// standard error, the user's hook, and what RESIL_HANG says. Helper thread of the root's node.
#pragma once

#include "detectors/hang/root/root.h"

namespace resil::hang {

/// By this leader or the one before it.
bool was_published(const ControlBlock& control, const Verdict& verdict);
/// Root::verdict, in the words of Root::explanation. Once for each Verdict::signature.
void publish(Root& root);

}  // namespace resil::hang
