// SPDX-License-Identifier: Apache-2.0
//
// See found.h. May make `.found` in the report directory.

#include "shim/report/found.h"

#include <stdio.h>
#include <unistd.h>

#include "shim/call/runtime.h"
#include "shim/report/finding.h"
#include "shim/report/own_files.h"

namespace resil {

namespace {

void path_of(const char* name, char (&path)[1200]) { snprintf(path, sizeof(path), "%s/%s", runtime.directory, name); }

bool there(const char* name) {
  char path[1200];
  path_of(name, path);
  return own_file_exists(path);
}

}  // namespace

void found_mark() {
  if (finding_count() == 0 || runtime.directory[0] == 0) return;
  char path[1200];
  path_of(".found", path);
  if (const int fd = own_file_append(path, 0666); fd >= 0) close(fd);
}

bool found_any() {
  return finding_count() != 0 || (runtime.directory[0] != 0 && (there(".found") || there("hang-0.json")));
}

}  // namespace resil
