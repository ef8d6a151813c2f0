// SPDX-License-Identifier: Apache-2.0
//
// See paths.h.

#include "detectors/replicas/paths.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <initializer_list>

#include "detectors/replicas/words.h"

namespace resil::replicas {

namespace {

constexpr char kGone[] = "%gone", kWas[] = "%was";
constexpr int64_t kMostKept = 64 << 20;  ///< larger files are not kept when the leader changes them

char own_tree[1200], leaders_tree[1200];  // no slash at the end
size_t own_length;
bool leads;
timespec began;  // by the file system's clock
std::atomic<uint64_t> not_kept;
std::atomic<uint32_t> serial;

struct Path {
  char text[kPathRoom];
};

/// Devices, what the kernel shows, and what is resil's own.
bool is_elsewhere(const char* path) {
  for (const char* begin : {"/dev/", "/proc/", "/sys/"})
    if (strncmp(path, begin, strlen(begin)) == 0) return true;
  return false;
}

/// The absolute path without "//", "/./" and "/../"; links are not followed. False: none, or too long.
bool absolute(int at, const char* path, Path* out) {
  char* text = out->text;
  size_t length = 0;
  if (path == nullptr || path[0] == 0) return false;
  if (path[0] != '/') {
    if (at == AT_FDCWD) {
      if (getcwd(text, 4096) == nullptr) return false;
    } else {
      char link[64];
      snprintf(link, sizeof(link), "/proc/self/fd/%d", at);
      const ssize_t read = readlink(link, text, 4095);
      if (read <= 0 || text[0] != '/') return false;
      text[read] = 0;
    }
    length = strlen(text);
    // In a directory that is there in this part alone.
    if (own_length != 0 && strncmp(text, own_tree, own_length) == 0 &&
        (text[own_length] == '/' || text[own_length] == 0)) {
      length -= own_length;
      memmove(text, text + own_length, length + 1);
    }
    if (length == 1) length = 0;  // the root
  }
  for (const char* part = path; *part != 0;) {
    while (*part == '/') ++part;
    const size_t bytes = strcspn(part, "/");
    if (bytes == 0 || (bytes == 1 && part[0] == '.')) {
    } else if (bytes == 2 && part[0] == '.' && part[1] == '.') {
      while (length > 0 && text[--length] != '/') {}
    } else {
      if (length + bytes + 2 > 4096) return false;
      text[length++] = '/';
      memcpy(text + length, part, bytes);
      length += bytes;
    }
    part += bytes;
  }
  if (length == 0) text[length++] = '/';
  text[length] = 0;
  return true;
}

const char* in_tree(const char* tree, const char* absolute_path, const char* suffix, char* room) {
  snprintf(room, kPathRoom, "%s%s%s", tree, absolute_path, suffix);
  return room;
}

bool exists(const char* path) { return faccessat(AT_FDCWD, path, F_OK, AT_SYMLINK_NOFOLLOW) == 0; }

bool status_of(const char* path, struct stat* status) { return fstatat(AT_FDCWD, path, status, 0) == 0; }

bool is_directory(const char* path) {
  struct stat status;
  return status_of(path, &status) && S_ISDIR(status.st_mode);
}

bool exists_in(const char* tree, const char* absolute_path, const char* suffix) {
  Path path;
  return exists(in_tree(tree, absolute_path, suffix, path.text));
}

/// Makes the directories that `path` lies in.
void make_parents(char* path, size_t from) {
  for (char* slash = strchr(path + from + 1, '/'); slash != nullptr; slash = strchr(slash + 1, '/')) {
    *slash = 0;
    mkdir(path, 0700);
    *slash = '/';
  }
}

void mark(const char* tree, const char* absolute_path, const char* as) {
  Path path;
  in_tree(tree, absolute_path, as, path.text);
  make_parents(path.text, strlen(tree));
  const int file = openat(AT_FDCWD, path.text, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  if (file >= 0) close(file);
}

/// Copies a regular file to `to`, which all see at once and whole; who comes second leaves it as it is.
bool copy_file(const char* from, const char* to, bool contents) {
  struct stat status;
  const int source = openat(AT_FDCWD, from, O_RDONLY | O_CLOEXEC, 0);
  if (source < 0) return false;
  Path aside;
  snprintf(aside.text, sizeof(aside.text), "%s%%%d.%u", to, getpid(), serial.fetch_add(1));
  bool copied = fstat(source, &status) == 0;
  const int target =
      copied ? openat(AT_FDCWD, aside.text, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, (status.st_mode & 0777) | 0600)
             : -1;
  copied = target >= 0;
  constexpr unsigned long kClone = 0x40049409;  // FICLONE
  if (copied && contents && syscall(SYS_ioctl, target, kClone, source) != 0) {
    char buffer[8192];
    for (;;) {
      const ssize_t bytes = read(source, buffer, sizeof(buffer));
      if (bytes < 0 && errno == EINTR) continue;
      if (bytes <= 0) {
        copied = bytes == 0;
        break;
      }
      if (write(target, buffer, static_cast<size_t>(bytes)) != bytes) {
        copied = false;
        break;
      }
    }
  }
  if (target >= 0) close(target);
  close(source);
  if (copied) copied = linkat(AT_FDCWD, aside.text, AT_FDCWD, to, 0) == 0 || errno == EEXIST;
  if (target >= 0) unlinkat(AT_FDCWD, aside.text, 0);
  return copied;
}

/// Copies of some ranks only: what other ranks change meanwhile a copy, which is behind, may see otherwise than its
/// leader has seen it.
void notice_others(const char* path) {
  struct stat status;
  if (!place.fed || fstatat(AT_FDCWD, path, &status, 0) != 0 || !S_ISREG(status.st_mode)) return;
  const auto& changed = status.st_ctim;
  if (changed.tv_sec > began.tv_sec || (changed.tv_sec == began.tv_sec && changed.tv_nsec >= began.tv_nsec))
    may_differ("a file that another rank has changed during the job");
}

/// Where a follower sees a path: in its own tree, in the leader's, at the place itself. `room` holds where; absent: it
/// holds a path where there is nothing.
enum class Seen : uint8_t { kOwn, kKept, kThere, kAbsent };

Seen look(const char* path, char* room) {
  // A directory that was there before the run is looked at where it is, whatever lies in it here.
  if (exists(in_tree(own_tree, path, "", room)) &&
      !(is_directory(room) && is_directory(path) && !exists_in(leaders_tree, path, kGone)))
    return Seen::kOwn;
  if (exists_in(own_tree, path, kGone)) return Seen::kAbsent;
  if (exists(in_tree(leaders_tree, path, "", room)) && (!is_directory(room) || exists_in(leaders_tree, path, kWas)))
    return Seen::kKept;
  if (exists_in(leaders_tree, path, kGone)) {
    in_tree(own_tree, path, "", room);
    return Seen::kAbsent;
  }
  snprintf(room, kPathRoom, "%s", path);
  if (exists(path)) {
    notice_others(path);
    return Seen::kThere;
  }
  in_tree(own_tree, path, "", room);
  return Seen::kAbsent;
}

/// May a file be made in that directory? Where not, the system's own answer is wanted.
bool may_make(const char* path) {
  Path parent, seen;
  snprintf(parent.text, sizeof(parent.text), "%s", path);
  char* slash = strrchr(parent.text, '/');
  if (slash == nullptr) return false;
  if (slash == parent.text) slash[1] = 0;
  else *slash = 0;
  if (is_directory(in_tree(own_tree, parent.text, "", seen.text))) return true;
  return is_directory(parent.text) && access(parent.text, W_OK) == 0;
}

/// Would a follower without one of its own see a file there?
bool shows_through(const char* path) { return exists(path) || exists_in(leaders_tree, path, ""); }

void no_longer_gone(const char* path) {
  Path gone;
  unlinkat(AT_FDCWD, in_tree(own_tree, path, kGone, gone.text), 0);
}

const char* for_follower(const char* path, const char* given, Use use, char* room) {
  Path source;
  const Seen seen = look(path, source.text);
  if (use == Use::kLook || (use == Use::kNew && seen != Seen::kAbsent)) {
    if (seen == Seen::kThere) return given;
    memcpy(room, source.text, strlen(source.text) + 1);
    return room;
  }
  if (seen == Seen::kThere) {
    struct stat status;
    if (!status_of(path, &status) || !S_ISREG(status.st_mode) || access(path, W_OK) != 0) return given;
  } else if (seen == Seen::kAbsent && !may_make(path)) {
    return given;
  }
  in_tree(own_tree, path, "", room);
  if (seen == Seen::kOwn) return room;
  make_parents(room, own_length);
  no_longer_gone(path);
  if (seen != Seen::kAbsent && use != Use::kNew) copy_file(source.text, room, use == Use::kChange);
  return room;
}

/// The leading part: what is there now, for followers that are behind.
void keep(const char* path, bool goes) {
  if (exists_in(leaders_tree, path, kGone)) return;
  Path kept;
  if (exists(in_tree(leaders_tree, path, "", kept.text)) && !is_directory(kept.text)) return;
  struct stat status;
  if (fstatat(AT_FDCWD, path, &status, AT_SYMLINK_NOFOLLOW) != 0) {
    if (errno == ENOENT && is_directory(leaders_tree)) mark(leaders_tree, path, kGone);
    return;
  }
  if (!S_ISREG(status.st_mode) && !(goes && S_ISDIR(status.st_mode))) return;
  make_parents(kept.text, strlen(leaders_tree));
  if (S_ISDIR(status.st_mode)) {
    mkdir(kept.text, 0700);
    mark(leaders_tree, path, kWas);
    return;
  }
  if (goes && linkat(AT_FDCWD, path, AT_FDCWD, kept.text, 0) == 0) return;
  if (status.st_size > kMostKept) not_kept.fetch_add(1);
  else copy_file(path, kept.text, true);
}

void remove_tree(int at, const char* name) {
  if (unlinkat(at, name, 0) == 0 || errno == ENOENT) return;
  const int folder = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, 0);
  if (folder < 0) return;
  if (DIR* list = fdopendir(folder)) {
    while (const dirent64* entry = readdir64(list))
      if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) remove_tree(dirfd(list), entry->d_name);
    closedir(list);
  }
  unlinkat(at, name, AT_REMOVEDIR);
}

}  // namespace

