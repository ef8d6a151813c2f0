// SPDX-License-Identifier: Apache-2.0
//
// One line on standard error when no rank has entered or left a call for RESIL_HANG_NOTICE seconds while some wait in
// one. No verdict: it names who waits and who does not, and is taken back when the job goes on. docs/HANGS.md, "The
// line after 30 seconds", has the rule. Helper thread of the root's node.
#pragma once

#include "detectors/hang/root/root.h"

namespace resil::hang {

/// Seconds without a move after which the line is due: more than the configuration says where this job has been quiet
/// for long before.
double notice_limit(const Root& root);
/// What the line says, by states that have just come. False: it is not due.
bool quiet_notice(const Root& root, double now, Verdict* verdict);
/// Root::verdict, which is such a line, in the words of Root::explanation.
void print_notice(Root& root);
/// The job goes on: takes the line back.
void withdraw_notice(Root& root, double now);

}  // namespace resil::hang
