// SPDX-License-Identifier: Apache-2.0
//
// See own_files.h. May touch what it is asked to, and temporary files beside that.

#include "shim/report/own_files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

namespace resil {

namespace {

constexpr long kFuse = 0x65735546;
constexpr int kMostParents = 128;

struct Expected {
  char path[1100];
  dev_t device;
  ino_t inode;
  bool strict;
};
Expected expected;
uid_t squashed = static_cast<uid_t>(-1);  // what a server makes of this user

/// What nobody can foretell. Without random numbers a name that another process would have taken is only tried again.
uint64_t unpredictable() {
  static uint64_t calls;
  uint64_t drawn = 0;
  if (syscall(SYS_getrandom, &drawn, sizeof(drawn), 1 /* GRND_NONBLOCK */) == static_cast<long>(sizeof(drawn)))
    return drawn;
  return (static_cast<uint64_t>(getpid()) << 32) + __atomic_add_fetch(&calls, 1, __ATOMIC_RELAXED);
}

/// NAME.XXXXXXXX.tmp
bool temporary_name(const char* name, char* to, size_t bytes) {
  const size_t length = strlen(name);
  if (length + 14 > bytes) {
    errno = ENAMETOOLONG;
    return false;
  }
  memcpy(to, name, length);
  uint64_t number = unpredictable();
  to[length] = '.';
  for (int i = 0; i < 8; ++i, number >>= 4) to[length + 1 + static_cast<size_t>(i)] = "0123456789abcdef"[number & 15];
  memcpy(to + length + 9, ".tmp", 5);
  return true;
}

/// A new file beside `name`; EINTR and names that are taken are tried again.
int create_aside(int at, const char* name, char* temporary, size_t bytes, mode_t mode) {
  for (int tries = 0; tries < 16; ++tries) {
    if (!temporary_name(name, temporary, bytes)) return -1;
    const int fd = openat(at, temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
    if (fd >= 0 || (errno != EEXIST && errno != EINTR)) return fd;
  }
  return -1;
}

void close_quietly(int fd) {
  const int error = errno;
  close(fd);
  errno = error;
}

/// Opens the directory of `path` and finds the name in it.
int directory_of(const char* path, const char** name) {
  char folder[1100];
  const char* slash = strrchr(path, '/');
  const size_t length = slash != nullptr ? static_cast<size_t>(slash - path) : 0;
  if (slash == nullptr || slash[1] == 0 || length >= sizeof(folder)) {
    errno = slash == nullptr || slash[1] == 0 ? EINVAL : ENAMETOOLONG;
    return -1;
  }
  memcpy(folder, path, length);
  folder[length] = 0;
  *name = slash + 1;
  return own_directory_to_write(length != 0 ? folder : "/");
}

/// Is what was opened a file of this user? Else it is closed.
int checked(int at, int fd, bool to_write) {
  struct stat status;
  if (fd < 0) return -1;
  if (fstat(fd, &status) == 0 && S_ISREG(status.st_mode) && (!to_write || status.st_nlink == 1) &&
      own_uid(at, status.st_uid))
    return fd;
  close(fd);
  errno = EPERM;
  return -1;
}

}  // namespace

bool own_directory_make(const char* path, bool* made) {
  char text[1100];
  if (made != nullptr) *made = false;
  if (strlen(path) >= sizeof(text)) {
    errno = ENAMETOOLONG;
    return false;
  }
  strcpy(text, path);
  for (char* slash = strchr(text + 1, '/'); slash != nullptr; slash = strchr(slash + 1, '/')) {
    *slash = 0;
    // What is above may exist without being ours to look into.
    const bool ok = mkdir(text, 0777) == 0 || errno == EEXIST || errno == EISDIR || errno == EROFS || errno == EACCES;
    *slash = '/';
    if (!ok) return false;
  }
  if (mkdir(text, 0777) == 0) {
    if (made != nullptr) *made = true;
    return true;
  }
  return errno == EEXIST || errno == EISDIR;
}

bool own_uid(int at, uid_t uid) {
  if (uid == geteuid()) return true;
  if (squashed != static_cast<uid_t>(-1)) return uid == squashed;
  char probe[40];
  struct stat status;
  const int fd = create_aside(at, ".owner", probe, sizeof(probe), 0600);
  if (fd < 0) return false;
  if (fstat(fd, &status) == 0 && status.st_uid != geteuid()) squashed = status.st_uid;
  close(fd);
  unlinkat(at, probe, 0);
  return uid == squashed;
}

DirectoryTrust own_directory_trust(int at, const struct stat& status) {
  if (!own_uid(at, status.st_uid)) return DirectoryTrust::kForeign;
  return (status.st_mode & S_IWOTH) != 0 ? DirectoryTrust::kShared : DirectoryTrust::kOwn;
}

bool own_directory_path_safe(int at) {
  struct stat status, above;
  int here = fcntl(at, F_DUPFD_CLOEXEC, 0);
  bool safe = here >= 0 && fstat(here, &status) == 0;
  for (int i = 0; safe && i < kMostParents; ++i) {
    safe = (status.st_uid == 0 || status.st_uid == geteuid() || status.st_uid == squashed) &&
           ((status.st_mode & S_IWOTH) == 0 || (status.st_mode & S_ISVTX) != 0);
    const int next = safe ? openat(here, "..", O_PATH | O_DIRECTORY | O_CLOEXEC) : -1;
    if (next < 0 || fstat(next, &above) != 0) {
      safe = false;
      if (next >= 0) close(next);
      break;
    }
    close(here);
    here = next;
    if (above.st_dev == status.st_dev && above.st_ino == status.st_ino) break;  // the root
    status = above;
  }
  if (here >= 0) close(here);
  return safe;
}

int own_directory_open(const char* path, bool follow) {
  int fd;
  do fd = open(path, O_RDONLY | O_DIRECTORY | O_NONBLOCK | O_CLOEXEC | (follow ? 0 : O_NOFOLLOW));
  while (fd < 0 && errno == EINTR);
  if (fd < 0 && errno == EACCES)  // may be written to without being listed
    fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC | (follow ? 0 : O_NOFOLLOW));
  return fd;
}

int own_directory_to_write(const char* path) {
  struct stat status;
  const int at = own_directory_open(path, true);
  if (at < 0 || !expected.strict || strcmp(path, expected.path) != 0) return at;
  if (fstat(at, &status) == 0 && status.st_dev == expected.device && status.st_ino == expected.inode) return at;
  close(at);
  errno = ESTALE;
  return -1;
}

int own_directory_open_at(int at, const char* name) {
  int fd;
  do fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW);
  while (fd < 0 && errno == EINTR);
  return fd;
}