namespace {

bool ends_with(const char* name, const char* end) {
  const size_t length = strlen(name), bytes = strlen(end);
  return length > bytes && strcmp(name + length - bytes, end) == 0;
}

/// One file in the place of another, which keeps its permissions.
bool put_file(const char* from, const char* to) {
  struct stat there;
  char resolved[4096];
  const bool any = status_of(to, &there);
  if (any && !S_ISREG(there.st_mode)) return false;
  if (any && realpath(to, resolved) != nullptr) to = resolved;  // by links
  if (any) fchmodat(AT_FDCWD, from, there.st_mode & 07777, 0);
  if (renameat(AT_FDCWD, from, AT_FDCWD, to) == 0) return true;
  Path aside;  // another file system
  if (snprintf(aside.text, sizeof(aside.text), "%s%%resil", to) >= static_cast<int>(sizeof(aside.text))) return false;
  unlinkat(AT_FDCWD, aside.text, 0);
  if (!copy_file(from, aside.text, true)) return false;
  struct stat status;
  if (status_of(from, &status)) fchmodat(AT_FDCWD, aside.text, status.st_mode & 07777, 0);
  if (renameat(AT_FDCWD, aside.text, AT_FDCWD, to) == 0) return unlinkat(AT_FDCWD, from, 0) == 0;
  unlinkat(AT_FDCWD, aside.text, 0);
  return false;
}

bool put_link(const char* from, const char* to) {
  char target[4096];
  const ssize_t length = readlink(from, target, sizeof(target) - 1);
  if (length <= 0) return false;
  target[length] = 0;
  unlinkat(AT_FDCWD, to, 0);
  return symlinkat(target, AT_FDCWD, to) == 0 && unlinkat(AT_FDCWD, from, 0) == 0;
}

/// All below `from` below `to`. Both have `length` letters, and room for more.
bool put_tree(Path* from, Path* to) {
  const size_t from_length = strlen(from->text), to_length = strlen(to->text);
  DIR* list = opendir(from->text);
  if (list == nullptr) return false;
  bool all = true;
  while (const dirent64* entry = readdir64(list)) {
    const char* name = entry->d_name;
    const size_t bytes = strlen(name) + 2;
    if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0) continue;
    if (from_length + bytes > sizeof(from->text) || to_length + bytes > sizeof(to->text)) {
      all = false;
      continue;
    }
    snprintf(from->text + from_length, sizeof(from->text) - from_length, "/%s", name);
    snprintf(to->text + to_length, sizeof(to->text) - to_length, "/%s", name);
    struct stat status;
    if (fstatat(AT_FDCWD, from->text, &status, AT_SYMLINK_NOFOLLOW) != 0) {
      all = false;
    } else if (ends_with(name, kGone)) {
      to->text[strlen(to->text) - strlen(kGone)] = 0;
      unlinkat(AT_FDCWD, to->text, is_directory(to->text) ? AT_REMOVEDIR : 0);
      unlinkat(AT_FDCWD, from->text, 0);
    } else if (S_ISDIR(status.st_mode)) {
      if (!is_directory(to->text)) mkdir(to->text, status.st_mode & 07777);
      all = put_tree(from, to) && all;
    } else if (S_ISLNK(status.st_mode)) {
      all = put_link(from->text, to->text) && all;
    } else {
      all = S_ISREG(status.st_mode) && put_file(from->text, to->text) && all;
    }
    from->text[from_length] = 0;
    to->text[to_length] = 0;
  }
  closedir(list);
  return all;
}

}  // namespace

