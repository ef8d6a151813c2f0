// SPDX-License-Identifier: Apache-2.0
//
// Where a rank that is outside MPI is at work, without disturbing it: the kernel samples program counters of its thread
// for some milliseconds (perf_event_open, user mode only). No signal, no stop; where the kernel does not permit it,
// nothing is known. Helper thread of the rank's node.

#include <fcntl.h>
#include <inttypes.h>
#include <linux/perf_event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "detectors/hang/reader/snapshot.h"
#include "shim/base/text_file.h"
#include "shim/runtime/memory.h"
#include "shim/runtime/stacks/remote.h"

namespace resil::hang {

namespace {

constexpr long kSampleNs = 1000000, kMilliseconds = 50;
constexpr uint32_t kDataPages = 2, kMostSamples = 128;

/// Program counters of that thread; returns how many.
uint32_t sample(int32_t tid, uint64_t* counters) {
  perf_event_attr attributes = {};
  attributes.type = PERF_TYPE_SOFTWARE;
  attributes.size = sizeof(attributes);
  attributes.config = PERF_COUNT_SW_TASK_CLOCK;
  attributes.sample_period = kSampleNs;
  attributes.sample_type = PERF_SAMPLE_IP;
  attributes.exclude_kernel = attributes.exclude_hv = 1;
  const int fd = static_cast<int>(syscall(SYS_perf_event_open, &attributes, tid, -1, -1, PERF_FLAG_FD_CLOEXEC));
  if (fd < 0) return 0;
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const size_t bytes = (1 + kDataPages) * page, data_bytes = kDataPages * page;
  void* mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  uint32_t count = 0;
  if (mapped != MAP_FAILED) {
    const timespec time = {0, kMilliseconds * 1000000};
    nanosleep(&time, nullptr);
    const auto* head = static_cast<const perf_event_mmap_page*>(mapped);
    const char* data = static_cast<const char*>(mapped) + page;
    // 50 samples of 16 bytes: the ring does not come round.
    const uint64_t end = __atomic_load_n(&head->data_head, __ATOMIC_ACQUIRE);
    for (uint64_t at = 0; at + sizeof(perf_event_header) <= end && end <= data_bytes && count < kMostSamples;) {
      perf_event_header record;
      memcpy(&record, data + at, sizeof(record));
      if (record.size < sizeof(record) || at + record.size > end) break;
      if (record.type == PERF_RECORD_SAMPLE && record.size >= sizeof(record) + sizeof(uint64_t))
        memcpy(&counters[count++], data + at + sizeof(record), sizeof(uint64_t));
      at += record.size;
    }
    munmap(mapped, bytes);
  }
  close(fd);
  return count;
}

/// One object file of the rank: what is mapped of it, and its name.
struct Object {
  uint64_t base, low, high;
  char name[64];
};

/// One mapping of the rank. True: this is the file's in which `address` lies, or an earlier one of it.
bool take_mapping(const Mapping& mapping, uint64_t address, Object* object) {
  if (mapping.path[0] != '/') return false;
  if (mapping.offset == 0) {  // the file's first one
    object->base = mapping.low;
    snprintf(object->name, sizeof(object->name), "%s", strrchr(mapping.path, '/') + 1);
  }
  object->low = mapping.low;
  object->high = mapping.high;
  return address >= mapping.low && address < mapping.high;
}

/// The object file of that address.
bool find_object(int32_t pid, uint64_t address, Object* object) {
  char path[32];
  snprintf(path, sizeof(path), "/proc/%d/maps", pid);
  TextFileLines lines(path);
  while (const char* line = lines.next())
    if (Mapping mapping; read_mapping(line, &mapping) && take_mapping(mapping, address, object))
      return object->name[0] != 0;
  return false;
}

struct SystemCall {
  long number;  ///< -1: the thread sleeps in none, or it is not known
  uint64_t first, second;  ///< arguments
};

SystemCall system_call_of(int32_t pid, int32_t tid) {
  char text[256];
  read_thread_file(pid, tid, "syscall", text, sizeof(text));
  if (text[0] < '0' || text[0] > '9') return {-1, 0, 0};
  char* rest = nullptr;
  const long number = strtol(text, &rest, 10);
  const uint64_t first = strtoull(rest, &rest, 16), second = strtoull(rest, &rest, 16);
  return {number, first, second};
}

/// The text at that address of the process, at most to the end of its page.
void read_text(int32_t pid, uint64_t address, char* text, size_t bytes) {
  char path[32];
  snprintf(path, sizeof(path), "/proc/%d/mem", pid);
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  const size_t page = 4096 - address % 4096, most = bytes - 1 < page ? bytes - 1 : page;
  const ssize_t length = fd >= 0 ? pread(fd, text, most, static_cast<off_t>(address)) : 0;
  if (fd >= 0) close(fd);
  text[length > 0 ? length : 0] = 0;
}

/// open("/scratch/fifo"), read, write and the like: the call's name and the file. False: another call, or not known.
bool file_of_call(int32_t pid, const SystemCall& call, const char** name, char* file, size_t bytes) {
  file[0] = 0;
  switch (call.number) {
#ifdef SYS_open
    case SYS_open: *name = "open"; return read_text(pid, call.first, file, bytes), file[0] != 0;
#endif
    case SYS_openat: *name = "open"; return read_text(pid, call.second, file, bytes), file[0] != 0;
    case SYS_read:
    case SYS_pread64:
    case SYS_readv: *name = "read"; break;
    case SYS_write:
    case SYS_pwrite64:
    case SYS_writev: *name = "write"; break;
    case SYS_fsync:
    case SYS_fdatasync: *name = "fsync"; break;
    case SYS_flock: *name = "flock"; break;
    case SYS_fcntl: *name = "fcntl"; break;
    case SYS_ioctl: *name = "ioctl"; break;
    default: return false;
  }
  char path[48];
  snprintf(path, sizeof(path), "/proc/%d/fd/%u", pid, static_cast<uint32_t>(call.first));
  const ssize_t length = readlink(path, file, bytes - 1);
  file[length > 0 ? length : 0] = 0;
  return file[0] != 0;
}

/// What a program sleeps in for long, by its usual name; null: another one.
const char* name_of_call(long number) {
  switch (number) {
    case SYS_read:
    case SYS_pread64:
    case SYS_readv: return "read";
    case SYS_write:
    case SYS_pwrite64:
    case SYS_writev: return "write";
    case SYS_openat: return "open";
    case SYS_fsync:
    case SYS_fdatasync: return "fsync";
    case SYS_futex: return "futex: a lock, or another thread";
    case SYS_nanosleep:
    case SYS_clock_nanosleep: return "sleep";
    case SYS_flock:
    case SYS_fcntl: return "fcntl: a lock on a file";
    case SYS_ppoll:
    case SYS_pselect6:
    case SYS_epoll_pwait: return "poll";
    case SYS_wait4:
    case SYS_waitid: return "wait: another process";
    case SYS_recvfrom:
    case SYS_recvmsg:
    case SYS_accept:
    case SYS_connect: return "a socket";
    case SYS_ioctl: return "ioctl: a driver";
#ifdef SYS_open
    case SYS_open: return "open";
    case SYS_poll:
    case SYS_select:
    case SYS_epoll_wait: return "poll";
    case SYS_pause: return "pause";
#endif
  }
  return nullptr;
}

bool sleeping_place(int32_t pid, int32_t tid, char* text, uint32_t bytes) {
  const SystemCall call = system_call_of(pid, tid);
  const char* name = nullptr;
  char file[88];
  if (call.number < 0) return false;
  if (file_of_call(pid, call, &name, file, sizeof(file))) snprintf(text, bytes, "in %s(\"%s\")", name, file);
  else if (name = name_of_call(call.number); name != nullptr)
    snprintf(text, bytes, "asleep in system call %ld (%s)", call.number, name);
  else snprintf(text, bytes, "asleep in system call %ld", call.number);
  return true;
}

}  // namespace

bool python_at(const Watched& watched, int32_t tid, char* text, uint32_t bytes) {
  if (watched.section == nullptr || watched.section->python.runtime == 0) return false;
  auto* process = memory::map_array<stacks::RemoteProcess>();
  if (process == nullptr) return false;
  const stacks::PythonAddresses python = watched.section->python;
  stacks::PythonFrame frame;
  const bool found = stacks::remote_open(process, watched.pid) &&
                     stacks::python_frames(*process, python, watched.pid, tid, &frame, 1) != 0;
  if (found) stacks::python_place(frame, text, bytes);
  memory::unmap_array(process, 1);
  return found;
}

bool computing_place(const Watched& watched, char* text, uint32_t bytes) {
  const ring::TraceBuffer* trace = first_trace(watched);
  if (trace == nullptr) return false;
  const int32_t tid = __atomic_load_n(&trace->tid, __ATOMIC_RELAXED);
  char python[stacks::kPythonPlace];
  if (python_at(watched, tid, python, sizeof(python))) {
    char call[104] = "";
    if (sleeping_place(watched.pid, tid, call, sizeof(call))) snprintf(text, bytes, "%s, at %s", call, python);
    else snprintf(text, bytes, "at %s", python);
    return true;
  }
  uint64_t counters[kMostSamples];
  const uint32_t count = sample(tid, counters);
  Object object = {}, most = {};
  uint32_t most_here = 0;
  uint64_t low = 0, high = 0;
  for (uint32_t i = 0; i < count && most_here * 2 <= count; ++i) {  // the object in which most of them lie
    if (!find_object(watched.pid, counters[i], &object)) continue;
    uint32_t here = 0;
    uint64_t first = ~uint64_t{0}, last = 0;
    for (uint32_t k = 0; k < count; ++k)
      if (counters[k] >= object.low && counters[k] < object.high) {
        ++here;
        first = counters[k] < first ? counters[k] : first;
        last = counters[k] > last ? counters[k] : last;
      }
    if (here <= most_here) continue;
    most = object;
    most_here = here;
    low = first - object.base;
    high = last - object.base;
  }
  if (most_here != 0 && low == high) snprintf(text, bytes, "at %s+0x%" PRIx64, most.name, low);
  else if (most_here != 0) snprintf(text, bytes, "at %s+0x%" PRIx64 " to 0x%" PRIx64, most.name, low, high);
  else return sleeping_place(watched.pid, tid, text, bytes);
  return true;
}

}  // namespace resil::hang
