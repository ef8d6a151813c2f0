// SPDX-License-Identifier: Apache-2.0
//
// The site's settings: a text file of lines, read once, before the configuration. It is below the environment, so that
// it can neither end a job nor change what a user has asked for, but for its limits.
//
//   # a comment
//   RESIL_DIR=/scratch/reports          the default here, in place of the library's
//   limit RESIL_MODE=off|watch          what users may ask for; anything else ends the job as a value that is not
//   allowed
//
// Reads that one file and nothing else. No allocation. One thread, before the first config_ lookup.
#pragma once

#include "shim/config/config_parse.h"

namespace resil {

constexpr char kSiteFile[] = "/etc/resil.conf";
constexpr size_t kSiteFileBytes = 8192;

struct SiteFile {
  const char* path = nullptr;  ///< null: none was looked for
  Slice text{nullptr, 0};
  const char* problem = nullptr;  ///< why a file that is there is not used
};

/// The file that RESIL_CONF of `environment` names, else /etc/resil.conf; "off": none. A file is believed if it is a
/// regular one of root's or of this user's that nobody else may write to. The text stays until the next call.
SiteFile site_file_read(char* const* environment);

/// One line of it. kNothing: blank or a comment.
struct SiteLine {
  enum Kind : uint8_t { kNothing, kDefault, kLimit, kMalformed } kind;
  Slice name, value;
};
SiteLine site_line(Slice line);

}  // namespace resil
