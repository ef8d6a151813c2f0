// SPDX-License-Identifier: Apache-2.0
//
// Ends of ranks, told by files `replicas-end-RANK` in the report directory: messages may be late, or lost. See words.h.

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>

#include "detectors/replicas/words.h"
#include "shim/call/runtime.h"
#include "shim/config/config.h"
#include "shim/runtime/progress.h"

namespace resil::replicas {

namespace {

void name_of(int rank, char* path, size_t bytes) {
  snprintf(path, bytes, "%s/replicas-end-%d", runtime.directory, rank);
}

}  // namespace

void goodbye() {
  char path[1200];
  name_of(runtime.rank, path, sizeof(path));
  const int file = openat(AT_FDCWD, path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  if (file >= 0) close(file);
}

bool has_said_goodbye(int world_rank) {
  char path[1200];
  name_of(world_rank, path, sizeof(path));
  return access(path, F_OK) == 0;
}

void goodbye_forget() {
  char path[1200];
  name_of(runtime.rank, path, sizeof(path));
  unlink(path);
}

bool wait_for_partner(Thread& thread, int from, bool (*over)()) {
  char path[1200];
  name_of(from, path, sizeof(path));
  const auto second = static_cast<uint64_t>(runtime.header->ticks_per_second);
  uint64_t look = ticks() + second / 10, limit = UINT64_MAX;
  bool came = false;
  wait_until(
      thread,
      [&] {
        if (came = over(); came) return true;
        dropped_look();
        const uint64_t now = ticks();
        if (limit == UINT64_MAX && now > look) {
          look = now + second / 10;
          if (access(path, F_OK) == 0)
            limit = now + static_cast<uint64_t>(config_real("RESIL_DRAIN_SECONDS") * static_cast<double>(second));
        }
        return now > limit;
      },
      kForOthers);
  return came;
}

}  // namespace resil::replicas
