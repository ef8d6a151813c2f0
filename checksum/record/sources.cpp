// SPDX-License-Identifier: Apache-2.0
//
// The table of functions that read what no recording holds, and what is known of their calls. See sources.h.

#include "checksum/record/sources.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cinttypes>
#include <cstdio>
#include <cstring>

#include "shim/base/task_list.h"
#include "shim/call/site_text.h"
#include "shim/report/json.h"

extern "C" {
[[gnu::visibility("hidden")]] resil::record::SourceSlot resil_source_slots[resil::record::kMostSources];
[[gnu::visibility("hidden"), gnu::used]] void* resil_source_checked(unsigned index, const uint64_t* arguments,
                                                                    uint64_t site);
}

namespace resil::record {

constexpr SourceName kSourceNames[] = {
    {"clock_gettime", Source::kClock, kGivenBack},
    {"gettimeofday", Source::kClock, kGivenBack},
    {"time", Source::kClock, kGivenBack},
    {"clock", Source::kClock, kGivenBack},
    {"times", Source::kClock, 0},
    {"ftime", Source::kClock, 0},
    {"timespec_get", Source::kClock, 0},
    {"omp_get_wtime", Source::kClock, kInside},
    {"omp_get_wtime_", Source::kClock, kInside},
    {"_ZNSt6chrono3_V212system_clock3nowEv", Source::kClock, kInside},
    {"_ZNSt6chrono3_V212steady_clock3nowEv", Source::kClock, kInside},
    {"_gfortran_system_clock_4", Source::kClock, kInside},
    {"_gfortran_system_clock_8", Source::kClock, kInside},
    {"_gfortran_cpu_time_4", Source::kClock, 0},
    {"_gfortran_cpu_time_8", Source::kClock, 0},
    {"_gfortran_date_and_time", Source::kClock, kInside},
    {"_gfortran_etime", Source::kClock, 0},
    {"_gfortran_etime_sub", Source::kClock, 0},
    {"_gfortran_dtime", Source::kClock, 0},
    {"_gfortran_dtime_sub", Source::kClock, 0},
    {"_gfortran_second", Source::kClock, 0},
    {"_gfortran_second_sub", Source::kClock, 0},
    {"_gfortran_time_func", Source::kClock, kInside},
    {"_gfortran_time8_func", Source::kClock, kInside},
    {"_gfortran_itime_i4", Source::kClock, 0},
    {"_gfortran_itime_i8", Source::kClock, 0},
    {"_gfortran_mclock", Source::kClock, kInside},
    {"_gfortran_mclock8", Source::kClock, kInside},
    {"getrandom", Source::kRandom, kInRuntimes},
    {"getentropy", Source::kRandom, kInRuntimes},
    {"arc4random", Source::kRandom, kInRuntimes},
    {"arc4random_buf", Source::kRandom, kInRuntimes},
    {"arc4random_uniform", Source::kRandom, kInRuntimes},
    {"_ZNSt13random_device9_M_getvalEv", Source::kRandom, 0},
    {"open", Source::kRandom, kInRuntimes | kPath},
    {"open64", Source::kRandom, kInRuntimes | kPath},
    {"__open_2", Source::kRandom, kInRuntimes | kPath},
    {"__open64_2", Source::kRandom, kInRuntimes | kPath},
    {"openat", Source::kRandom, kInRuntimes | kPath | kPathSecond},
    {"openat64", Source::kRandom, kInRuntimes | kPath | kPathSecond},
    {"fopen", Source::kRandom, kInRuntimes | kPath},
    {"fopen64", Source::kRandom, kInRuntimes | kPath},
    {"getpid", Source::kProcessId, 0},
    {"getppid", Source::kProcessId, 0},
    {"gettid", Source::kProcessId, 0},
    {"getpgrp", Source::kProcessId, 0},
    {"getpgid", Source::kProcessId, 0},
    {"getsid", Source::kProcessId, 0},
    {"_gfortran_getpid", Source::kProcessId, 0},
    {"getrusage", Source::kMemoryUse, 0},
    {"mallinfo", Source::kMemoryUse, 0},
    {"mallinfo2", Source::kMemoryUse, 0},
    {"sysinfo", Source::kMemoryUse, 0},
    {"stat", Source::kFileDates, 0},
    {"stat64", Source::kFileDates, 0},
    {"lstat", Source::kFileDates, 0},
    {"lstat64", Source::kFileDates, 0},
    {"fstat", Source::kFileDates, 0},
    {"fstat64", Source::kFileDates, 0},
    {"fstatat", Source::kFileDates, 0},
    {"fstatat64", Source::kFileDates, 0},
    {"statx", Source::kFileDates, 0},
    {"__xstat", Source::kFileDates, 0},
    {"__xstat64", Source::kFileDates, 0},
    {"__lxstat", Source::kFileDates, 0},
    {"__lxstat64", Source::kFileDates, 0},
    {"__fxstat", Source::kFileDates, 0},
    {"__fxstat64", Source::kFileDates, 0},
    {"__fxstatat", Source::kFileDates, 0},
    {"__fxstatat64", Source::kFileDates, 0},
    {"_gfortran_stat_i4_sub", Source::kFileDates, 0},
    {"_gfortran_stat_i8_sub", Source::kFileDates, 0},
    {"_gfortran_fstat_i4_sub", Source::kFileDates, 0},
    {"_gfortran_fstat_i8_sub", Source::kFileDates, 0},
    {"pthread_create", Source::kThreads, kInRuntimes},
    {"thrd_create", Source::kThreads, kInRuntimes},
    {"syscall", Source::kRandom, kInRuntimes | kSystemCall},
    {"dlopen", Source::kNone, kInRuntimes | kLoads},
    {"dlmopen", Source::kNone, kInRuntimes | kLoads},
};
constexpr unsigned kSourceCount = sizeof(kSourceNames) / sizeof(kSourceNames[0]);
static_assert(kSourceCount <= kMostSources);
constexpr unsigned kLoaders = 2;  // the last rows
static_assert(kSourceNames[kSourceCount - kLoaders].flags & kLoads);

unsigned source_row(const char* name) {
  for (unsigned i = 0; i < kSourceCount; ++i)
    if (kSourceNames[i].name[0] == name[0] && strcmp(kSourceNames[i].name, name) == 0) return i;
  return kSourceCount;
}

namespace {

constexpr const char* kWhat[] = {"",       "clock", "random numbers", "process ids", "use of memory", "dates of files",
                                 "threads"};

std::atomic<uint64_t> proc_files;  // opened in /proc
std::atomic<uint64_t> proc_site;
std::atomic<uint64_t> clock_calls, id_calls;  // by syscall()
std::atomic<uint64_t> other_threads;  // before MPI_Init
uint64_t loads_seen;

bool is_random_device(const char* path) {
  return strcmp(path, "/dev/urandom") == 0 || strcmp(path, "/dev/random") == 0 || strcmp(path, "/dev/hwrng") == 0;
}

uint64_t count_of(unsigned index) { return __atomic_load_n(&resil_source_slots[index].count, __ATOMIC_RELAXED); }
uint32_t before_of(unsigned index) { return __atomic_load_n(&resil_source_slots[index].before, __ATOMIC_RELAXED); }

/// Does a row of the table stand for a source, and is it open?
bool open_row(unsigned i) { return kSourceNames[i].source != Source::kNone && (count_of(i) != 0 || before_of(i) != 0); }

/// Every open source: visit(what, name, count, site, before).
template <class Visit>
void each_open(Visit visit) {
  for (unsigned i = 0; i < kSourceCount; ++i)
    if (open_row(i))
      visit(kSourceNames[i].source, kSourceNames[i].name, count_of(i), resil_source_slots[i].site, before_of(i));
  if (const uint64_t n = proc_files.load(std::memory_order_relaxed))
    visit(Source::kMemoryUse, "open of files in /proc", n, proc_site.load(std::memory_order_relaxed), 0);
  if (const uint64_t n = clock_calls.load(std::memory_order_relaxed))
    visit(Source::kClock, "syscall(SYS_clock_gettime)", n, uint64_t{0}, 0);
  if (const uint64_t n = id_calls.load(std::memory_order_relaxed))
    visit(Source::kProcessId, "syscall(SYS_getpid)", n, uint64_t{0}, 0);
  if (const uint64_t n = other_threads.load(std::memory_order_relaxed))
    visit(Source::kThreads, "there at MPI_Init", n, uint64_t{0}, 0);
}

}  // namespace

/// Row `i` of the table: "time was called 3 times, first at app+0x1234".
static void row_text(const char* name, uint64_t count, uint64_t site, uint32_t before, char* text, size_t bytes) {
  char where[112] = "";
  if (site != 0) site_text(site, where, sizeof(where));
  if (count != 0)
    snprintf(text, bytes, "%s: %" PRIu64 " call%s%s%.60s%s", name, count, count == 1 ? "" : "s",
             where[0] != 0 ? ", first at " : "", where, before & 1 ? ", and before MPI_Init" : "");
  else
    snprintf(text, bytes, "%s: %s", name,
             before & 1 ? "called before MPI_Init"
                        : "bound when the program was loaded, so that it may have been called before MPI_Init");
}

void* source_real(const char* name) { return resil_source_slots[source_row(name)].real; }

void source_read(const char* name, uint64_t site) {
  SourceSlot& slot = resil_source_slots[source_row(name)];
  __atomic_fetch_add(&slot.count, 1, __ATOMIC_RELAXED);
  if (__atomic_load_n(&slot.site, __ATOMIC_RELAXED) == 0) __atomic_store_n(&slot.site, site, __ATOMIC_RELAXED);
}

/// Has glibc made no thread yet (its own word, from 2.32 on)? Then what else /proc shows is not the program's: under an
/// emulator in user mode its own thread.
static bool no_thread_was_made() {
  const auto* word = static_cast<const char*>(dlsym(RTLD_DEFAULT, "__libc_single_threaded"));
  return word != nullptr && *word != 0;
}

/// Threads of resil's own, and the one that UCX starts when it is loaded: it looks for a daemon that shows UCX's state
/// as files, and mostly ends soon.
static bool is_no_programs(const char* name) { return strncmp(name, "resil-", 6) == 0 || strcmp(name, "fuse\n") == 0; }

void sources_count_threads() {
  if (no_thread_was_made()) return;
  constexpr int kMost = 256;
  int32_t tids[kMost];
  char scratch[1024];
  const int count = list_threads(0, tids, kMost, scratch, sizeof(scratch));
  uint64_t others = 0;
  for (int i = 0; i < count && i < kMost; ++i) {
    if (tids[i] == static_cast<int32_t>(syscall(SYS_gettid))) continue;
    char path[64], name[32] = "";  // stays empty where the thread has ended meanwhile
    snprintf(path, sizeof(path), "/proc/self/task/%d/comm", tids[i]);
    const int file = open64(path, O_RDONLY | O_CLOEXEC);
    if (file >= 0) {
      const ssize_t length = read(file, name, sizeof(name) - 1);
      name[length > 0 ? length : 0] = 0;
      close(file);
    }
    others += name[0] != 0 && !is_no_programs(name);
  }
  other_threads.store(others, std::memory_order_relaxed);
}

bool sources_stale() {
  uint64_t loads = 0;
  for (unsigned i = kSourceCount - kLoaders; i < kSourceCount; ++i) loads += count_of(i);
  return loads != loads_seen && (loads_seen = loads, true);
}

bool sources_open() {
  bool open = false;
  each_open([&](Source, const char*, uint64_t, uint64_t, uint32_t) { open = true; });
  return open;
}

unsigned sources_add(Finding& finding, unsigned most) {
  unsigned count = 0;
  each_open([&](Source source, const char* name, uint64_t calls, uint64_t site, uint32_t before) {
    if (count++ >= most) return;
    char row[24], text[132];
    snprintf(row, sizeof(row), "source_%u", count);
    row_text(name, calls, site, before, text, sizeof(text));
    finding.add(row, "%s, %s", kWhat[static_cast<unsigned>(source)], text);
  });
  if (count > most) finding.add("more_sources", "%u, in the rank's report", count - most);
  return count;
}

void sources_text(char* text, size_t bytes) {
  // One phrase for each kind, as it goes into one line.
  text[0] = 0;
  for (unsigned kind = 1; kind < sizeof(kWhat) / sizeof(kWhat[0]); ++kind) {
    uint64_t calls = 0;
    unsigned names = 0;
    const char* first = "";
    each_open([&](Source source, const char* name, uint64_t count, uint64_t, uint32_t) {
      if (source != static_cast<Source>(kind)) return;
      if (names++ == 0) first = name;
      calls += count;
    });
    if (names == 0) continue;
    const size_t used = strlen(text);
    snprintf(text + used, bytes - used, "%s%s (%s%s, %" PRIu64 ")", used != 0 ? ", " : "", kWhat[kind], first,
             names > 1 ? " and others" : "", calls);
  }
}

void sources_report(JsonWriter& json) {
  json.begin_array("sources");
  each_open([&](Source source, const char* name, uint64_t calls, uint64_t site, uint32_t before) {
    char where[112] = "";
    if (site != 0) site_text(site, where, sizeof(where));
    json.begin_object();
    json.text("kind", kWhat[static_cast<unsigned>(source)]);
    json.text("name", name);
    json.integer("calls", static_cast<int64_t>(calls));
    json.text("first", where);
    json.text("before_init", before & 1 ? "yes" : before != 0 ? "maybe" : "no");
    json.end_object();
  });
  json.end_array();
}

}  // namespace resil::record

