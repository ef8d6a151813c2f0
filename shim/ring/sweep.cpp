// SPDX-License-Identifier: Apache-2.0
//
// Node-local memory that killed jobs left behind: nobody may ever ask for their reports, and a node must not fill up
// with rings. Reads and removes files of this user in /dev/shm only; once a node and job, in a thread of its own: a
// report directory may lie on a file system that is slow or gone. Bounded in files and in time; the next job takes the
// rest.

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#include <atomic>

#include "shim/base/clock.h"
#include "shim/base/futex.h"
#include "shim/base/helper_thread.h"
#include "shim/call/runtime.h"
#include "shim/presence/launch.h"
#include "shim/report/own_files.h"
#include "shim/ring/node_file.h"
#include "shim/ring/node_memory.h"
#include "shim/ring/segment.h"

namespace resil {

namespace {

constexpr int kMostFiles = 1024;
constexpr time_t kKept = 86400;  // seconds since it was made; of a ring that could not be collected
constexpr size_t kChunk = 64 << 10;  // bytes copied at a time

std::atomic<uint32_t> running;  // futex word
std::atomic<bool> stop;
char own_prefix[32], world_prefix[192];

/// kNowhere: there is no such directory any more. kFailed: no room, no permission, a limit of this process, or no time.
enum class Copied : uint8_t { kDone, kNowhere, kFailed };

/// Copies all but zero chunks.
Copied copy(int from, const char* directory, int rank, char* chunk, const std::atomic<bool>& ends) {
  static const char zero[kChunk] = {};
  char path[1200];
  struct stat status;
  snprintf(path, sizeof(path), "%s/rank-%05d.ring", directory, rank);
  if (own_file_exists(path)) return Copied::kDone;  // collected already
  OwnFile file;
  if (!own_file_begin(&file, path, 0666))
    return errno == ENOENT || errno == ENOTDIR ? Copied::kNowhere : Copied::kFailed;
  const int to = file.fd;
  bool ok = fstat(from, &status) == 0 && file_size_allowed(static_cast<uint64_t>(status.st_size)) &&
            ftruncate(to, status.st_size) == 0;
  for (off_t offset = 0; ok && offset < status.st_size; offset += static_cast<off_t>(kChunk)) {
    ssize_t bytes = pread(from, chunk, kChunk, offset);
    ok = bytes > 0 && !ends.load(std::memory_order_relaxed) &&
         (memcmp(chunk, zero, static_cast<size_t>(bytes)) == 0 ||
          pwrite(to, chunk, static_cast<size_t>(bytes), offset) == bytes);
  }
  if (!ok) own_file_drop(&file);
  return ok && own_file_commit(&file) ? Copied::kDone : Copied::kFailed;
}

bool half_full(int folder) {
  struct statfs system;
  return fstatfs(folder, &system) == 0 && system.f_bavail < system.f_blocks / 2;
}

/// Whether the directory is the one that this ring's rank reported to: seen from another container the same path may be
/// another directory, and a later launch may have taken it.
bool is_directory_of(const ring::Header& header) {
  char path[1200], text[4096], nonce[kNonceText], launch[sizeof(header.launch) + 16];
  snprintf(path, sizeof(path), "%s/rank-%05d.json", header.directory, header.rank);
  const int fd = own_file_read(path);
  if (fd < 0) return header.view == file_view() || header.nonce == 0;  // reports of many ranks share a file
  const ssize_t length = read(fd, text, sizeof(text) - 1);
  close(fd);
  text[length > 0 ? length : 0] = 0;
  launch_text(header.nonce, nonce);
  snprintf(launch, sizeof(launch), "\"%.*s\"", static_cast<int>(sizeof(header.launch)), header.launch);
  return header.nonce == 0 || strstr(text, nonce) != nullptr || strstr(text, launch) != nullptr;
}

bool collect(int folder, const char* name) {
  static char chunk[kChunk];
  struct stat status;
  const int fd = node_file_open(folder, name, false, sizeof(ring::Header), &status);
  if (fd < 0) return false;
  ring::Header header;
  bool gone =
      pread(fd, &header, sizeof(header), 0) == sizeof(header) && header.magic == ring::kMagic &&
      header.version == ring::kVersion &&
      node_file_life(fd, {header.pid, header.held != 0, uint64_t{header.pid_start_hi} << 32 | header.pid_start_lo,
                          header.pid_namespace}) == Life::kGone;
  const bool seen = header.view == file_view() || header.nonce == 0;
  if (gone) {
    header.directory[sizeof(header.directory) - 1] = 0;
    const bool known = header.directory[0] == '/' && header.rank >= 0 && is_directory_of(header);
    const Copied copied = known ? copy(fd, header.directory, header.rank, chunk, stop) : Copied::kNowhere;
    // From another container the directory may be there and not be seen from here. One that is full may have room
    // later, and this process may be limited (ulimit -f) where another is not. Whoever asks for the report then finds
    // the ring, for a day; where memory is short it goes.
    const bool wanted = copied == Copied::kFailed || (!known && !seen);
    const bool keep = wanted && status.st_mtime + kKept > time(nullptr) && !half_full(folder);
    gone = !keep && !stop.load(std::memory_order_relaxed) && unlinkat(folder, name, 0) == 0;
  }
  close(fd);
  return gone;
}

bool ends_with(const char* name, size_t length, const char* suffix) {
  return length >= strlen(suffix) && strcmp(name + length - strlen(suffix), suffix) == 0;
}

/// One file, if it is one of ours.
bool sweep_one(int folder, const char* name, const char* prefix) {
  const size_t length = strlen(name);
  if (strncmp(name, prefix, strlen(prefix)) != 0) return false;
  return ends_with(name, length, ".ring")
             ? collect(folder, name)
             : ends_with(name, length, kNodeMemorySuffix) && node_memory_sweep(folder, name);
}

/// The ring of a rank of this launch, opened. -1: it is none.
int open_of_launch(int folder, const char* name, ring::Header* header) {
  struct stat status;
  const size_t length = strlen(name);
  if (strncmp(name, world_prefix, strlen(world_prefix)) != 0 || !ends_with(name, length, ".ring")) return -1;
  const int fd = node_file_open(folder, name, false, sizeof(ring::Header), &status);
  if (fd < 0) return -1;
  const ring::Header& own = *runtime.header;
  if (pread(fd, header, sizeof(*header), 0) == sizeof(*header) && header->magic == ring::kMagic &&
      header->version == ring::kVersion && header->launch_agreed != 0 && header->world == own.world &&
      memcmp(header->launch, own.launch, sizeof(own.launch)) == 0)
    return fd;
  close(fd);
  return -1;
}

/// One walk through the rings of this launch on this node: `each` says whether to go on.
template <class Each>
bool all_of_launch(Each each) {
  alignas(8) static char room[32 << 10];
  NodeFolder folder(room, sizeof(room));
  while (const char* name = folder.next()) {
    ring::Header header;
    const int fd = open_of_launch(folder.descriptor(), name, &header);
    if (fd < 0) continue;
    const bool goes_on = each(folder.descriptor(), name, fd, header);
    close(fd);
    if (!goes_on) return false;
  }
  return true;
}

void thread_main() {
  segment_sweep(own_prefix);
  running.store(0, std::memory_order_release);
  futex_wake(&running);
}

}  // namespace

int segment_sweep(const char* prefix) {
  alignas(8) static char room[32 << 10];
  NodeFolder folder(room, sizeof(room));
  const double until = monotonic_seconds() + kSweepSeconds;
  int removed = 0;
  while (removed < kMostFiles && !stop.load(std::memory_order_relaxed) && monotonic_seconds() < until) {
    const char* name = folder.next();
    if (name == nullptr) break;
    removed += sweep_one(folder.descriptor(), name, prefix);
  }
  return removed;
}

void segment_leave(bool (*keep)()) {
  static char chunk[kChunk];
  static const std::atomic<bool> never;
  node_memory_discard();
  if (runtime.size == 1) return;  // its ring is gone already
  segment_prefix(world_prefix, sizeof(world_prefix));  // what other jobs have there is not opened
  // Each rank has noted that it has finished before it looks: of the last two at least one sees both.
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
  const bool last = all_of_launch([](int, const char*, int, const ring::Header& header) {
    return header.phase == static_cast<uint32_t>(ring::Phase::kFinished);
  });
  if (!last) return;
  const bool kept = keep();
  all_of_launch([kept](int folder, const char* name, int fd, const ring::Header& header) {
    if (!kept || copy(fd, runtime.directory, header.rank, chunk, never) == Copied::kDone) unlinkat(folder, name, 0);
    return true;
  });
}

void segment_sweep_start() {
  snprintf(own_prefix, sizeof(own_prefix), "resil-%u-", getuid());
  running.store(1, std::memory_order_relaxed);
  if (!helper_thread_start("resil-sweep", thread_main)) running.store(0, std::memory_order_relaxed);
}

void segment_sweep_end(double seconds) {
  futex_wait_while(running, 1, seconds);
  stop.store(true, std::memory_order_relaxed);
}

}  // namespace resil
