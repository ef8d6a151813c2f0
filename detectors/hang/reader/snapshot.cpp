// SPDX-License-Identifier: Apache-2.0
//
// See snapshot.h: mapping, quick looks, liveness.

#include "detectors/hang/reader/snapshot.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "detectors/hang/reader/reader.h"
#include "detectors/hang/slots/calls.h"
#include "shim/base/hash.h"
#include "shim/base/process_state.h"
#include "shim/call/runtime.h"
#include "shim/presence/launch.h"
#include "shim/ring/segment.h"

namespace resil::hang {

namespace {

/// The section of that name; null when there is none, or its bounds make no sense.
const void* section_of(const ring::Header& header, const char* name, size_t entry_bytes, uint64_t mapped,
                       uint64_t* bytes) {
  const uint32_t sections = header.section_count < 16 ? header.section_count : 16;
  for (uint32_t i = 0; i < sections; ++i) {
    const ring::Section section = copy_of(header.sections[i]);
    if (strncmp(section.name, name, sizeof(section.name)) != 0) continue;
    if (section.offset % 4096 != 0 || section.offset > mapped || section.bytes > mapped - section.offset ||
        (entry_bytes != 0 && section.entry_bytes != entry_bytes))
      return nullptr;
    *bytes = section.bytes;
    return reinterpret_cast<const char*>(&header) + section.offset;
  }
  return nullptr;
}

template <class T>
bool find_section(const ring::Header& header, const char* name, uint64_t mapped, const T** entries, uint32_t* count) {
  uint64_t bytes = 0;
  *entries = static_cast<const T*>(section_of(header, name, sizeof(T), mapped, &bytes));
  *count = static_cast<uint32_t>(bytes / sizeof(T));
  return *entries != nullptr && *count != 0;
}

/// Fills `watched` from a mapped ring; `mapped` bytes of it may be read.
bool attach(Watched& watched, const ring::Header* header, uint64_t mapped, int32_t rank) {
  Watched made = {};
  if (load(header->magic) != ring::kMagic || header->version != ring::kVersion || header->file_bytes > mapped ||
      !find_section(*header, "lanes", mapped, &made.traces, &made.trace_count) ||
      !find_section(*header, "comms", mapped, &made.comms, &made.comm_count) ||
      !find_section(*header, "requests", mapped, &made.requests, &made.request_count) ||
      !find_section(*header, "modules", mapped, &made.modules, &made.module_count))
    return false;
  made.trace_count = made.trace_count < kSharedTraces ? made.trace_count : kSharedTraces;
  while (made.request_count & (made.request_count - 1))  // buckets are a power of two
    made.request_count &= made.request_count - 1;
  made.rank = rank;
  made.pid = header->pid;
  made.pid_start = uint64_t{header->pid_start_hi} << 32 | header->pid_start_lo;
  uint64_t bytes = 0;
  const void* own = section_of(*header, "hang", 0, mapped, &bytes);
  if (own != nullptr && bytes >= section_bytes(made.request_count)) {
    made.section = static_cast<const Section*>(own);
    made.pending = reinterpret_cast<const Pending*>(made.section + 1);
  }
  made.header = header;
  watched = made;
  return true;
}

bool same_job(const ring::Header& header, int32_t rank) {
  return runtime.header == nullptr ||
         (header.nonce != 0 && header.nonce == launch_nonce_of(rank) && header.world == runtime.world);
}

bool open_one(Watched& watched, int32_t rank) {
  if (runtime.header == nullptr) return false;
  if (rank == runtime.rank)  // may be in anonymous memory
    return attach(watched, runtime.header, runtime.header->file_bytes, rank);
  if (launch_nonce_of(rank) == 0) return false;  // not known to are preloaded
  char path[256];
  segment_path_of(rank, path, sizeof(path));
  return watched_open_file(watched, path, rank);
}

}  // namespace

bool watched_open_file(Watched& watched, const char* path, int32_t rank) {
  struct stat status;
  const int fd = node_file_open(AT_FDCWD, path, false, sizeof(ring::Header) + 1, &status);
  if (fd < 0) return false;
  void* mapped = mmap(nullptr, static_cast<size_t>(status.st_size), PROT_READ, MAP_SHARED, fd, 0);
  close(fd);
  if (mapped == MAP_FAILED) return false;
  auto* header = static_cast<const ring::Header*>(mapped);
  // A killed job may have left a file of that name: so its process must live. The rank is the launcher's until MPI_Init
  // has returned. What is asked is what was kept: a damaged ring may change meanwhile, and pid 0 would be a group's.
  Watched made;
  if (load(header->magic) == ring::kMagic && header->rank == rank && same_job(*header, rank) &&
      header->pid_namespace == pid_namespace() && proc_is_own() &&
      attach(made, header, static_cast<uint64_t>(status.st_size), rank) && made.pid > 1 && made.pid_start != 0 &&
      process_start_time(made.pid) == made.pid_start) {
    watched = made;
    return true;
  }
  munmap(mapped, static_cast<size_t>(status.st_size));
  return false;
}

uint32_t watched_open(Watched* watched, const int32_t* ranks, uint32_t count) {
  uint32_t open = 0;
  for (uint32_t i = 0; i < count; ++i) open += watched[i].header != nullptr || open_one(watched[i], ranks[i]);
  return open;
}

uint64_t realtime_of(const ring::Header& header, uint64_t ticks) {
  constexpr double kFar = 1e9;  // seconds: of a damaged ring
  double rate;
  __atomic_load(&header.ticks_per_second, &rate, __ATOMIC_RELAXED);
  const double since = static_cast<double>(static_cast<int64_t>(ticks - load(header.ticks_sync))) / rate;
  if (!(rate > 0 && since > -kFar && since < kFar)) return 0;
  return load(header.realtime_sync_ns) + static_cast<uint64_t>(static_cast<int64_t>(since * 1e9));
}

Envelope envelope_read(const Section& section, uint64_t comm, int32_t peer, int32_t tag) {
  const uint32_t home = envelope_home(comm, peer, tag), reach = envelope_reach(peer, tag);
  for (uint32_t i = 0; i < reach; ++i) {
    const Envelope& place = section.envelopes[(home + i) % kEnvelopes];
    const uint64_t whose = load(place.comm);
    if (whose == 0) break;
    if (whose == comm)
      if (const Envelope found = copy_of(place); found.comm == comm && found.peer == peer && found.tag == tag)
        return found;
  }
  return {};
}

namespace {

constexpr uint64_t kPollPause = 450000000;  ///< ns; a little less than the time between two looks

/// When this thread entered or left a call last; 0: not known: it polls, or that call was not timed.
uint64_t last_of(const Watched& watched, const ring::TraceBuffer& trace, uint64_t current, uint64_t now_ns) {
  const uint64_t at = current != 0 ? current : load(trace.head);
  if (at == 0) return 0;
  const ring::Record record = copy_of(ring::record_at(trace, at - 1));
  const auto spent = static_cast<double>(record.duration);
  if (record.repeat != 1 || (current == 0 && !(spent >= 1 && spent < 1e18))) return 0;
  const uint64_t ns = realtime_of(*watched.header, record.time + (current != 0 ? 0 : static_cast<uint64_t>(spent)));
  return ns <= now_ns ? ns : 0;
}

}  // namespace

QuickLook look(Watched& watched, uint64_t now_ns) {
  QuickLook quick = {};
  bool dated = !watched.looked;
  const auto phase = static_cast<ring::Phase>(load(watched.header->phase));
  quick.finished = phase == ring::Phase::kFinished;
  quick.inside_finalize = phase == ring::Phase::kFinalizing;
  uint64_t calls = 0, polls = 0, mark = 0;
  uint32_t chosen = ~0u;
  for (uint32_t i = 0; i < watched.trace_count; ++i) {
    const ring::TraceBuffer& trace = watched.traces[i];
    const Wait& wait = watched.section->waits[i];
    const uint64_t instance = load(wait.instance), current = load(trace.current), steps = load(wait.steps),
                   polled = load(wait.polls);
    const uint64_t run = instance == (kRun | steps) ? instance : 0;
    calls += steps + polled;
    polls += polled;
    mark = hash_combine(hash_combine(mark, steps), run != 0 ? run : current);
    const bool same = watched.looked && run != 0 && run == watched.trace_run[i];
    const bool goes_on = same && polled != watched.trace_polls[i];
    // A question makes looks come closely: who got no core since the last one has not stopped to poll.
    const bool pauses = same && watched.trace_polling[i] && now_ns - watched.trace_at[i] < kPollPause;
    watched.trace_polling[i] = goes_on || pauses;
    if (!pauses || goes_on) watched.trace_at[i] = now_ns;
    watched.trace_run[i] = run;
    watched.trace_polls[i] = polled;
    if (dated && (steps != 0 || current != 0)) {
      const uint64_t last = run == 0 ? last_of(watched, trace, current, now_ns) : 0;
      dated = last != 0;
      quick.last_ns = last > quick.last_ns ? last : quick.last_ns;
    }
    const bool live = load(trace.state) == static_cast<uint32_t>(ring::TraceState::kLive);
    if (!live || (chosen != ~0u && load(trace.tid) != watched.pid)) continue;
    chosen = i;
    quick.in_mpi = current != 0;
    quick.polling = watched.trace_polling[i];
    quick.instance = run != 0 ? run : current;
    quick.open_since_ns = 0;
    if (current != 0) {
      const ring::Record record = copy_of(ring::record_at(trace, current - 1));
      const uint64_t since = realtime_of(*watched.header, record.time);
      quick.open_since_ns = since < now_ns ? since : now_ns;
    }
  }
  if (!dated) quick.last_ns = 0;
  quick.moved = !watched.looked || mark != watched.mark;
  watched.calls = calls;
  watched.polls = polls;
  watched.mark = mark;
  watched.looked = true;
  return quick;
}

RankActivity liveness(const Watched& watched, char* kernel_state, uint64_t* cpu_ns) {
  *kernel_state = 0;
  *cpu_ns = 0;
  char text[1024];
  const char* fields = process_fields(watched.pid, text, sizeof(text));
  if (fields == nullptr) return RankActivity::kGone;
  const char state = *fields;
  if (state == 0) return RankActivity::kUnknown;
  uint64_t values[20] = {};  // fields 4 to 22
  const char* at = fields + 1;
  for (uint64_t& value : values) {
    char* end;
    value = strtoull(at, &end, 10);
    at = end;
  }
  // A main thread that has called pthread_exit is shown as a zombie while the others go on: field 20 counts them.
  if (values[18] != watched.pid_start || state == 'X' || (state == 'Z' && values[16] <= 1)) return RankActivity::kGone;
  constexpr uint64_t kTickNs = 10000000;  // USER_HZ is 100 in what the kernel shows
  *kernel_state = state;
  *cpu_ns = (values[10] + values[11]) * kTickNs;
  return state == 'T' || state == 't' ? RankActivity::kStopped : RankActivity::kUnknown;
}

}  // namespace resil::hang