void own_directory_expect(const char* path, int at, bool strict) {
  struct stat status;
  struct statfs system;
  expected.strict = false;
  if (path[0] == 0 || strlen(path) >= sizeof(expected.path) || fstat(at, &status) != 0) return;
  strcpy(expected.path, path);
  expected.device = status.st_dev;
  expected.inode = status.st_ino;
  // File systems in user space may number a directory anew whenever it is looked up.
  expected.strict = strict && fstatfs(at, &system) == 0 && system.f_type != kFuse;
}

namespace {

/// `file->at` is open already, and closed on failure.
bool begin(OwnFile* file, const char* name, mode_t mode) {
  struct stat status;
  file->fd = -1;
  if (file->at < 0) return false;
  if (strlen(name) < sizeof(file->name)) {
    strcpy(file->name, name);
    file->fd = create_aside(file->at, name, file->temporary, sizeof(file->temporary), mode);
  } else {
    errno = ENAMETOOLONG;
  }
  if (file->fd >= 0) {
    file->device = fstat(file->fd, &status) == 0 ? status.st_dev : 0;
    file->inode = file->device != 0 ? status.st_ino : 0;
    return true;
  }
  close_quietly(file->at);
  file->at = -1;
  return false;
}

/// Puts the closed file in place under a name that nobody has.
int place_new(const OwnFile& file) {
  if (linkat(file.at, file.temporary, file.at, file.name, 0) == 0) {
    unlinkat(file.at, file.temporary, 0);
    return 0;
  }
  if (errno == EEXIST) return EEXIST;
  // No hard links on this file system.
  if (syscall(SYS_renameat2, file.at, file.temporary, file.at, file.name, 1 /* RENAME_NOREPLACE */) == 0) return 0;
  if (errno == EEXIST) return EEXIST;
  // Nor that: the name is taken first, and whoever looks in between finds a file without content.
  const int taken = own_file_create_at(file.at, file.name, 0600);
  if (taken < 0) return errno;
  close(taken);
  return renameat(file.at, file.temporary, file.at, file.name) == 0 ? 0 : errno;
}

bool commit(OwnFile* file, bool replace) {
  if (file->fd < 0) return false;
  int error = close(file->fd) != 0 && errno != EINTR ? errno : 0;
  file->fd = -1;
  if (error == 0 && !replace) error = place_new(*file);
  else if (error == 0 && renameat(file->at, file->temporary, file->at, file->name) != 0) error = errno;
  if (error != 0) unlinkat(file->at, file->temporary, 0);
  close(file->at);
  file->at = -1;
  errno = error;
  return error == 0;
}

}  // namespace

