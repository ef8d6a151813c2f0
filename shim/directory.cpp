// SPDX-License-Identifier: Apache-2.0
//
// The report directory. Every rank makes it (it exists already for all but one); a failure is told once by the job,
// through presence, not once a rank.

#include "shim/directory.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shim/config.h"
#include "shim/runtime.h"

namespace resil {

namespace {

constexpr int kNodeRanks = 64, kJobRanks = 1024;
char problem[1200];
bool merges;

bool make_directories(char* path) {
  for (char* slash = strchr(path + 1, '/'); slash != nullptr; slash = strchr(slash + 1, '/')) {
    *slash = 0;
    bool ok = mkdir(path, 0777) == 0 || errno == EEXIST || errno == EISDIR || errno == EROFS || errno == EACCES;
    *slash = '/';
    if (!ok)
      return false;
  }
  if (mkdir(path, 0777) != 0 && errno != EEXIST)
    return false;
  struct stat status;
  if (stat(path, &status) != 0)
    return false;
  if (!S_ISDIR(status.st_mode)) {
    errno = ENOTDIR;
    return false;
  }
  return access(path, W_OK | X_OK) == 0;
}

}  // namespace

void directory_prepare(const LaunchIdentity& identity) {
  char name[160], path[sizeof(runtime.directory)];
  int length;
  directory_name(identity, name, sizeof(name));
  const char* wanted = config_is_default("RESIL_DIR") ? name : config_text("RESIL_DIR");
  char cwd[sizeof(path)] = "";
  if (wanted[0] != '/' && getcwd(cwd, sizeof(cwd)) == nullptr) {
    snprintf(problem, sizeof(problem), "the working directory: %s", strerror(errno));
    return;
  }
  length = snprintf(path, sizeof(path), "%s%s%s", cwd, wanted[0] == '/' ? "" : "/", wanted);
  if (identity.world != 0 && length > 0 && static_cast<size_t>(length) < sizeof(path))
    length += snprintf(path + length, sizeof(path) - static_cast<size_t>(length), "/world-%d", identity.world);
  if (length < 0 || static_cast<size_t>(length) + 32 >= sizeof(path)) {
    snprintf(problem, sizeof(problem), "RESIL_DIR: %s", strerror(ENAMETOOLONG));
    return;
  }
  merges = identity.local_size > kNodeRanks || identity.size > kJobRanks;
  if (make_directories(path))
    strcpy(runtime.directory, path);
  else
    snprintf(problem, sizeof(problem), "%.900s: %s", path, strerror(errno));
}

void directory_give_up(int error) {
  snprintf(problem, sizeof(problem), "%.900s: %s", runtime.directory, strerror(error));
  runtime.directory[0] = 0;
  memset(runtime.header->directory, 0, sizeof(runtime.header->directory));
}

const char* directory_problem() { return problem; }
bool directory_merges() { return merges; }

}  // namespace resil
