// SPDX-License-Identifier: Apache-2.0
//
// hang-N.json and hang-N.txt, why-N.json and why-N.txt. Helper thread of the root's node.
#pragma once

#include "detectors/hang/root/root.h"

namespace resil::hang {

enum class HangFile : uint8_t {
  kFinding,  ///< hang-N
  kWhy,  ///< why-N: the answer to Root::why
};

/// Writes both files of Root::verdict under `number` (or the next free one); their paths, "" where a file could not be
/// written.
void write_hang_files(Root& root, HangFile kind, uint32_t number, const char* action, char* json_path, char* text_path,
                      uint32_t path_bytes);

}  // namespace resil::hang
