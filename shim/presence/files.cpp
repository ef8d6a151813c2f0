// SPDX-License-Identifier: Apache-2.0
//
// See files.h. May touch DIRECTORY/.present/ and nothing else. One small file a rank, put in place by rename; readers
// open it by name, because a listing may come from a network file system's cache while an open asks the server.
#include "shim/presence/files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "shim/config_parse.h"

namespace resil {
namespace {

char prefix[1400];  // "DIRECTORY/.present/JOB.KEY.rank-"
char folder[1100];  // "DIRECTORY/.present"
char own[1440];

bool make(const char* path) { return mkdir(path, 0777) == 0 || errno == EEXIST; }

/// Makes the directory and those above it.
bool make_all(char* path) {
  for (char* slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
    *slash = 0;
    bool good = make(path);
    *slash = '/';
    if (!good && errno != EACCES && errno != EROFS) return false;  // may exist without being ours to look into
  }
  return make(path);
}

bool publish(const LaunchIdentity& identity, const char* directory, const char* value) {
  if (!directory || !*directory || identity.rank < 0 || strlen(directory) > 1024) return false;
  Text(folder, sizeof folder).add(directory).add("/.present");
  if (strlen(folder) >= sizeof folder - 1 || !make_all(folder)) return false;
  // The key keeps a directory that is used again from showing the ranks of the job before. A requeued job has the
  // same ids as before, but another count.
  const char* requeued = getenv("SLURM_RESTART_COUNT");
  Text text(prefix, sizeof prefix);
  text.add(folder).add("/").add(identity.job).add(".").add(identity.key).add(".").add(requeued ? requeued : "");
  text.add(".rank-");
  Text(own, sizeof own).add(prefix).add(int64_t{identity.rank});
  char temporary[1480];
  Text(temporary, sizeof temporary).add(own).add(".new");
  int fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) return false;
  size_t length = strlen(value);
  bool good = write(fd, value, length) == static_cast<ssize_t>(length);
  good = close(fd) == 0 && good;
  good = good && rename(temporary, own) == 0;
  if (!good) {
    unlink(temporary);
    own[0] = 0;
  }
  return good;
}

bool get(int rank, char* value, size_t size) {
  char path[1440];
  Text(path, sizeof path).add(prefix).add(int64_t{rank});
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  ssize_t length = read(fd, value, size - 1);
  close(fd);
  if (length <= 0) return false;
  value[length] = 0;
  return true;
}

void release() {}

void remove_own() {
  if (own[0]) unlink(own);
  if (folder[0]) rmdir(folder);  // the last rank succeeds
  own[0] = folder[0] = 0;
}

}  // namespace

const Carrier kFilesCarrier = {"files", publish, get, release, remove_own};

}  // namespace resil
