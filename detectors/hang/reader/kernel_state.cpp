// SPDX-License-Identifier: Apache-2.0
//
// What the kernel says of a rank that is outside MPI and does not come back: a rank that cannot run, or that works in
// the kernel, is no evidence of a hang.

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "detectors/hang/reader/watch.h"
#include "shim/base/process_state.h"
#include "shim/base/task_list.h"
#include "shim/base/text_file.h"
#include "shim/ring/segment.h"

namespace resil::hang {

namespace {

constexpr double kLongestSleep = 120;  // seconds of uninterruptible sleep that excuse
constexpr int kMostThreads = 256;
constexpr const char* kTraffic[] = {"rchar: ", "wchar: ", "read_bytes: ", "write_bytes: "};

uint64_t traffic_in(int pid, const char* name) {
  char text[512];
  read_process_file(pid, name, text, sizeof(text));
  uint64_t traffic = 0;
  for (const char* kind : kTraffic)
    if (const char* found = strstr(text, kind); found != nullptr)
      traffic += strtoull(found + strlen(kind), nullptr, 10);
  return traffic;
}

/// Bytes that the program's threads have read and written. The process's sum would count the helper thread too, which
/// reads /proc and talks to other nodes all the time, and MPI's.
uint64_t traffic_of(const Watched& watched) {
  int32_t tids[kMostThreads];
  char scratch[2048], name[64];
  const int count =
      watched.section != nullptr ? list_threads(watched.pid, tids, kMostThreads, scratch, sizeof(scratch)) : -1;
  if (count < 0 || count > kMostThreads) return traffic_in(watched.pid, "io");
  uint64_t traffic = 0;
  for (int i = 0; i < count; ++i)
    if (!is_own_thread(*watched.section, tids[i])) {
      snprintf(name, sizeof(name), "task/%d/io", tids[i]);
      traffic += traffic_in(watched.pid, name);
    }
  return traffic;
}

/// Value of the line "oom_kill N"; 0: there is none. Async-signal-safe.
uint64_t oom_line(const char* path) {
  constexpr char kKey[] = "oom_kill ";
  char text[1024];
  read_text_file(path, text, sizeof(text));
  for (const char* line = text; *line != 0;) {
    uint32_t same = 0;
    while (kKey[same] != 0 && line[same] == kKey[same]) ++same;
    uint64_t value = 0;
    for (const char* digit = line + same; kKey[same] == 0 && *digit >= '0' && *digit <= '9'; ++digit)
      value = 10 * value + static_cast<uint64_t>(*digit - '0');
    if (kKey[same] == 0) return value;
    while (*line != 0 && *line++ != '\n') {}
  }
  return 0;
}

/// This process's own groups, for who cannot ask for them any more.
struct OomFile {
  char path[600];
  uint64_t before;
};
OomFile oom_files[2];
uint32_t oom_file_count;

}  // namespace

// Slurm has a group for each task below that of the job, and a parent counts its children's.
uint64_t oom_kills(const char* groups, const char* root) {
  char text[4096], path[4600];
  const bool own = oom_file_count == 0 && strcmp(groups, "/proc/self/cgroup") == 0;
  uint32_t files = 0;
  read_text_file(groups, text, sizeof(text));
  uint64_t most = 0;
  for (char* line = text; line != nullptr && *line != 0;) {
    char* end = strchr(line, '\n');
    if (end != nullptr) *end = 0;
    if (char* job = strstr(line, "/job_"); job != nullptr) job[1 + strcspn(job + 1, "/")] = 0;
    const char* controllers = strchr(line, ':');
    const char* group = controllers != nullptr ? strchr(controllers + 1, ':') : nullptr;
    path[0] = 0;
    if (group != nullptr && group == controllers + 1)
      snprintf(path, sizeof(path), "%s%s/memory.events", root, group + 1);
    else if (group != nullptr && strncmp(controllers, ":memory:", 8) == 0)
      snprintf(path, sizeof(path), "%s/memory%s/memory.oom_control", root, group + 1);
    const uint64_t kills = path[0] != 0 ? oom_line(path) : 0;
    if (kills > most) most = kills;
    if (own && path[0] != 0 && files < 2 && strlen(path) < sizeof(oom_files[0].path)) {
      strcpy(oom_files[files].path, path);
      oom_files[files++].before = kills;
    }
    line = end != nullptr ? end + 1 : nullptr;
  }
  if (own) __atomic_store_n(&oom_file_count, files, __ATOMIC_RELEASE);
  return most;
}

uint64_t oom_kills_since() {
  uint64_t most = 0;
  const uint32_t files = __atomic_load_n(&oom_file_count, __ATOMIC_ACQUIRE);
  for (uint32_t i = 0; i < files; ++i)
    if (const uint64_t now = oom_line(oom_files[i].path); now > oom_files[i].before && now - oom_files[i].before > most)
      most = now - oom_files[i].before;
  return most;
}

double starved(const Watched& watched, Tracked& rank, double step) {
  char text[512];
  read_process_file(watched.pid, "schedstat", text, sizeof(text));
  char* blank = text;
  const uint64_t ran = strtoull(text, &blank, 10), delay = strtoull(blank, nullptr, 10);
  const uint64_t ran_before = rank.ran_ns, delay_before = rank.delay_ns;
  rank.ran_ns = ran;
  rank.delay_ns = delay;
  if (delay_before == kNotRead || delay < delay_before || ran < ran_before) return 0;
  // Asleep, it waited only while it was ready to run. Else all the time in which it did not run: a stop, or a quota of
  // processor time, is no delay to the kernel.
  const double used = static_cast<double>(ran - ran_before) * 1e-9,
               delayed = static_cast<double>(delay - delay_before) * 1e-9;
  const double waited = process_state(watched.pid, watched.pid_start) == 'S' ? delayed : step - used;
  return waited < 0 ? 0 : waited < step ? waited : step;
}

// In uninterruptible sleep for long it is not excused: a file system that is dead must be found.
bool works_in_kernel(const Watched& watched, Tracked& rank, double now) {
  const int state = process_state(watched.pid, watched.pid_start);
  if (state == 'T' || state == 't') return true;
  if (state == 'D') {
    if (rank.sleeping_since == 0) rank.sleeping_since = now;
    if (now - rank.sleeping_since < kLongestSleep) return true;
  } else {
    rank.sleeping_since = 0;
  }
  const uint64_t traffic = traffic_of(watched), before = rank.traffic;
  rank.traffic = traffic;
  return before != traffic;  // kNotRead too: nobody knows yet
}

/// How often the function that the rank is in, or was in last, has been called before.
__attribute__((no_sanitize("thread"))) uint64_t familiar(const Watched& watched) {
  const ring::TraceBuffer* trace = first_trace(watched);
  if (trace == nullptr) return 0;
  const uint64_t head = __atomic_load_n(&trace->head, __ATOMIC_RELAXED);
  if (head == 0) return 0;
  const uint16_t call = ring::record_at(*trace, head - 1).call;
  const uint64_t count = call < ring::kMaxCalls ? trace->counters[call].count : 0;
  return count > 0 ? count - 1 : 0;
}

}  // namespace resil::hang
