// SPDX-License-Identifier: Apache-2.0
//
// See files.h. May touch DIRECTORY/.present/ and nothing else. One small file a rank, put in place by rename; readers
// open it by name, because a listing may come from a network file system's cache while an open asks the server.
#include "shim/presence/files.h"

#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "shim/config/config_parse.h"
#include "shim/report/own_files.h"
#include "shim/report/write_shield.h"

namespace resil {
namespace {

char prefix[1400];  // "DIRECTORY/.present/JOB.KEY.rank-"
char folder[1100];  // "DIRECTORY/.present"
char own[1440];

/// A directory of this user's own, not a link to one.
bool is_own(const char* path) {
  struct stat status;
  const int at = own_directory_open(path, false);
  const bool good = at >= 0 && fstat(at, &status) == 0 && own_directory_trust(at, status) == DirectoryTrust::kOwn;
  if (at >= 0) close(at);
  return good;
}

bool publish(const LaunchIdentity& identity, const char* directory, const char* value) {
  if (!directory || !*directory || identity.rank < 0 || strlen(directory) > 1024) return false;
  Text(folder, sizeof folder).add(directory).add("/.present");
  if (strlen(folder) >= sizeof folder - 1 || !own_directory_make(folder) || !is_own(folder)) return false;
  // The key keeps a directory that is used again from showing the ranks of the job before. A requeued job has the
  // same ids as before, but another count.
  const char* requeued = getenv("SLURM_RESTART_COUNT");
  Text text(prefix, sizeof prefix);
  text.add(folder).add("/").add(identity.job).add(".").add(identity.key).add(".").add(requeued ? requeued : "");
  text.add(".rank-");
  Text(own, sizeof own).add(prefix).add(int64_t{identity.rank});
  OwnFile file;
  size_t length = strlen(value);
  const WriteShield shield;
  bool good = own_file_begin(&file, own, 0644);
  if (good && write(file.fd, value, length) != static_cast<ssize_t>(length)) {
    own_file_drop(&file);
    good = false;
  }
  good = good && own_file_commit(&file);
  if (!good) own[0] = 0;
  return good;
}

bool get(int rank, char* value, size_t size) {
  char path[1440];
  Text(path, sizeof path).add(prefix).add(int64_t{rank});
  int fd = own_file_read(path);  // a value of another user is no value: it could end the job
  if (fd < 0) return false;
  ssize_t length = read(fd, value, size - 1);
  close(fd);
  if (length <= 0) return false;
  value[length] = 0;
  return true;
}

void release() {}

void remove_own() {
  if (own[0]) own_file_remove(own);
  if (folder[0]) rmdir(folder);  // the last rank succeeds
  own[0] = folder[0] = 0;
}

}  // namespace

const Carrier kFilesCarrier = {"files", publish, nullptr, get, release, remove_own};

}  // namespace resil
