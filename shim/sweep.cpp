// SPDX-License-Identifier: Apache-2.0
//
// Node-local memory that killed jobs left behind: nobody may ever ask for their reports, and a node must not fill up
// with rings. Reads and removes files of this user in /dev/shm only; runs once a node and job, inside MPI_Init.

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shim/node_memory.h"
#include "shim/own_files.h"
#include "shim/runtime.h"
#include "shim/segment.h"

namespace resil {

namespace {

constexpr int kMostFiles = 256;      // rings at about 1 ms each; the next job takes the rest
constexpr size_t kChunk = 64 << 10;  // bytes copied at a time

/// Copies all but zero chunks. False when the target cannot be written.
bool copy(int from, const char* directory, int rank) {
  static char chunk[kChunk], zero[kChunk];
  char path[1200];
  struct stat status;
  snprintf(path, sizeof(path), "%s/rank-%05d.ring", directory, rank);
  if (own_file_exists(path))
    return true;  // collected already
  OwnFile file;
  if (!own_file_begin(&file, path, 0666))
    return false;
  const int to = file.fd;
  bool ok = fstat(from, &status) == 0 && file_size_allowed(static_cast<uint64_t>(status.st_size)) &&
            ftruncate(to, status.st_size) == 0;
  for (off_t offset = 0; ok && offset < status.st_size; offset += static_cast<off_t>(kChunk)) {
    ssize_t bytes = pread(from, chunk, kChunk, offset);
    ok = bytes > 0 && (memcmp(chunk, zero, static_cast<size_t>(bytes)) == 0 || pwrite(to, chunk, static_cast<size_t>(bytes), offset) == bytes);
  }
  if (!ok)
    own_file_drop(&file);
  return ok && own_file_commit(&file);
}

void collect(int folder, const char* name) {
  int fd = openat(folder, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0)
    return;
  ring::Header header;
  struct stat status;
  bool ours = fstat(fd, &status) == 0 && status.st_uid == getuid() && pread(fd, &header, sizeof(header), 0) == sizeof(header) &&
              header.magic == ring::kMagic && header.version == ring::kVersion && header.pid_namespace == pid_namespace();
  if (ours) {
    uint64_t started = uint64_t{header.pid_start_hi} << 32 | header.pid_start_lo;
    header.directory[sizeof(header.directory) - 1] = 0;
    if (process_start_time(header.pid) != started) {
      // A directory that is gone, or full, does not keep the memory taken.
      if (header.directory[0] == '/' && header.rank >= 0)
        copy(fd, header.directory, header.rank);
      unlinkat(folder, name, 0);
    }
  }
  close(fd);
}

}  // namespace

void segment_sweep() {
  char prefix[32];
  snprintf(prefix, sizeof(prefix), "resil-%u-", getuid());
  DIR* folder = opendir("/dev/shm");
  if (folder == nullptr)
    return;
  int left = kMostFiles;
  for (dirent* entry = readdir(folder); entry != nullptr && left > 0; entry = readdir(folder)) {
    size_t length = strlen(entry->d_name);
    if (strncmp(entry->d_name, prefix, strlen(prefix)) != 0 || length < 5)
      continue;
    if (strcmp(entry->d_name + length - 5, ".ring") == 0)
      collect(dirfd(folder), entry->d_name);
    else if (strcmp(entry->d_name + length - 5, kNodeMemorySuffix) == 0)
      node_memory_sweep(dirfd(folder), entry->d_name);
    else
      continue;
    --left;
  }
  closedir(folder);
}

}  // namespace resil
