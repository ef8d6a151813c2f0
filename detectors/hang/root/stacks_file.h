// SPDX-License-Identifier: Apache-2.0
//
// stacks-N.json and stacks-N.txt: where all threads of all ranks are when a hang is told, as a tree with ranks. Helper
// thread of the root's node.
#pragma once

#include "detectors/hang/root/root.h"

namespace resil::hang {

/// The next question to the nodes is for stacks; `of`: the file that they belong to, or "notice".
void want_stacks(Root& root, const char* of);
/// Fills Root::stacks_question; its bytes.
uint32_t stacks_question(Root& root);
/// To files; or nothing yet, and Root::stacks_due once more: on a crowded machine a thread that is ready to run, but
/// does not while it is sampled, cannot be read.
void write_stacks(Root& root, const void* merged, uint32_t bytes);

}  // namespace resil::hang
