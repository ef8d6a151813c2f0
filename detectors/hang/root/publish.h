// SPDX-License-Identifier: Apache-2.0
//
// What the detectors found, written down: hang.log (suspicions too), hang-N.json, hang-N.txt, a block on standard
// error, a finding in this rank's report, the user's hook. Helper thread of the root's node.
#pragma once

#include "detectors/hang/reader/records.h"
#include "detectors/hang/root/root.h"

namespace resil::hang {

/// One line of hang.log: time in ns since 1970, what, text.
void log_hang(const char* what, const char* format, ...) __attribute__((format(printf, 2, 3)));

/// One line of hang-trace.txt (RESIL_LOG=debug), in the form of stats/watch.h.
void trace_look(const stats::Look& look);

/// A proved or verified finding: files, block, hook, and what RESIL_HANG says. Once for each Verdict::signature.
void publish(Root& root, const Verdict& verdict);

/// Name of a communicator, or of a call site of a rank, as asked of the nodes; "?" when they do not know.
const char* name_of(Root& root, int32_t rank, NameKind kind, uint64_t value);

}  // namespace resil::hang
