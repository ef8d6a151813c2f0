// SPDX-License-Identifier: Apache-2.0
//
// See directory_lock.h. May touch launch.json in the directory that it is given.

#include "shim/report/directory_lock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shim/call/runtime.h"
#include "shim/presence/launch.h"
#include "shim/report/own_files.h"
#include "shim/report/write_shield.h"

namespace resil {

namespace {

constexpr char kFile[] = "launch.json";

/// The value of `"name": "…"`; values never hold quotes. False: it is not there, or too long.
bool take(const char* text, const char* name, char* to, size_t bytes) {
  char wanted[32];
  snprintf(wanted, sizeof(wanted), "\"%s\": \"", name);
  const char* begin = strstr(text, wanted);
  const char* end = begin != nullptr ? strchr(begin + strlen(wanted), '"') : nullptr;
  if (end == nullptr || static_cast<size_t>(end - begin) - strlen(wanted) >= bytes) return false;
  begin += strlen(wanted);
  memcpy(to, begin, static_cast<size_t>(end - begin));
  to[end - begin] = 0;
  return true;
}

bool write_text(OwnFile* file, const DirectoryLock& claim) {
  char text[1024], id[kNonceText];
  launch_text(claim.id, id);
  const int length =
      snprintf(text, sizeof(text),
               "{\n  \"schema_version\": 1,\n  \"launch\": \"%s\",\n  \"claim\": \"%s\",\n  \"name\": \"%s\",\n"
               "  \"origin\": \"%s\",\n  \"program\": \"%s\",\n  \"host\": \"%.63s\",\n  \"world\": %d,\n"
               "  \"world_size\": %d,\n  \"time\": %lld.%03d\n}\n",
               claim.launch, id, claim.name, claim.origin, claim.program, runtime.host, runtime.world, runtime.size,
               static_cast<long long>(claim.time / 1000), static_cast<int>(claim.time % 1000));
  if (length <= 0 || static_cast<size_t>(length) >= sizeof(text)) {
    errno = ENAMETOOLONG;
    return false;
  }
  const WriteShield shield;
  const ssize_t written = write(file->fd, text, static_cast<size_t>(length));
  if (written >= 0 && written != length) errno = ENOSPC;
  return written == length;
}

}  // namespace

LockState directory_lock_read(int directory, DirectoryLock* claim) {
  const int fd = own_file_read_at(directory, kFile);
  if (fd < 0) return errno == ENOENT ? LockState::kNone : LockState::kOther;
  char text[2048], id[kNonceText];
  const ssize_t got = read(fd, text, sizeof(text) - 1);
  close(fd);
  text[got > 0 ? got : 0] = 0;
  *claim = {};
  const char* time = strstr(text, "\"time\": ");
  if (time == nullptr || !take(text, "claim", id, sizeof(id)) ||
      !take(text, "name", claim->name, sizeof(claim->name)) ||
      !take(text, "origin", claim->origin, sizeof(claim->origin)) ||
      !take(text, "program", claim->program, sizeof(claim->program)) ||
      !take(text, "launch", claim->launch, sizeof(claim->launch)))
    return LockState::kOther;
  claim->id = strtoull(id, nullptr, 16);
  char* point = nullptr;
  claim->time = strtoll(time + strlen("\"time\": "), &point, 10);
  if (claim->time < 0 || claim->time > 4000000000) return LockState::kOther;
  claim->time = claim->time * 1000 + (*point == '.' ? strtol(point + 1, nullptr, 10) % 1000 : 0);
  return LockState::kThere;
}

int directory_lock_make(int directory, const DirectoryLock& claim) {
  OwnFile file;
  if (!own_file_begin_at(&file, directory, kFile, 0666)) return errno;
  if (!write_text(&file, claim)) {
    own_file_drop(&file);
    return errno;
  }
  return own_file_commit_new(&file) ? 0 : errno;
}

bool directory_lock_replace(int directory, const DirectoryLock& claim) {
  OwnFile file;
  if (!own_file_begin_at(&file, directory, kFile, 0666)) return false;
  if (write_text(&file, claim)) return own_file_commit(&file);
  own_file_drop(&file);
  return false;
}

void directory_lock_remove(int directory) { unlinkat(directory, kFile, 0); }

void directory_lock_text(char* to, unsigned long bytes, const char* from) {
  unsigned long i = 0;
  for (; from[i] != 0 && i + 1 < bytes; ++i) {
    const char c = from[i];
    const bool usual =
        (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || strchr("._-+@:", c) != nullptr;
    to[i] = usual ? c : '_';
  }
  to[i] = 0;
}

}  // namespace resil
