// SPDX-License-Identifier: Apache-2.0
//
// The configuration for people: the table that RESIL_HELP=1 prints (`resil help` prints the same), and run.conf, which
// gives a job's settings to sh, to a site's file and to whoever asks later where a value came from.
#pragma once

#include <cstddef>

namespace resil {

/// The variable at `index`, with values, default and meaning, on lines of at most 100 columns; each ends with a
/// newline. Returns the length, cut to `size` - 1.
size_t config_help(size_t index, char* text, size_t size);

/// All values, those that were set as NAME=VALUE for sh and ordered by where they come from, defaults as comments. The
/// length, cut to `size` - 1. `site`: the path of the site's file. Needs config_load before.
size_t config_run_file(const char* site, char* text, size_t size);

}  // namespace resil