extern "C" void* resil_source_checked(unsigned index, const uint64_t* arguments, uint64_t site) {
  using namespace resil::record;
  SourceSlot& slot = resil_source_slots[index];
  const SourceName& row = kSourceNames[index];
  const auto count = [&] {
    __atomic_fetch_add(&slot.count, 1, __ATOMIC_RELAXED);
    if (__atomic_load_n(&slot.site, __ATOMIC_RELAXED) == 0) __atomic_store_n(&slot.site, site, __ATOMIC_RELAXED);
  };
  if (row.flags & kSystemCall) {
    switch (arguments[0]) {
      case SYS_getrandom: count(); break;
      case SYS_clock_gettime: clock_calls.fetch_add(1, std::memory_order_relaxed); break;
      case SYS_getpid:
      case SYS_gettid:
      case SYS_getppid: id_calls.fetch_add(1, std::memory_order_relaxed); break;
      default: break;
    }
  } else if (const auto* path = reinterpret_cast<const char*>(arguments[row.flags & kPathSecond ? 1 : 0]);
             path != nullptr) {
    if (is_random_device(path)) count();
    else if (strncmp(path, "/proc/", 6) == 0) {
      proc_files.fetch_add(1, std::memory_order_relaxed);
      if (proc_site.load(std::memory_order_relaxed) == 0) proc_site.store(site, std::memory_order_relaxed);
    }
  }
  return slot.real;
}
