// SPDX-License-Identifier: Apache-2.0
//
// launch.json: whose reports a directory holds. Made by the first rank that comes there, by an operation of which only
// one can succeed, so that a directory never gets the reports of two launches; completed by the world's lowest rank
// once the launch key is agreed. Files of other users, links and whatever else is no claim are never believed.
#pragma once

#include <cstdint>

namespace resil {

struct DirectoryLock {
  uint64_t id;  ///< nonce of the rank that made it
  int64_t time;  ///< milliseconds since 1970, by that rank's clock
  char name[200];  ///< what all ranks of a launch compute alike before MPI_Init; may come again in a later launch
  char origin[160];  ///< where `name` is made of a process id: host, pid namespace and start of that process
  char program[40];
  char launch[17];  ///< launch key; "" until it is agreed
};

enum class LockState { kNone, kThere, kOther };

/// kOther: there is something of that name that is no claim of this user, or none that can be read.
LockState directory_lock_read(int directory, DirectoryLock* claim);
/// 0; EEXIST when there is anything of that name; else errno. Among several callers one at most gets 0.
int directory_lock_make(int directory, const DirectoryLock& claim);
/// Replaces it. False: errno.
bool directory_lock_replace(int directory, const DirectoryLock& claim);
void directory_lock_remove(int directory);
/// Copies a text, without what JSON would escape or a shell might mind.
void directory_lock_text(char* to, unsigned long bytes, const char* from);

}  // namespace resil
