// SPDX-License-Identifier: Apache-2.0
//
// Node-local memory of one rank. Every byte is reserved before it is mapped: a store into a mapped file on a full
// file system kills the program.

#include "shim/ring/segment.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "shim/base/clock.h"
#include "shim/base/process_state.h"
#include "shim/base/version.h"
#include "shim/call/registry.h"
#include "shim/call/runtime.h"
#include "shim/model/calls.h"
#include "shim/presence/launch.h"
#include "shim/report/own_files.h"
#include "shim/ring/node_memory.h"
#include "shim/runtime/memory.h"

namespace resil {

Runtime runtime;

namespace {

constexpr uint32_t kTraces = 8, kComms = 512, kRequests = kRingRequests, kModules = 128, kNames = 256;
constexpr size_t kPage = 4096;

char live_path[256];
bool anonymous;

/// A first guess of the counter's rate; segment_sync_clock refines it over the length of the run.
#if !defined(__aarch64__)
struct TwoClocks {
  uint64_t ticks, wall;
};

/// Both at one moment: of some readings the quickest, so that none is used in which another process came between.
TwoClocks both_clocks() {
  TwoClocks best{};
  uint64_t shortest = UINT64_MAX;
  for (int i = 0; i < 5; ++i) {
    const uint64_t before = ticks(), wall = monotonic_ns(), after = ticks();
    if (after - before >= shortest) continue;
    shortest = after - before;
    best = {before, wall};
  }
  return best;
}
#endif

double measure_rate() {
#if defined(__aarch64__)
  uint64_t frequency;
  asm volatile("mrs %0, cntfrq_el0" : "=r"(frequency));
  return static_cast<double>(frequency);
#else
  // Three digits do: the first exact rate is known when MPI_Init returns (segment_sync_clock).
  const TwoClocks begin = both_clocks();
  TwoClocks end;
  do end = both_clocks();
  while (end.wall - begin.wall < 20000);
  return static_cast<double>(end.ticks - begin.ticks) * 1e9 / static_cast<double>(end.wall - begin.wall);
#endif
}

}  // namespace

bool file_size_allowed(uint64_t bytes) {
  rlimit limit;
  if (getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur >= bytes) return true;
  errno = EFBIG;
  return false;
}

namespace {

struct Plan {
  ring::Section sections[16];
  uint32_t count;
  size_t bytes;
};

void plan_section(Plan& plan, const char* name, size_t entry_bytes, size_t entries) {
  if (plan.count == 16) return;
  ring::Section& section = plan.sections[plan.count++];
  strncpy(section.name, name, sizeof(section.name) - 1);
  section.offset = plan.bytes;
  section.bytes = entry_bytes * entries;
  section.entry_bytes = static_cast<uint32_t>(entry_bytes);
  section.entries = static_cast<uint32_t>(entries);
  plan.bytes += (section.bytes + kPage - 1) & ~(kPage - 1);
}

template <class T>
void place(T*& pointer, uint32_t& count, char* base, const Plan& plan, unsigned index) {
  pointer = reinterpret_cast<T*>(base + plan.sections[index].offset);
  count = plan.sections[index].entries;
}

/// The records that no thread but the first one uses. Pages of a file that were never written are not even read, since
/// that would take memory, too.
UnusedPages unused_records(const ring::Section& traces) {
  constexpr size_t kUsed = offsetof(ring::TraceBuffer, records) + ring::kRecordsOfFurther * sizeof(ring::Record);
  return {traces.offset + sizeof(ring::TraceBuffer) + kUsed, sizeof(ring::TraceBuffer) - kUsed,
          sizeof(ring::TraceBuffer), static_cast<unsigned>(traces.entries) - 1};
}

bool page_is_zero(const char* page) {
  typedef uint64_t Wide __attribute__((vector_size(64), may_alias));
  constexpr size_t kTogether = 8;
  for (size_t i = 0; i < kPage; i += kTogether * sizeof(Wide)) {
    Wide any = {};
    for (size_t k = 0; k < kTogether; ++k) any |= reinterpret_cast<const Wide*>(page + i)[k];
    uint64_t bits = 0;
    for (size_t k = 0; k < sizeof(Wide) / sizeof(uint64_t); ++k) bits |= any[k];
    if (bits != 0) return false;
  }
  return true;
}

/// False with errno; a short write means a full file system.
bool write_pages(int fd, const char* pages, size_t bytes, off_t offset) {
  ssize_t written;
  do written = pwrite(fd, pages, bytes, offset);
  while (written < 0 && errno == EINTR);
  if (written >= 0 && written < static_cast<ssize_t>(bytes)) errno = ENOSPC;
  return written == static_cast<ssize_t>(bytes);
}

}  // namespace

namespace {

void path_of(const char* launch, int world_rank, char* path, size_t bytes) {
  char nonce[kNonceText];
  launch_text(launch_nonce_of(world_rank), nonce);
  snprintf(path, bytes, "/dev/shm/resil-%u-%.63s-%d-%d-%s.ring", getuid(), launch, runtime.world, world_rank, nonce);
}

}  // namespace

void segment_path_of(int world_rank, char* path, size_t bytes) {
  path_of(runtime.header->job, world_rank, path, bytes);
}

bool segment_create(const char* launch) {
  Plan plan = {};
  plan.bytes = kPage;
  plan_section(plan, "lanes", sizeof(ring::TraceBuffer), kTraces);
  plan_section(plan, "comms", sizeof(ring::Comm), kComms);
  plan_section(plan, "requests", sizeof(ring::Request), kRequests);
  plan_section(plan, "modules", sizeof(ring::Module), kModules);
  plan_section(plan, "calls", sizeof(ring::CallName), kCallCount);
  plan_section(plan, "names", sizeof(ring::Name), kNames);
  for (const Module* module : enabled_modules()) {
    uint32_t entry_bytes = 1;
    size_t bytes = module->ring_bytes != nullptr ? module->ring_bytes(&entry_bytes) : 0;
    if (bytes != 0) plan_section(plan, module->name, entry_bytes, bytes / entry_bytes);
  }
  path_of(launch, runtime.rank, live_path, sizeof(live_path));
  char* base = static_cast<char*>(node_file_create(live_path, plan.bytes, unused_records(plan.sections[0])));
  if (base == nullptr) {
    live_path[0] = 0;
    anonymous = true;
    base = static_cast<char*>(memory::map(plan.bytes));
    if (base == nullptr) return false;
  }
  auto* header = reinterpret_cast<ring::Header*>(base);
  header->version = ring::kVersion;
  header->header_bytes = kPage;
  header->file_bytes = plan.bytes;
  header->rank = runtime.rank;
  header->world_size = runtime.size;
  header->pid = runtime.pid;
  header->world = runtime.world;
  strncpy(header->host, runtime.host, sizeof(header->host) - 1);
  strncpy(header->job, launch, sizeof(header->job) - 1);
  strncpy(header->directory, runtime.directory, sizeof(header->directory) - 1);
  strncpy(header->resil_version, kVersionText, sizeof(header->resil_version) - 1);
  if (readlink("/proc/self/exe", header->executable, sizeof(header->executable) - 1) < 0) header->executable[0] = 0;
  uint64_t start = process_start_time(runtime.pid);
  header->pid_namespace = pid_namespace();
  header->nonce = launch_nonce();
  memcpy(header->launch, runtime.launch_key, sizeof(runtime.launch_key));
  header->view = file_view();
  header->held = !anonymous && node_file_hold(live_path);
  header->pid_start_lo = static_cast<uint32_t>(start);
  header->pid_start_hi = static_cast<uint32_t>(start >> 32);
  header->ticks_per_second = measure_rate();
  header->ticks_start = header->ticks_sync = ticks();
  header->realtime_start_ns = header->realtime_sync_ns = realtime_ns();
  header->section_count = plan.count;
  memcpy(header->sections, plan.sections, sizeof(plan.sections));
  place(runtime.traces, runtime.trace_count, base, plan, 0);
  place(runtime.comms, runtime.comm_count, base, plan, 1);
  place(runtime.requests, runtime.request_count, base, plan, 2);
  place(runtime.modules, runtime.module_count, base, plan, 3);
  place(runtime.calls, runtime.call_count, base, plan, 4);
  place(runtime.names, runtime.name_count, base, plan, 5);
  for (unsigned i = 0; i < kCallCount; ++i)
    strncpy(runtime.calls[i].name, kCallInfo[i].name, sizeof(runtime.calls[i].name) - 1);
  __atomic_store_n(&header->magic, ring::kMagic, __ATOMIC_RELEASE);
  __atomic_store_n(&runtime.header, header, __ATOMIC_RELEASE);
  return true;
}

void* segment_section(const char* name, unsigned long* bytes) {
  for (uint32_t i = 0; i < runtime.header->section_count; ++i) {
    if (strncmp(runtime.header->sections[i].name, name, sizeof(runtime.header->sections[i].name)) == 0) {
      *bytes = runtime.header->sections[i].bytes;
      return reinterpret_cast<char*>(runtime.header) + runtime.header->sections[i].offset;
    }
  }
  *bytes = 0;
  return nullptr;
}

const char* segment_path() { return live_path; }

void segment_prefix(char* text, size_t bytes) {
  const char* name = strrchr(live_path, '/');
  snprintf(text, bytes, "%s", name != nullptr ? name + 1 : "");
  for (int cut = 0; cut < 2; ++cut)  // NAME-RANK-NONCE.ring
    if (char* dash = strrchr(text, '-'); dash != nullptr) dash[cut == 1 ? 1 : 0] = 0;
}

bool segment_is_anonymous() { return anonymous; }

void segment_sync_clock() {
  ring::Header* header = runtime.header;
  uint64_t now = ticks(), wall = realtime_ns();
  if (wall > header->realtime_start_ns + 1000000) {
    double rate =
        static_cast<double>(now - header->ticks_start) * 1e9 / static_cast<double>(wall - header->realtime_start_ns);
    // A wall clock that was set meanwhile must not bend the time axis.
    if (rate > 0.99 * header->ticks_per_second && rate < 1.01 * header->ticks_per_second)
      __atomic_store(&header->ticks_per_second, &rate, __ATOMIC_RELAXED);
  }
  __atomic_store_n(&header->ticks_sync, now, __ATOMIC_RELAXED);
  __atomic_store_n(&header->realtime_sync_ns, wall, __ATOMIC_RELAXED);
}

void segment_set_phase(ring::Phase phase) {
  __atomic_store_n(&runtime.header->phase, static_cast<uint32_t>(phase), __ATOMIC_RELEASE);
}

bool segment_store(const char* path) {
  const size_t bytes = runtime.header->file_bytes;
  OwnFile file;
  if (!file_size_allowed(bytes) || !own_file_begin(&file, path, 0666)) return false;
  const char* base = reinterpret_cast<const char*>(runtime.header);
  bool ok = ftruncate(file.fd, static_cast<off_t>(bytes)) == 0;
  const UnusedPages unused = unused_records(runtime.header->sections[0]);
  size_t done = 0;
  for (unsigned i = 0; ok && i <= unused.count; ++i) {
    size_t begin = bytes, end = bytes;
    if (i < unused.count) unused.range(i, &begin, &end);
    for (size_t offset = done; ok && offset < begin; offset += kPage) {
      const size_t first = offset;
      while (offset < begin && !page_is_zero(base + offset)) offset += kPage;
      if (offset != first) ok = write_pages(file.fd, base + first, offset - first, static_cast<off_t>(first));
    }
    done = end;
  }
  if (!ok) own_file_drop(&file);
  if (!ok || !own_file_commit(&file)) return false;
  segment_discard();
  return true;
}

void segment_discard() {
  if (live_path[0] != 0) unlink(live_path);
  live_path[0] = 0;
  node_memory_discard();
}

}  // namespace resil
