// SPDX-License-Identifier: Apache-2.0
//
// Files in /dev/shm, where every user of the node may put anything under any name, and where several pid namespaces
// (containers) may meet: how such a file is made, opened without being harmed by what it is, and how one sees whether
// the process that made it lives.
//
// Any thread, no signal handler. Never waits for another process.
#pragma once

#include <sys/stat.h>

#include <cstddef>
#include <cstdint>

namespace resil {

/// Makes a file and maps it, zeroed; its first `reserved` bytes have their room, the rest must be reserved before it is
/// stored into. Null: no room, no permission, beyond the limit of file sizes, or the name is taken; nothing is ever
/// removed to take its place.
void* node_file_create(const char* path, size_t bytes, size_t reserved);
/// Ranges of whole pages that nobody will touch: `count` of `bytes` each or a page less, one every `stride` from
/// `first` on. Memory is not reserved for them.
struct UnusedPages {
  size_t first, bytes, stride;
  unsigned count;
  /// The first byte of range `index` and the one behind its last.
  void range(unsigned index, size_t* begin, size_t* end) const;
};
void* node_file_create(const char* path, size_t bytes, const UnusedPages& unused);
inline void* node_file_create(const char* path, size_t bytes) { return node_file_create(path, bytes, bytes); }

/// Opens a file for reading (`write`: and writing), if it is a regular file of this user with one name and of a size
/// that makes sense (at least `least` bytes). -1: it is something else, a link, or gone; what it is has cost nothing
/// then. A pipe, a device or a file on which somebody holds a lease would make a plain open wait.
int node_file_open(int folder, const char* name, bool write, size_t least, struct stat* status);

/// Puts a mark on a file of this process that lasts exactly as long as the process (or until it becomes another
/// program): a lock of an open file that is held by a mapping alone. It needs no descriptor, which a program might
/// close, is not inherited by forks, and is seen from every pid namespace. False: this system has no such marks.
bool node_file_hold(const char* path);
/// Whether somebody has that mark on the open file.
bool node_file_is_held(int fd);

/// One walk through the names in /dev/shm, as the kernel gives them: readdir would allocate, and another thread may
/// fork. `room`: 8-byte aligned, some KiB, the caller's own while the walk lasts.
class NodeFolder {
 public:
  NodeFolder(char* room, size_t bytes);
  NodeFolder(int folder, char* room, size_t bytes);  ///< another directory, which it closes
  ~NodeFolder();
  NodeFolder(const NodeFolder&) = delete;
  const char* next();  ///< null: no more. Valid until the next call
  int descriptor() const { return folder_; }  ///< -1: there is none

 private:
  int folder_;
  char* const room_;
  const size_t size_;
  long at_ = 0, bytes_ = 0;
};

/// Who made a file: what every such file says in its header.
struct NodeFileOwner {
  int32_t pid;
  bool held;  ///< node_file_hold has succeeded, so that its mark decides
  uint64_t pid_start, pid_namespace;
};
enum class Life : uint8_t { kGone, kLives, kUnknown };
/// kUnknown: made without a mark, in another pid namespace.
Life node_file_life(int fd, const NodeFileOwner& owner);

/// Identity of this process's pid namespace, 0 unknown.
uint64_t pid_namespace();
/// Identity of what paths mean to this process: its mount namespace and root directory. 0 unknown.
uint64_t file_view();
/// False: /proc is another pid namespace's (or is not mounted), so that pids mean other processes there.
bool proc_is_own();
/// Identity of this boot of this machine, equal in all its containers: hosts may share a host name. "" unknown.
constexpr size_t kBootText = 64;
void boot_identity(char* text);

}  // namespace resil
