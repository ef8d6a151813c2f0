// SPDX-License-Identifier: Apache-2.0
//
// hang.log, hang-N.json and hang-N.txt. Helper thread of the root's node.
#pragma once

#include <sys/types.h>

#include "detectors/hang/root/root.h"

namespace resil::hang {

const char* activity_name(RankActivity activity);  ///< "computing", "blocked", …

/// "waits for its device in …" of a rank that does (RankState::device).
void describe_device(const RankState& state, char* text, size_t bytes);
/// What ranks wait for from their accelerators: the first into the message, and a line of evidence each.
void add_device_evidence(const Root& root, Verdict* verdict);

/// Writes both files of finding `number` (or the next free one); their paths, "" where a file could not be written.
void write_hang_files(Root& root, const Verdict& verdict, uint32_t number, const char* action, char* json_path,
                      char* text_path, uint32_t path_bytes);

/// A child of the helper's own: waited for without blocking, now and then, so that it stays no zombie.
void reap_later(pid_t child);
void reap_now();

}  // namespace resil::hang
