// SPDX-License-Identifier: Apache-2.0
//
// hang.log and hang-trace.txt: one line an event. Helper thread of the root's node.
#pragma once

#include "detectors/hang/stats/watch.h"
#include "detectors/hang/verdict/format.h"

namespace resil::hang {

/// One line of hang.log: time in ns since 1970, what ("notice", "suspected", …), text.
void log_hang(const char* what, const char* text);
void log_hang(const char* what, const Statement& statement, const Names& names);
/// Class and message of a finding, and where the calls are that do not match: of what is only suspected nothing else is
/// written.
void log_hang(const char* what, const Verdict& verdict, const Explanation& explanation, const Names& names);

/// One line of hang-trace.txt (RESIL_LOG=debug), in the form of stats/watch.h.
void trace_look(const stats::Look& look);

}  // namespace resil::hang
