// SPDX-License-Identifier: Apache-2.0
//
// See task_list.h.

#include "shim/base/task_list.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstring>

namespace resil {

namespace {

struct Entry {  // struct linux_dirent64
  uint64_t inode;
  int64_t offset;
  uint16_t length;
  uint8_t type;
  char name[];
};

/// "/proc/PID/task"; snprintf is not async-signal-safe.
void path_of(int pid, char* path) {
  char digits[12];
  int count = 0;
  for (auto rest = static_cast<unsigned>(pid); rest != 0; rest /= 10)
    digits[count++] = static_cast<char>('0' + rest % 10);
  strcpy(path, pid == 0 ? "/proc/self" : "/proc/");
  path += strlen(path);
  while (count > 0) *path++ = digits[--count];
  strcpy(path, "/task");
}

}  // namespace

int list_threads(int pid, int32_t* tids, int capacity, char* scratch, size_t scratch_bytes) {
  char path[32];
  path_of(pid, path);
  const long directory = syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
  if (directory < 0) return -1;
  int count = 0;
  for (;;) {
    const long bytes = syscall(SYS_getdents64, directory, scratch, scratch_bytes);
    if (bytes <= 0) break;
    for (long at = 0; at < bytes;) {
      const auto* entry = reinterpret_cast<const Entry*>(scratch + at);
      if (entry->length == 0) break;
      at += entry->length;
      int32_t tid = 0;
      for (const char* p = entry->name; *p >= '0' && *p <= '9'; ++p) tid = tid * 10 + (*p - '0');
      if (tid == 0) continue;  // "." and ".."
      if (count < capacity) tids[count] = tid;
      ++count;
    }
  }
  syscall(SYS_close, directory);
  return count > 0 ? count : -1;
}

}  // namespace resil