bool own_file_begin(OwnFile* file, const char* path, mode_t mode) {
  const char* name = "";
  file->at = directory_of(path, &name);
  return begin(file, name, mode);
}

bool own_file_begin_at(OwnFile* file, int at, const char* name, mode_t mode) {
  file->at = fcntl(at, F_DUPFD_CLOEXEC, 0);
  return begin(file, name, mode);
}

bool own_file_commit(OwnFile* file) { return commit(file, true); }
bool own_file_commit_new(OwnFile* file) { return commit(file, false); }

void own_file_drop(OwnFile* file) {
  const int error = errno;
  if (file->fd >= 0) {
    close(file->fd);
    unlinkat(file->at, file->temporary, 0);
    close(file->at);
  }
  file->fd = file->at = -1;
  errno = error;
}

int own_file_create_at(int at, const char* name, mode_t mode) {
  int fd;
  do fd = openat(at, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
  while (fd < 0 && errno == EINTR);
  return fd;
}

int own_file_append(const char* path, mode_t mode) {
  constexpr int kFlags = O_WRONLY | O_APPEND | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
  const char* name;
  const int at = directory_of(path, &name);
  if (at < 0) return -1;
  int fd = -1;
  for (int tries = 0; tries < 16 && fd < 0; ++tries) {
    fd = openat(at, name, kFlags | O_CREAT | O_EXCL, mode);
    if (fd < 0 && errno == EEXIST) fd = checked(at, openat(at, name, kFlags), true);
    if (fd < 0 && errno != ENOENT && errno != EINTR)  // removed between the two: once more
      break;
  }
  close_quietly(at);
  return fd;
}

int own_file_read_at(int at, const char* name) {
  int fd;
  do fd = openat(at, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
  while (fd < 0 && errno == EINTR);
  return checked(at, fd, false);
}

int own_file_read(const char* path) {
  const char* name;
  const int at = directory_of(path, &name);
  if (at < 0) return -1;
  const int fd = own_file_read_at(at, name);
  close_quietly(at);
  return fd;
}

bool own_file_exists(const char* path) {
  const char* name;
  struct stat status;
  const int at = directory_of(path, &name);
  if (at < 0) return false;
  const bool there = fstatat(at, name, &status, AT_SYMLINK_NOFOLLOW) == 0;
  close(at);
  return there;
}

bool own_file_remove(const char* path) {
  const char* name;
  const int at = directory_of(path, &name);
  if (at < 0) return false;
  const bool done = unlinkat(at, name, 0) == 0;
  close_quietly(at);
  return done;
}

}  // namespace resil