bool paths_put_in_place(const char* directory, int part) {
  Path from, to;
  snprintf(from.text, sizeof(from.text), "%s/part-%d", directory, part);
  to.text[0] = 0;
  return put_tree(&from, &to);
}

bool paths_begin(const char* directory, int part) {
  leads = part == 0;
  snprintf(leaders_tree, sizeof(leaders_tree), "%s/part-0", directory);
  snprintf(own_tree, sizeof(own_tree), "%s/part-%d", directory, part);
  own_length = strlen(own_tree);
  const bool made = mkdir(own_tree, 0700) == 0 || errno == EEXIST;
  if (struct stat status; made && status_of(own_tree, &status)) began = status.st_ctim;
  return made;
}

void paths_end(const char* directory, int part) {
  char tree[1200];
  snprintf(tree, sizeof(tree), "%s/part-%d", directory, part);
  if (own_length != 0) remove_tree(AT_FDCWD, tree);
}

const char* path_for(int at, const char* path, Use use, char* room) {
  Path whole;
  if (own_length == 0 || !absolute(at, path, &whole) || is_elsewhere(whole.text)) return path;
  if (!leads) return for_follower(whole.text, path, use, room);
  Path kept;
  if (place.fed && !exists_in(leaders_tree, whole.text, kGone) &&
      !exists(in_tree(leaders_tree, whole.text, "", kept.text)))
    notice_others(whole.text);
  if (use != Use::kLook) dropped_look_for_own(), keep(whole.text, false);
  return path;
}

