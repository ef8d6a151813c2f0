// SPDX-License-Identifier: Apache-2.0
//
// The files of a part (docs/REPLICAS.md, "Files"). A follower writes into a tree of its part's own, in which a file has
// the path that the program gave it; what it has written it reads there, all else where it is. The leading part writes
// where the program says; before it changes or removes a file, what was there is kept in a second tree, which followers
// look at before the place itself: the leader may be ahead.
//
// In both trees NAME%gone says that there is no NAME; in the leader's NAME%was that the directory was NAME. Any thread;
// system calls, neither allocation nor locks.
#pragma once

#include <cstddef>
#include <cstdint>

namespace resil::replicas {

constexpr size_t kPathRoom = 4096 + 1200;

enum class Use : uint8_t {
  kLook,  ///< or read
  kChange,  ///< what is in it stays, but for what is written
  kReplace,  ///< what is in it goes
  kNew,  ///< it must not exist
};

/// Makes the trees below `directory`. False: it cannot be written.
bool paths_begin(const char* directory, int part);
/// Removes a part's tree, when none of its ranks writes any more.
void paths_end(const char* directory, int part);

/// Moves all that a part has written to where the program wrote it. False: something could not be.
bool paths_put_in_place(const char* directory, int part);

/// Where a follower finds `path`, relative to `at` (a descriptor or AT_FDCWD): the path itself, or another one in
/// `room`, made ready for that use. The leading part: the path itself, once what is there has been kept.
const char* path_for(int at, const char* path, Use use, char* room);
/// A follower looked at the place itself: has the leader changed what is there meanwhile?
bool path_outdated(int at, const char* path);

/// A follower is about to remove its own copy by other means.
void will_be_gone(int at, const char* path);
// Of followers, in place of the system calls: 0, or -1 and errno.
int remove_path(int at, const char* path, bool directory);
int rename_path(int from_at, const char* from, int to_at, const char* to);
/// Whether it is there, for calls that change nothing but its attributes; `room` as path_for().
const char* own_path(int at, const char* path, char* room);
/// Of the leading part: keeps what is there, before it goes.
void keep_path(int at, const char* path);

/// Files that were too large to be kept.
uint64_t paths_not_kept();

}  // namespace resil::replicas
