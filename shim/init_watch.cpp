// SPDX-License-Identifier: Apache-2.0
//
// See init_watch.h. A rank is there when it has a ring of this launch in /dev/shm: before MPI_Init is over, that is one by
// the launcher's names whose process is in MPI_Init itself, or has the same parent as this one.

#include "shim/init_watch.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>

#include "shim/config.h"
#include "shim/helper_thread.h"
#include "shim/log.h"
#include "shim/node_file.h"
#include "shim/presence/compare.h"
#include "shim/presence/identity.h"
#include "shim/runtime.h"
#include "shim/segment.h"

namespace resil {

namespace {

constexpr int kPatience = 30;        // seconds
constexpr double kFarewell = 0.1;    // that MPI_Init waits for the thread's end: it has been woken
constexpr int kMostRanks = 4096;

std::atomic<uint32_t> inside, running;  // futex words
int world_size, node_size;
char prefix[200];  // of the names of this launch's rings
bool in_init[kMostRanks], ended[kMostRanks];

void wait_while(std::atomic<uint32_t>& word, double seconds) {
  timespec until;
  clock_gettime(CLOCK_MONOTONIC, &until);
  const auto whole = static_cast<time_t>(seconds);
  until.tv_nsec += static_cast<long>((seconds - static_cast<double>(whole)) * 1e9);
  until.tv_sec += whole + until.tv_nsec / 1000000000;
  until.tv_nsec %= 1000000000;
  while (word.load(std::memory_order_acquire) != 0 &&
         (syscall(SYS_futex, &word, FUTEX_WAIT_BITSET_PRIVATE, 1, &until, nullptr, FUTEX_BITSET_MATCH_ANY) == 0 || errno != ETIMEDOUT)) {
  }
}

void release(std::atomic<uint32_t>& word) {
  word.store(0, std::memory_order_release);
  syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
}

int parent_of(int pid) {
  char text[512];
  snprintf(text, sizeof(text), "/proc/%d/stat", pid);
  const int fd = open(text, O_RDONLY | O_CLOEXEC);
  const ssize_t length = fd >= 0 ? read(fd, text, sizeof(text) - 1) : -1;
  if (fd >= 0)
    close(fd);
  text[length > 0 ? length : 0] = 0;
  const char* field = strrchr(text, ')');  // the name may hold spaces and parentheses
  return field != nullptr && strlen(field) > 4 ? static_cast<int>(strtol(field + 4, nullptr, 10)) : -1;
}

/// One file of /dev/shm: a rank of this launch?
void look_at(int folder, const char* name) {
  const size_t length = strlen(prefix);
  if (strncmp(name, prefix, length) != 0)
    return;
  char* end;
  const long rank = strtol(name + length, &end, 10);
  if (end == name + length || *end != '-' || strlen(end) != strlen("-0123456789abcdef.ring") || strcmp(end + 17, ".ring") != 0 || rank < 0 ||
      rank >= kMostRanks)
    return;
  struct stat status;
  const int fd = node_file_open(folder, name, false, sizeof(ring::Header), &status);
  if (fd < 0)
    return;
  ring::Header header;
  if (pread(fd, &header, sizeof(header), 0) == sizeof(header) && header.magic == ring::kMagic && header.version == ring::kVersion) {
    const NodeFileOwner owner = {header.pid, header.held != 0, uint64_t{header.pid_start_hi} << 32 | header.pid_start_lo, header.pid_namespace};
    const Life life = node_file_life(fd, owner);
    const bool starting = header.phase == static_cast<uint32_t>(ring::Phase::kStarting);
    if (life == Life::kGone)
      ended[rank] = true;
    else if (starting || (header.pid_namespace == pid_namespace() && parent_of(header.pid) == getppid()))
      in_init[rank] = true;
  }
  close(fd);
}

void look_around() {
  alignas(8) static char room[32 << 10];
  NodeFolder folder(room, sizeof(room));
  while (const char* name = folder.next())
    look_at(folder.descriptor(), name);
}

void say() {
  RankList there, missing, gone;
  int present = 0;
  look_around();
  in_init[runtime.rank] = true;
  for (int rank = 0; rank < world_size && rank < kMostRanks; ++rank) {
    present += in_init[rank];
    if (in_init[rank])
      there.add(rank);
    else if (ended[rank])
      gone.add(rank);
    else if (node_size == world_size)
      missing.add(rank);
  }
  const bool whole = present >= node_size;
  if (whole && runtime.rank != 0)
    return;  // rank 0's node speaks for the rest
  char others[160] = "", lost[128] = "";
  if (gone.count() != 0)
    snprintf(lost, sizeof(lost), "; rank%s %.80s ended", gone.count() == 1 ? "" : "s", gone.text());
  if (!whole && missing.count() != 0)
    snprintf(others, sizeof(others), "; rank%s %.80s %s not there, or without resil", missing.count() == 1 ? "" : "s", missing.text(),
             missing.count() == 1 ? "is" : "are");
  else if (!whole)
    snprintf(others, sizeof(others), "; %d of this node's %d are not there, or without resil", node_size - present, node_size);
  else if (node_size < world_size)
    snprintf(others, sizeof(others), ", all of this node; nodes on which ranks are missing say so themselves, those that say "
             "nothing are complete or not there");
  else
    snprintf(others, sizeof(others), ", which are all: the MPI library, its launcher or the network");
  log_format("MPI_Init has not returned for %d s on %s. In it: rank%s %.80s%s%s", kPatience, runtime.host, there.count() == 1 ? "" : "s",
             there.text(), others, lost);
}

void thread_main() {
  wait_while(inside, kPatience);
  if (inside.load(std::memory_order_acquire) != 0)
    say();
  release(running);
}

}  // namespace

void init_watch_begin(const LaunchIdentity& identity) {
  const bool lowest = identity.local_rank == 0 || (identity.local_rank < 0 && identity.rank == 0);
  if (!lowest || identity.size < 2 || identity.rank < 0 || identity.rank >= kMostRanks || segment_is_anonymous() ||
      config_has("RESIL_LOG", "quiet"))
    return;
  world_size = identity.size;
  node_size = identity.local_size > 0 ? identity.local_size : 1;
  // /dev/shm/NAME-RANK-NONCE.ring
  const char* name = strrchr(segment_path(), '/');
  snprintf(prefix, sizeof(prefix), "%s", name != nullptr ? name + 1 : "");
  for (int cut = 0; cut < 2; ++cut)
    if (char* dash = strrchr(prefix, '-'); dash != nullptr)
      dash[cut == 1 ? 1 : 0] = 0;
  if (prefix[0] == 0)
    return;
  inside.store(1, std::memory_order_relaxed);
  running.store(1, std::memory_order_relaxed);
  if (!helper_thread_start("resil-init", thread_main))
    inside.store(0, std::memory_order_relaxed), running.store(0, std::memory_order_relaxed);
}

void init_watch_end() {
  if (inside.load(std::memory_order_relaxed) == 0)
    return;
  release(inside);
  wait_while(running, kFarewell);
}

}  // namespace resil
