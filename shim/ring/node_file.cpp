// SPDX-License-Identifier: Apache-2.0
//
// See node_file.h. May touch /dev/shm and /proc.

#include "shim/ring/node_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "shim/base/hash.h"
#include "shim/base/process_state.h"
#include "shim/base/text_file.h"
#include "shim/ring/segment.h"

namespace resil {

namespace {

constexpr off_t kMostBytes = off_t{1} << 30;
constexpr size_t kPage = 4096;

bool is_own_file(const struct stat& status, size_t least) {
  return S_ISREG(status.st_mode) && status.st_uid == geteuid() && status.st_nlink == 1 &&
         status.st_size >= static_cast<off_t>(least) && status.st_size <= kMostBytes;
}

}  // namespace

namespace {

/// `reserve(fd)`: whether the memory is there.
template <class Reserve>
void* create(const char* path, size_t bytes, Reserve reserve) {
  if (!file_size_allowed(bytes)) return nullptr;
  int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (fd < 0) return nullptr;
  void* memory = MAP_FAILED;
  if (reserve(fd)) memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  if (memory == MAP_FAILED) {
    unlink(path);
    return nullptr;
  }
  return memory;
}

bool reserve(int fd, size_t begin, size_t end) {
  return begin == end || posix_fallocate(fd, static_cast<off_t>(begin), static_cast<off_t>(end - begin)) == 0;
}

}  // namespace

void* node_file_create(const char* path, size_t bytes, size_t reserved) {
  return create(path, bytes, [&](int fd) {
    return reserve(fd, 0, reserved) && (reserved == bytes || ftruncate(fd, static_cast<off_t>(bytes)) == 0);
  });
}

void UnusedPages::range(unsigned index, size_t* begin, size_t* end) const {
  *begin = (first + index * stride + kPage - 1) / kPage * kPage;
  *end = (first + index * stride + bytes) / kPage * kPage;
}

void* node_file_create(const char* path, size_t bytes, const UnusedPages& unused) {
  return create(path, bytes, [&](int fd) {
    size_t done = 0;
    for (unsigned i = 0; i < unused.count; ++i) {
      size_t begin, end;
      unused.range(i, &begin, &end);
      if (!reserve(fd, done, begin)) return false;
      done = end;
    }
    return reserve(fd, done, bytes) && (done != bytes || ftruncate(fd, static_cast<off_t>(bytes)) == 0);
  });
}

int node_file_open(int folder, const char* name, bool write, size_t least, struct stat* status) {
  struct stat before;
  if (fstatat(folder, name, &before, AT_SYMLINK_NOFOLLOW) != 0 || !is_own_file(before, least)) return -1;
  // Another file may have taken the name meanwhile: so the open must not wait either, and is looked at again.
  const int fd = openat(folder, name, (write ? O_RDWR : O_RDONLY) | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
  if (fd < 0) return -1;
  if (fstat(fd, status) == 0 && is_own_file(*status, least)) return fd;
  close(fd);
  return -1;
}

bool node_file_hold(const char* path) {
  const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (fd < 0) return false;
  // The lock belongs to the open file, and the mapping keeps that open when the descriptor is closed. No other mapping
  // may share it: forks inherit those.
  void* mapped = MAP_FAILED;
  if (flock(fd, LOCK_EX | LOCK_NB) == 0) mapped = mmap(nullptr, kPage, PROT_NONE, MAP_SHARED, fd, 0);
  close(fd);
  if (mapped == MAP_FAILED) return false;
  struct stat status;
  const int look =
      madvise(mapped, kPage, MADV_DONTFORK) == 0 ? node_file_open(AT_FDCWD, path, false, kPage, &status) : -1;
  const bool held = look >= 0 && node_file_is_held(look);
  if (look >= 0) close(look);
  if (!held) munmap(mapped, kPage);
  return held;
}

bool node_file_is_held(int fd) {
  if (flock(fd, LOCK_SH | LOCK_NB) != 0) return errno == EWOULDBLOCK;
  flock(fd, LOCK_UN);
  return false;
}

Life node_file_life(int fd, const NodeFileOwner& owner) {
  if (node_file_is_held(fd)) return Life::kLives;  // whatever a damaged header says
  if (owner.held) return Life::kGone;
  if (owner.pid_namespace != pid_namespace() || !proc_is_own()) return Life::kUnknown;
  return owner.pid_start != 0 && process_start_time(owner.pid) == owner.pid_start ? Life::kLives : Life::kGone;
}

uint64_t pid_namespace() {
  struct stat status;
  return stat("/proc/self/ns/pid", &status) == 0 ? status.st_ino : 0;
}

uint64_t file_view() {
  struct stat space, root;
  if (stat("/proc/self/ns/mnt", &space) != 0 || stat("/", &root) != 0) return 0;
  return hash_combine(hash_combine(space.st_ino, root.st_dev), root.st_ino);
}

bool proc_is_own() {
  char text[32];
  const ssize_t length = readlink("/proc/self", text, sizeof(text) - 1);
  if (length <= 0) return false;
  text[length] = 0;
  return strtol(text, nullptr, 10) == getpid();
}

void boot_identity(char* text) {
  read_text_file("/proc/sys/kernel/random/boot_id", text, kBootText);
  text[strcspn(text, "\n")] = 0;
}

NodeFolder::NodeFolder(char* room, size_t bytes)
    : folder_(open("/dev/shm", O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NONBLOCK)), room_(room), size_(bytes) {}

NodeFolder::NodeFolder(int folder, char* room, size_t bytes) : folder_(folder), room_(room), size_(bytes) {}

NodeFolder::~NodeFolder() {
  if (folder_ >= 0) close(folder_);
}

const char* NodeFolder::next() {
  struct Entry {
    uint64_t inode;
    int64_t offset;
    unsigned short bytes;
    unsigned char type;
    char name[1];
  };
  if (at_ == bytes_) {
    bytes_ = folder_ >= 0 ? syscall(SYS_getdents64, folder_, room_, size_) : 0;
    at_ = 0;
    if (bytes_ <= 0) return bytes_ = 0, nullptr;
  }
  const auto* entry = reinterpret_cast<const Entry*>(room_ + at_);
  at_ += entry->bytes;
  return entry->name;
}

}  // namespace resil
