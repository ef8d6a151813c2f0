// SPDX-License-Identifier: Apache-2.0
//
// See init_watch.h. A rank of this node is there when it has a ring of this launch in /dev/shm: before MPI_Init is
// over, that is one by the launcher's names whose process is in MPI_Init itself, or has the same parent as this one. A
// rank of another node is there when it has a report in the job's directory, which nodes may share: it is made before
// MPI_Init.

#include "shim/presence/init_watch.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <atomic>

#include "shim/base/clock.h"
#include "shim/base/futex.h"
#include "shim/base/helper_thread.h"
#include "shim/base/process_state.h"
#include "shim/call/runtime.h"
#include "shim/config/config.h"
#include "shim/messages.h"
#include "shim/presence/compare.h"
#include "shim/presence/identity.h"
#include "shim/report/log.h"
#include "shim/report/own_files.h"
#include "shim/ring/node_file.h"
#include "shim/ring/segment.h"

namespace resil {

namespace {

constexpr int kTimeout = 30;  // seconds
constexpr double kFarewell = 0.1;  // that MPI_Init waits for the thread's end: it has been woken
constexpr int kMostRanks = 4096;

std::atomic<uint32_t> inside, running;  // futex words
int world_size, node_size;
bool node_known;  // else node_size is a least number
char prefix[200];  // of the names of this launch's rings
bool in_init[kMostRanks], ended[kMostRanks];  // by the rings of this node
bool reported[kMostRanks];  // by the report directory

void release(std::atomic<uint32_t>& word) {
  word.store(0, std::memory_order_release);
  futex_wake(&word);
}

int parent_of(int pid) {
  char text[512];
  const char* fields = process_fields(pid, text, sizeof(text));
  return fields != nullptr && strlen(fields) > 2 ? static_cast<int>(strtol(fields + 2, nullptr, 10)) : -1;
}

/// One file of /dev/shm: a rank of this launch?
void look_at(int folder, const char* name) {
  const size_t length = strlen(prefix);
  if (strncmp(name, prefix, length) != 0) return;
  char* end;
  const long rank = strtol(name + length, &end, 10);
  if (end == name + length || *end != '-' || strlen(end) != strlen("-0123456789abcdef.ring") ||
      strcmp(end + 17, ".ring") != 0 || rank < 0 || rank >= kMostRanks)
    return;
  struct stat status;
  const int fd = node_file_open(folder, name, false, sizeof(ring::Header), &status);
  if (fd < 0) return;
  ring::Header header;
  if (pread(fd, &header, sizeof(header), 0) == sizeof(header) && header.magic == ring::kMagic &&
      header.version == ring::kVersion) {
    const NodeFileOwner owner = {header.pid, header.held != 0,
                                 uint64_t{header.pid_start_hi} << 32 | header.pid_start_lo, header.pid_namespace};
    const Life life = node_file_life(fd, owner);
    const bool starting = header.phase == static_cast<uint32_t>(ring::Phase::kStarting);
    if (life == Life::kGone) ended[rank] = true;
    else if (starting || (header.pid_namespace == pid_namespace() && parent_of(header.pid) == getppid()))
      in_init[rank] = true;
  }
  close(fd);
}

void look_around() {
  alignas(8) static char room[32 << 10];
  NodeFolder folder(room, sizeof(room));
  while (const char* name = folder.next()) look_at(folder.descriptor(), name);
}

/// Ranks in one merged report file, of which each line begins with the rank's first members.
void look_into(int folder, const char* name) {
  constexpr char kMember[] = "\"rank\":";
  static char text[(32 << 10) + 1];
  const int fd = own_file_read_at(folder, name);
  bool found = false;
  size_t kept = 0;
  for (ssize_t got; fd >= 0 && (got = read(fd, text + kept, sizeof(text) - 1 - kept)) > 0;) {
    char *at = text, *const end = text + kept + static_cast<size_t>(got);
    *end = 0;
    while (at < end) {
      char* const line_end = static_cast<char*>(memchr(at, '\n', static_cast<size_t>(end - at)));
      const char* member = found ? nullptr : strstr(at, kMember);
      if (member != nullptr && (line_end == nullptr || member < line_end) && member + sizeof(kMember) + 8 < end) {
        const long rank = strtol(member + sizeof(kMember) - 1, nullptr, 10);
        if (rank >= 0 && rank < kMostRanks) reported[rank] = true;
        found = true;
      }
      if (line_end == nullptr) break;
      at = line_end + 1;
      found = false;
    }
    kept = static_cast<size_t>(end - at);
    if (kept > sizeof(text) / 2 || found)  // the rest of a line that has said what it has to say
      kept = kept < 64 ? kept : 64;
    memmove(text, end - kept, kept);
  }
  if (fd >= 0) close(fd);
}

/// Other nodes may share the report directory, where every rank has had a file since before its MPI_Init.
void look_at_reports() {
  alignas(8) static char room[32 << 10];
  if (runtime.directory[0] == 0) return;
  NodeFolder folder(own_directory_open(runtime.directory, true), room, sizeof(room));
  while (const char* name = folder.next()) {
    struct stat status;
    char* end = nullptr;
    const long rank = strncmp(name, "rank-", 5) == 0 ? strtol(name + 5, &end, 10) : -1;
    if (end != nullptr && strcmp(end, ".json") == 0) {
      if (rank >= 0 && rank < kMostRanks && fstatat(folder.descriptor(), name, &status, AT_SYMLINK_NOFOLLOW) == 0 &&
          S_ISREG(status.st_mode) && own_uid(folder.descriptor(), status.st_uid))
        reported[rank] = true;
    } else if (strncmp(name, "node-", 5) == 0 && strstr(name, ".jsonl") != nullptr) {
      look_into(folder.descriptor(), name);
    }
  }
}

const char* plural(const RankList& ranks) { return ranks.count() == 1 ? "" : "s"; }

void say() {
  RankList there, elsewhere, missing, gone;
  int present = 0, first = runtime.rank;
  look_around();
  in_init[runtime.rank] = true;
  const bool alone = node_size == world_size;
  if (!alone) look_at_reports();
  for (int rank = 0; rank < world_size && rank < kMostRanks; ++rank) {
    (in_init[rank] ? there : ended[rank] ? gone : reported[rank] ? elsewhere : missing).add(rank);
    present += in_init[rank];
    if ((in_init[rank] || (reported[rank] && !ended[rank])) && rank < first) first = rank;
  }
  const bool whole = present >= node_size, shared = elsewhere.count() != 0;
  // One node speaks for those that are whole: that of the first rank, as far as the directory shows. Where it shows
  // nothing rank 0 may be missing, so the node that is the second by the usual orders speaks, too.
  if (whole && (shared ? runtime.rank != first : runtime.rank != 0 && runtime.rank != 1 && runtime.rank != node_size))
    return;
  char others[256] = "", lost[128] = "", here[80] = "";
  if (gone.count() != 0) snprintf(lost, sizeof(lost), "; rank%s %.80s ended", plural(gone), gone.text());
  if (shared) snprintf(others, sizeof(others), "; on other nodes: rank%s %.80s", plural(elsewhere), elsewhere.text());
  char* const end = others + strlen(others);
  const size_t room = sizeof(others) - strlen(others);
  if (missing.count() == 0 && gone.count() == 0) {
    snprintf(end, room, "%s: the MPI library, its launcher or the network",
             shared ? "; that is all" : ", which are all");
  } else if (alone || shared) {
    if (missing.count() != 0)
      snprintf(end, room, "; rank%s %.80s %s not there, or without resil%s", plural(missing), missing.text(),
               missing.count() == 1 ? "is" : "are", shared ? ", or without this report directory" : "");
  } else {
    if (!whole)
      snprintf(here, sizeof(here), "; %d of this node's %d are not there, or without resil", node_size - present,
               node_size);
    const int away = world_size - (node_known ? node_size : present + gone.count());
    snprintf(end, room,
             "%s%s; %d rank%s of other nodes cannot be seen from here (no shared report directory, or not there)",
             node_known && whole ? ", all of this node" : "", here, away, away == 1 ? "" : "s");
  }
  log_format(messages::core::init_not_returned, kTimeout, runtime.host, plural(there), there.text(), others, lost);
}

void thread_main() {
  if (!futex_wait_while_running(inside, 1, kTimeout, 1)) say();
  release(running);
}

}  // namespace

void init_watch_begin(const LaunchIdentity& identity) {
  const bool lowest = identity.local_rank == 0 || (identity.local_rank < 0 && identity.rank == 0);
  if (!lowest || identity.size < 2 || identity.rank < 0 || identity.rank >= kMostRanks || segment_is_anonymous() ||
      config_has("RESIL_LOG", "quiet"))
    return;
  world_size = identity.size;
  node_known = identity.local_size > 0;
  node_size = node_known ? identity.local_size : 1;
  segment_prefix(prefix, sizeof(prefix));
  if (prefix[0] == 0) return;
  inside.store(1, std::memory_order_relaxed);
  running.store(1, std::memory_order_relaxed);
  if (!helper_thread_start("resil-init", thread_main))
    inside.store(0, std::memory_order_relaxed), running.store(0, std::memory_order_relaxed);
}

void init_watch_end() {
  if (inside.load(std::memory_order_relaxed) == 0) return;
  release(inside);
  futex_wait_while(running, 1, kFarewell);
}

}  // namespace resil
