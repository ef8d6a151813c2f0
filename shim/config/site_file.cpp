// SPDX-License-Identifier: Apache-2.0
//
// See site_file.h.
#include "shim/config/site_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace resil {
namespace {

constexpr char kVariable[] = "RESIL_CONF=";

char buffer[kSiteFileBytes];

/// Bytes read; -1 and `problem`: it is not to be used.
ssize_t read_checked(int fd, const char** problem) {
  struct stat status;
  if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) *problem = "it is no regular file";
  else if (status.st_uid != 0 && status.st_uid != geteuid()) *problem = "it belongs to another user";
  else if ((status.st_mode & (S_IWGRP | S_IWOTH)) != 0) *problem = "others may write to it";
  else if (static_cast<size_t>(status.st_size) > kSiteFileBytes) *problem = "it has more than 8192 bytes";
  if (*problem != nullptr) return -1;
  size_t done = 0;
  while (done < sizeof buffer) {
    const ssize_t got = read(fd, buffer + done, sizeof buffer - done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) *problem = "it cannot be read";
    if (got <= 0) break;
    done += static_cast<size_t>(got);
  }
  return *problem != nullptr ? -1 : static_cast<ssize_t>(done);
}

}  // namespace

SiteFile site_file_read(char* const* environment) {
  SiteFile file;
  file.path = kSiteFile;
  bool named = false;
  for (; environment != nullptr && *environment != nullptr; ++environment)
    if (strncmp(*environment, kVariable, sizeof kVariable - 1) == 0 && (*environment)[sizeof kVariable - 1] != 0) {
      file.path = *environment + sizeof kVariable - 1;
      named = true;
      break;
    }
  if (named && strcmp(file.path, "off") == 0) return {};
  int fd;
  do fd = open(file.path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
  while (fd < 0 && errno == EINTR);
  if (fd < 0) {
    if (named || errno != ENOENT) file.problem = errno == ENOENT ? "there is no such file" : "it cannot be opened";
    return file;
  }
  const ssize_t bytes = read_checked(fd, &file.problem);
  close(fd);
  if (bytes > 0) file.text = {buffer, static_cast<size_t>(bytes)};
  return file;
}

SiteLine site_line(Slice line) {
  line = trimmed(line);
  if (line.size == 0 || *line.data == '#') return {SiteLine::kNothing, {nullptr, 0}, {nullptr, 0}};
  constexpr char kLimit[] = "limit ";
  const bool limit = line.size > sizeof kLimit - 1 && memcmp(line.data, kLimit, sizeof kLimit - 1) == 0;
  if (limit) line = trimmed({line.data + sizeof kLimit - 1, line.size - (sizeof kLimit - 1)});
  const void* equals = memchr(line.data, '=', line.size);
  if (equals == nullptr) return {SiteLine::kMalformed, line, {nullptr, 0}};
  const size_t length = static_cast<size_t>(static_cast<const char*>(equals) - line.data);
  const Slice name = trimmed({line.data, length}), value = trimmed({line.data + length + 1, line.size - length - 1});
  if (name.size == 0 || value.size == 0) return {SiteLine::kMalformed, line, {nullptr, 0}};
  return {limit ? SiteLine::kLimit : SiteLine::kDefault, name, value};
}

}  // namespace resil