bool path_outdated(int at, const char* path) {
  Path whole, kept;
  if (leads || own_length == 0 || !absolute(at, path, &whole) || is_elsewhere(whole.text)) return false;
  return exists_in(leaders_tree, whole.text, kGone) ||
         (exists(in_tree(leaders_tree, whole.text, "", kept.text)) && !is_directory(kept.text));
}

int remove_path(int at, const char* path, bool directory) {
  Path whole, room;
  if (!absolute(at, path, &whole) || is_elsewhere(whole.text)) return unlinkat(at, path, directory ? AT_REMOVEDIR : 0);
  const Seen seen = look(whole.text, room.text);
  if (seen == Seen::kAbsent) {
    errno = ENOENT;
    return -1;
  }
  if (seen == Seen::kOwn) {
    if (unlinkat(AT_FDCWD, room.text, directory ? AT_REMOVEDIR : 0) != 0) return -1;
  } else {
    if (is_directory(room.text) != directory) {
      errno = directory ? ENOTDIR : EISDIR;
      return -1;
    }
    if (!may_make(whole.text)) return unlinkat(at, path, directory ? AT_REMOVEDIR : 0);  // refused by the system
  }
  if (shows_through(whole.text)) mark(own_tree, whole.text, kGone);
  return 0;
}

int rename_path(int from_at, const char* from, int to_at, const char* to) {
  Path from_whole, to_whole, from_room, to_room;
  if (!absolute(from_at, from, &from_whole) || !absolute(to_at, to, &to_whole) || is_elsewhere(from_whole.text) ||
      is_elsewhere(to_whole.text))
    return renameat(from_at, from, to_at, to);
  const Seen seen = look(from_whole.text, from_room.text);
  if (seen == Seen::kAbsent || !may_make(to_whole.text)) {
    errno = ENOENT;
    return -1;
  }
  if (seen != Seen::kOwn) {
    const bool folder = is_directory(from_room.text);
    Path source = from_room;
    in_tree(own_tree, from_whole.text, "", from_room.text);
    make_parents(from_room.text, own_length);
    if (folder) mkdir(from_room.text, 0700);
    else copy_file(source.text, from_room.text, true);
  }
  in_tree(own_tree, to_whole.text, "", to_room.text);
  make_parents(to_room.text, own_length);
  if (renameat(AT_FDCWD, from_room.text, AT_FDCWD, to_room.text) != 0) return -1;
  no_longer_gone(to_whole.text);
  if (shows_through(from_whole.text)) mark(own_tree, from_whole.text, kGone);
  return 0;
}

const char* own_path(int at, const char* path, char* room) {
  Path whole;
  if (!absolute(at, path, &whole) || is_elsewhere(whole.text)) return path;
  switch (look(whole.text, room)) {
    case Seen::kOwn:
    case Seen::kAbsent: return room;
    case Seen::kKept:
    case Seen::kThere: break;
  }
  return nullptr;
}

void will_be_gone(int at, const char* path) {
  Path whole;
  if (!leads && absolute(at, path, &whole) && !is_elsewhere(whole.text) && shows_through(whole.text))
    mark(own_tree, whole.text, kGone);
}

void keep_path(int at, const char* path) {
  Path whole;
  if (!leads || own_length == 0 || !absolute(at, path, &whole) || is_elsewhere(whole.text)) return;
  dropped_look_for_own();
  keep(whole.text, true);
}

uint64_t paths_not_kept() { return not_kept.load(); }

}  // namespace resil::replicas
