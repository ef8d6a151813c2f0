// SPDX-License-Identifier: Apache-2.0
//
// The one place that opens files in directories that others may be able to write: report directories and recordings.
// Nothing is ever opened through a link, nothing that exists is truncated, nothing that is not a regular file of this
// user is read or appended to, and no open waits (a FIFO, a device). A directory is opened first and checked, and files
// are opened relative to it, so that a directory exchanged meanwhile changes nothing.
//
// All but own_directory_make and own_directory_path_safe are async-signal-safe. Errors are in errno.
#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <cstddef>

namespace resil {

/// Makes the directory and those above it, as far as the umask allows. True when it is there; `made`, when not null,
/// tells whether this call made the last one. May exist and still not be ours to write.
bool own_directory_make(const char* path, bool* made = nullptr);

/// Whether `uid` is what this user's files have on that file system: the effective user id, or what a server makes of
/// it (root squashed to nobody), which is found out by a file that is made and removed in the directory `at`.
bool own_uid(int at, uid_t uid);

/// What a directory is to this user. Groups are the user's own affair, as is a umask: only what everybody may write is
/// shared. With the sticky bit others cannot exchange what is in it, without it they can.
enum class DirectoryTrust { kOwn, kShared, kForeign };
DirectoryTrust own_directory_trust(int at, const struct stat& status);

/// Whether nobody else can exchange this directory for another one: it and all above it belong to this user or to root,
/// and those that everybody may write have the sticky bit.
bool own_directory_path_safe(int at);

/// Opens a directory. `follow`: its last part may be a link (a path that the user gave). -1 with errno.
int own_directory_open(const char* path, bool follow);
int own_directory_open_at(int at, const char* name);
/// The same for files that are made in it; ESTALE when it is not the one that own_directory_expect named.
int own_directory_to_write(const char* path);

/// From now on own_file_ functions that are given a path in this directory use it only while it is the very one that is
/// open as `at` (checked when `strict`). At most one; "" forgets it.
void own_directory_expect(const char* path, int at, bool strict);

/// A file that is written aside and then put in place.
struct OwnFile {
  int fd = -1;  ///< to write to
  int at = -1;
  dev_t device;  ///< which file it is
  ino_t inode;
  char name[272];  ///< in its directory
  char temporary[300];
};

/// `path` is absolute. The mode is cut by the umask. False: nothing was made.
bool own_file_begin(OwnFile* file, const char* path, mode_t mode);
bool own_file_begin_at(OwnFile* file, int at, const char* name, mode_t mode);
/// Closes and renames. False: as if it had never been begun.
bool own_file_commit(OwnFile* file);
/// The same, unless there is anything of that name: EEXIST. Of several processes one at most succeeds.
bool own_file_commit_new(OwnFile* file);
void own_file_drop(OwnFile* file);

/// A new file; EEXIST when there is anything of that name.
int own_file_create_at(int at, const char* name, mode_t mode);
/// A file of this user with one name, at its end; made when it does not exist.
int own_file_append(const char* path, mode_t mode);
/// A regular file of this user, to read. Anything else is EPERM.
int own_file_read(const char* path);
int own_file_read_at(int at, const char* name);
/// Whether there is anything of that name, a link without a target included.
bool own_file_exists(const char* path);
/// Removes what is at `path`, never through a link of its directory's name.
bool own_file_remove(const char* path);

}  // namespace resil
