// SPDX-License-Identifier: Apache-2.0
//
// See files.h. The stand-ins run on any thread and in whatever context the program calls libc: system calls and
// constant memory only. What they call in the end is the function that the program would have called.

#include "detectors/replicas/files.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstring>

#include "detectors/replicas/output.h"
#include "detectors/replicas/paths.h"
#include "detectors/replicas/times.h"
#include "detectors/replicas/words.h"
#include "shim/abi/backend.h"
#include "shim/call/function_slots.h"
#include "shim/call/parts.h"
#include "shim/runtime/accelerators/loads.h"
#include "shim/runtime/memory.h"

namespace resil::replicas {

namespace {

bool leads;
constinit FunctionSlots slots = {};
std::atomic<uint64_t> loads_seen;

constexpr unsigned kMostRows = 96;
void* reals[kMostRows];  // by row: the function itself

using Word = intptr_t;  // an argument or result, or what is left of one that the function does not have
template <class... A>
Word call(unsigned row, A... arguments) {
  return reinterpret_cast<Word (*)(A...)>(reals[row])(arguments...);
}

Use use_of_flags(int flags) {
  const bool writes = (flags & O_ACCMODE) != O_RDONLY || (flags & (O_CREAT | O_TRUNC)) != 0;
  if (!writes || (flags & O_PATH) == O_PATH || (flags & O_TMPFILE) == O_TMPFILE) return Use::kLook;
  if ((flags & (O_CREAT | O_EXCL)) == (O_CREAT | O_EXCL)) return Use::kNew;
  return flags & O_TRUNC ? Use::kReplace : Use::kChange;
}

Use use_of_mode(const char* mode) {
  if (mode == nullptr) return Use::kLook;
  if (strchr(mode, 'x') != nullptr) return Use::kNew;
  if (mode[0] == 'w') return Use::kReplace;
  return mode[0] == 'a' || strchr(mode, '+') != nullptr ? Use::kChange : Use::kLook;
}

/// Opens by `open(path)`; `failed`: what it returns when it does not, `undo`: closes again. A file that is read where
/// it lies may be changed by the leader between the look and the open.
template <class Open, class Undo>
Word open_by(int at, const char* path, Use use, Word failed, Open open, Undo undo) {
  char room[kPathRoom];
  for (;;) {
    const char* name = path_for(at, path, use, room);
    const Word opened = open(name);
    if (leads || use != Use::kLook || name != path || opened == failed || !path_outdated(at, path)) return opened;
    undo(opened);
  }
}

void close_again(Word file) { close(static_cast<int>(file)); }

bool is_random_device(const char* path);
void device_opened(Word device);
Word as_descriptor(Word file);
Word opened_file(const char* path, Word file) {
  if (file >= 0 && is_random_device(path)) device_opened(as_descriptor(file));
  return file;
}
Word opened_stream(const char* path, Word file) {
  if (file != 0 && is_random_device(path)) device_opened(file);
  return file;
}

template <unsigned row>
Word open_stand_in(const char* path, int flags, Word mode) {
  return opened_file(
      path, open_by(
                AT_FDCWD, path, use_of_flags(flags), -1,
                [&](const char* name) { return static_cast<Word>(static_cast<int>(call(row, name, flags, mode))); },
                close_again));
}
template <unsigned row>
Word openat_stand_in(int at, const char* path, int flags, Word mode) {
  return opened_file(
      path, open_by(
                at, path, use_of_flags(flags), -1,
                [&](const char* name) { return static_cast<Word>(static_cast<int>(call(row, at, name, flags, mode))); },
                close_again));
}
template <unsigned row>
Word creat_stand_in(const char* path, Word mode) {
  char room[kPathRoom];
  return call(row, path_for(AT_FDCWD, path, Use::kReplace, room), mode);
}
template <unsigned row>
Word fopen_stand_in(const char* path, const char* mode) {
  return opened_stream(
      path, open_by(
                AT_FDCWD, path, use_of_mode(mode), 0, [&](const char* name) { return call(row, name, mode); },
                [](Word file) {
                  if (auto* close = reinterpret_cast<int (*)(Word)>(dlsym(RTLD_DEFAULT, "fclose"))) close(file);
                }));
}
template <unsigned row>
Word freopen_stand_in(const char* path, const char* mode, Word file) {
  char room[kPathRoom];
  return call(row, path != nullptr ? path_for(AT_FDCWD, path, use_of_mode(mode), room) : path, mode, file);
}

/// What only looks: the path is the first argument, or the second one behind a directory.
template <unsigned row>
Word look_stand_in(const char* path, Word a, Word b, Word c, Word d) {
  char room[kPathRoom];
  return call(row, path_for(AT_FDCWD, path, Use::kLook, room), a, b, c, d);
}
template <unsigned row>
Word lookat_stand_in(int at, const char* path, Word b, Word c, Word d) {
  char room[kPathRoom];
  return call(row, at, path_for(at, path, Use::kLook, room), b, c, d);
}
/// __xstat and the like: a version comes first.
template <unsigned row>
Word versioned_stand_in(Word version, const char* path, Word b, Word c) {
  char room[kPathRoom];
  return call(row, version, path_for(AT_FDCWD, path, Use::kLook, room), b, c);
}
template <unsigned row>
Word make_stand_in(const char* path, Word mode, Word more) {
  char room[kPathRoom];
  return call(row, path_for(AT_FDCWD, path, Use::kNew, room), mode, more);
}
template <unsigned row>
Word makeat_stand_in(int at, const char* path, Word mode, Word more) {
  char room[kPathRoom];
  return call(row, at, path_for(at, path, Use::kNew, room), mode, more);
}
template <unsigned row>
Word change_stand_in(const char* path, Word a, Word b) {
  char room[kPathRoom];
  return call(row, path_for(AT_FDCWD, path, Use::kChange, room), a, b);
}
/// Attributes: of what is the follower's own; of all else the leader changes them.
template <unsigned row>
Word attribute_stand_in(const char* path, Word a, Word b) {
  char room[kPathRoom];
  const char* name = leads ? path : own_path(AT_FDCWD, path, room);
  return name != nullptr ? call(row, name, a, b) : 0;
}
template <unsigned row>
Word attributeat_stand_in(int at, const char* path, Word a, Word b) {
  char room[kPathRoom];
  const char* name = leads || path == nullptr ? path : own_path(at, path, room);
  return name != nullptr || path == nullptr ? call(row, at, name, a, b) : 0;
}

enum class Removal : uint8_t { kFile, kFolder, kEither };
template <unsigned row, Removal what>
Word remove_stand_in(const char* path) {
  if (leads || path == nullptr) {
    if (path != nullptr) keep_path(AT_FDCWD, path);
    return call(row, path);
  }
  bool folder = what == Removal::kFolder;
  if (what == Removal::kEither) {
    char room[kPathRoom];
    struct stat status;
    folder = fstatat(AT_FDCWD, path_for(AT_FDCWD, path, Use::kLook, room), &status, AT_SYMLINK_NOFOLLOW) == 0 &&
             S_ISDIR(status.st_mode);
  }
  return remove_path(AT_FDCWD, path, folder);
}
template <unsigned row>
Word removeat_stand_in(int at, const char* path, int flags) {
  if (leads || path == nullptr) {
    if (path != nullptr) keep_path(at, path);
    return call(row, at, path, flags);
  }
  return remove_path(at, path, (flags & AT_REMOVEDIR) != 0);
}
template <unsigned row>
Word rename_stand_in(const char* from, const char* to) {
  if (!leads && from != nullptr && to != nullptr) return rename_path(AT_FDCWD, from, AT_FDCWD, to);
  if (from != nullptr && to != nullptr) {
    keep_path(AT_FDCWD, from);
    keep_path(AT_FDCWD, to);
  }
  return call(row, from, to);
}
template <unsigned row>
Word renameat_stand_in(int from_at, const char* from, int to_at, const char* to, Word flags) {
  if (!leads && from != nullptr && to != nullptr) return rename_path(from_at, from, to_at, to);
  if (from != nullptr && to != nullptr) {
    keep_path(from_at, from);
    keep_path(to_at, to);
  }
  return call(row, from_at, from, to_at, to, flags);
}
/// The new name is the second argument; a link's target stays what it is.
template <unsigned row, bool both>
Word link_stand_in(const char* target, const char* path) {
  char target_room[kPathRoom], room[kPathRoom];
  if (both && !leads) target = path_for(AT_FDCWD, target, Use::kChange, target_room);
  return call(row, target, path_for(AT_FDCWD, path, Use::kNew, room));
}
/// mkstemp and the like fill the last letters of the name in; mkstemps() has a suffix behind them.
template <unsigned row>
Word temporary_stand_in(char* name, Word a, Word b) {
  char room[kPathRoom];
  const char* made = leads ? name : path_for(AT_FDCWD, name, Use::kNew, room);
  if (made == name) return call(row, name, a, b);
  const Word result = call(row, room, a, b);
  const size_t length = strlen(name), there = strlen(room);
  size_t base = length;
  while (base > 0 && name[base - 1] != '/') --base;
  memcpy(name + base, room + there - (length - base), length - base);
  return result == reinterpret_cast<Word>(room) ? reinterpret_cast<Word>(name) : result;
}

/// Clocks, ids and random numbers, which are others in each part.
const char* name_of_row(unsigned row);
template <unsigned row>
Word noticed_stand_in(Word a, Word b, Word c, Word d, Word e, Word f) {
  may_differ(name_of_row(row));
  if (choices_stop != nullptr) choices_stop(name_of_row(row));
  return call(row, a, b, c, d, e, f);
}

/// Clocks that say what they said in the leading part (times.h).
template <unsigned row>
Word clock_gettime_stand_in(int clock, timespec* time) {
  const Word result = static_cast<int>(call(row, clock, time));
  if (result != 0 || time == nullptr || clock < 0 || clock > 15) return result;
  const int64_t ns =
      times_told_by_libc(static_cast<Clock>(kClockGettime + clock), time->tv_sec * 1000000000 + time->tv_nsec);
  *time = {ns / 1000000000, ns % 1000000000};
  return 0;
}
void tell(timeval* time, Clock clock) {
  const int64_t us = times_told_by_libc(clock, time->tv_sec * 1000000 + time->tv_usec);
  *time = {us / 1000000, us % 1000000};
}
template <unsigned row>
Word gettimeofday_stand_in(timeval* time, void* zone) {
  const Word result = static_cast<int>(call(row, time, zone));
  if (result == 0 && time != nullptr) tell(time, kGettimeofday);
  return result;
}
template <unsigned row>
Word time_stand_in(time_t* time) {
  const int64_t told = times_told_by_libc(kTime, call(row, static_cast<time_t*>(nullptr)));
  if (time != nullptr) *time = told;
  return told;
}
template <unsigned row>
Word clock_stand_in() {
  return times_told_by_libc(kClock, call(row));
}
template <unsigned row>
Word getrusage_stand_in(int who, rusage* usage) {
  const Word result = static_cast<int>(call(row, who, usage));
  if (result != 0 || who != RUSAGE_SELF || usage == nullptr) return result;
  tell(&usage->ru_utime, kUserTime);
  tell(&usage->ru_stime, kSystemTime);
  return 0;
}

// --- Random numbers ------------------------------------------------------------------------------------------------

/// What the program has open of the random devices: descriptors and streams.
constexpr unsigned kMostDevices = 16;
std::atomic<Word> devices[kMostDevices];
std::atomic<unsigned> devices_open;

bool is_random_device(const char* path) {
  return path != nullptr &&
         (strcmp(path, "/dev/urandom") == 0 || strcmp(path, "/dev/random") == 0 || strcmp(path, "/dev/hwrng") == 0);
}
/// Descriptors and streams are kept as odd and even numbers.
Word as_descriptor(Word file) { return static_cast<int>(file) * 2 + 1; }
void device_opened(Word device) {
  for (auto& place : devices) {
    Word free = 0;
    if (!place.compare_exchange_strong(free, device)) continue;
    devices_open.fetch_add(1);
    return;
  }
  may_differ("random numbers");
}
bool is_device(Word device) {
  if (devices_open.load(std::memory_order_relaxed) == 0) [[likely]]
    return false;
  for (const auto& place : devices)
    if (place.load(std::memory_order_relaxed) == device) return true;
  return false;
}
void device_closed(Word device) {
  if (!is_device(device)) return;
  for (auto& place : devices) {
    Word there = device;
    if (place.compare_exchange_strong(there, 0)) devices_open.fetch_sub(1);
  }
}

template <unsigned row>
Word getrandom_stand_in(void* bytes, size_t count, unsigned flags) {
  const Word result = call(row, bytes, count, flags);
  if (result > 0) random_told(bytes, static_cast<size_t>(result));
  return result;
}
template <unsigned row>
Word getentropy_stand_in(void* bytes, size_t count) {
  const Word result = static_cast<int>(call(row, bytes, count));
  if (result == 0) random_told(bytes, count);
  return result;
}
template <unsigned row>
Word arc4random_stand_in() {
  auto value = static_cast<uint32_t>(call(row));
  random_told(&value, sizeof(value));
  return value;
}
/// std::random_device, which asks the processor.
template <unsigned row>
Word random_device_stand_in(void* device) {
  auto value = static_cast<uint32_t>(call(row, device));
  random_told(&value, sizeof(value));
  return value;
}
template <unsigned row>
Word read_stand_in(int file, void* bytes, size_t count, Word room) {
  const Word result = call(row, file, bytes, count, room);
  if (result > 0 && is_device(as_descriptor(file))) random_told(bytes, static_cast<size_t>(result));
  return result;
}
template <unsigned row>
Word fread_stand_in(void* bytes, size_t size, size_t count, Word file) {
  const Word result = call(row, bytes, size, count, file);
  if (result > 0 && is_device(file)) random_told(bytes, static_cast<size_t>(result) * size);
  return result;
}
template <unsigned row>
Word fgetc_stand_in(Word file) {
  const Word result = static_cast<int>(call(row, file));
  if (result < 0 || !is_device(file)) return result;
  auto byte = static_cast<unsigned char>(result);
  random_told(&byte, 1);
  return byte;
}
template <unsigned row>
Word close_stand_in(int file) {
  device_closed(as_descriptor(file));
  return static_cast<int>(call(row, file));
}
template <unsigned row>
Word fclose_stand_in(Word file) {
  device_closed(file);
  return static_cast<int>(call(row, file));
}

// --- The name of the host -------------------------------------------------------------------------------------------

const char* host_told;  // null: the truth

template <unsigned row>
Word gethostname_stand_in(char* name, size_t room) {
  if (host_told == nullptr) return static_cast<int>(call(row, name, room));
  const size_t bytes = strlen(host_told) + 1;
  memcpy(name, host_told, bytes < room ? bytes : room);
  if (bytes <= room) return 0;
  errno = ENAMETOOLONG;
  return -1;
}
template <unsigned row>
Word uname_stand_in(utsname* name) {
  const Word result = static_cast<int>(call(row, name));
  if (result == 0 && host_told != nullptr) strncpy(name->nodename, host_told, sizeof(name->nodename) - 1);
  return result;
}

// --- Standard output -------------------------------------------------------------------------------------------------

template <unsigned row>
Word isatty_stand_in(int file) {
  bool terminal = false;
  if (file == STDOUT_FILENO && output_was_terminal(&terminal)) return terminal;
  return static_cast<int>(call(row, file));
}
/// A process that ends without exit handlers.
template <unsigned row>
Word ends_stand_in(Word status) {
  output_drain();
  return call(row, status);
}

struct Row {
  const char* name;
  void* instead;
};

// A row's number is a template argument of its stand-in, so that it knows its own function.
#define AS(function) reinterpret_cast<void*>(&function)
constexpr unsigned kFirst = __COUNTER__ + 1;
#define ROW(name, stand_in) \
  { name, AS(stand_in<__COUNTER__ - kFirst>) }
#define ROW_OF(name, stand_in, what) \
  { name, AS((stand_in<__COUNTER__ - kFirst, what>)) }
const Row kRows[] = {
    ROW("open", open_stand_in),
    ROW("open64", open_stand_in),
    ROW("__open_2", open_stand_in),
    ROW("__open64_2", open_stand_in),
    ROW("openat", openat_stand_in),
    ROW("openat64", openat_stand_in),
    ROW("__openat_2", openat_stand_in),
    ROW("__openat64_2", openat_stand_in),
    ROW("creat", creat_stand_in),
    ROW("creat64", creat_stand_in),
    ROW("fopen", fopen_stand_in),
    ROW("fopen64", fopen_stand_in),
    ROW("freopen", freopen_stand_in),
    ROW("freopen64", freopen_stand_in),
    ROW("access", look_stand_in),
    ROW("eaccess", look_stand_in),
    ROW("euidaccess", look_stand_in),
    ROW("stat", look_stand_in),
    ROW("stat64", look_stand_in),
    ROW("lstat", look_stand_in),
    ROW("lstat64", look_stand_in),
    ROW("opendir", look_stand_in),
    ROW("scandir", look_stand_in),
    ROW("scandir64", look_stand_in),
    ROW("readlink", look_stand_in),
    ROW("chdir", look_stand_in),
    ROW("fstatat", lookat_stand_in),
    ROW("fstatat64", lookat_stand_in),
    ROW("statx", lookat_stand_in),
    ROW("faccessat", lookat_stand_in),
    ROW("readlinkat", lookat_stand_in),
    ROW("__xstat", versioned_stand_in),
    ROW("__xstat64", versioned_stand_in),
    ROW("__lxstat", versioned_stand_in),
    ROW("__lxstat64", versioned_stand_in),
    ROW("mkdir", make_stand_in),
    ROW("mkfifo", make_stand_in),
    ROW("mknod", make_stand_in),
    ROW("mkdirat", makeat_stand_in),
    ROW("truncate", change_stand_in),
    ROW("truncate64", change_stand_in),
    ROW("chmod", attribute_stand_in),
    ROW("chown", attribute_stand_in),
    ROW("lchown", attribute_stand_in),
    ROW("utime", attribute_stand_in),
    ROW("utimes", attribute_stand_in),
    ROW("fchmodat", attributeat_stand_in),
    ROW("utimensat", attributeat_stand_in),
    ROW_OF("unlink", remove_stand_in, Removal::kFile),
    ROW_OF("rmdir", remove_stand_in, Removal::kFolder),
    ROW_OF("remove", remove_stand_in, Removal::kEither),
    ROW("unlinkat", removeat_stand_in),
    ROW("rename", rename_stand_in),
    ROW("renameat", renameat_stand_in),
    ROW("renameat2", renameat_stand_in),
    ROW_OF("link", link_stand_in, true),
    ROW_OF("symlink", link_stand_in, false),
    ROW("mkstemp", temporary_stand_in),
    ROW("mkstemp64", temporary_stand_in),
    ROW("mkostemp", temporary_stand_in),
    ROW("mkostemp64", temporary_stand_in),
    ROW("mkstemps", temporary_stand_in),
    ROW("mkdtemp", temporary_stand_in),
    ROW("clock_gettime", clock_gettime_stand_in),
    ROW("gettimeofday", gettimeofday_stand_in),
    ROW("time", time_stand_in),
    ROW("clock", clock_stand_in),
    ROW("times", noticed_stand_in),
    ROW("getrusage", getrusage_stand_in),
    ROW("getrandom", getrandom_stand_in),
    ROW("getentropy", getentropy_stand_in),
    ROW("arc4random", arc4random_stand_in),
    ROW("_ZNSt13random_device9_M_getvalEv", random_device_stand_in),
    ROW("read", read_stand_in),
    ROW("__read_chk", read_stand_in),
    ROW("fread", fread_stand_in),
    ROW("fgetc", fgetc_stand_in),
    ROW("getc", fgetc_stand_in),
    ROW("close", close_stand_in),
    ROW("fclose", fclose_stand_in),
    ROW("gethostname", gethostname_stand_in),
    ROW("uname", uname_stand_in),
    ROW("isatty", isatty_stand_in),
    ROW("_exit", ends_stand_in),
    ROW("_Exit", ends_stand_in),
    ROW("abort", ends_stand_in),
    ROW("getpid", noticed_stand_in),
    ROW("gettid", noticed_stand_in),
};
#undef ROW
#undef ROW_OF
#undef AS
constexpr unsigned kRowCount = sizeof(kRows) / sizeof(kRows[0]);
static_assert(kRowCount <= kMostRows);

const char* name_of_row(unsigned row) { return kRows[row].name; }

bool look_at_slot(FunctionSlot& slot, void*) {
  for (unsigned row = 0; row < kRowCount; ++row) {
    if (strcmp(kRows[row].name, slot.name) != 0) continue;
    const auto real = reinterpret_cast<uint64_t>(reals[row]);
    // The program's own function of that name goes where it wants, by others that are in the table.
    if (real == 0 || (slot.bound && slot.now != real) || slot.is_programs(real)) return false;
    slot.instead = kRows[row].instead;
    return true;
  }
  return false;
}

}  // namespace

void files_scan(bool part_leads, bool of_mpi) {
  leads = part_leads;
  loads_seen.store(gpu::loads::count());
  for (unsigned row = 0; row < kRowCount; ++row)
    if (reals[row] == nullptr) reals[row] = dlsym(RTLD_DEFAULT, kRows[row].name);
  slots.scan(of_mpi, look_at_slot, nullptr);
}

void files_host(const char* name) { host_told = name; }

void files_look_again() {
  if (gpu::loads::count() != loads_seen.load(std::memory_order_relaxed)) [[unlikely]]
    files_scan(leads, false);
}

const char* file_of_mpi(const char* name, bool removes, int mode) {
  // MPI reads the name inside the call: as many may be under way as there are rooms.
  constexpr unsigned kRooms = 32;
  static char* rooms;
  static std::atomic<unsigned> next;
  if (rooms == nullptr) rooms = static_cast<char*>(memory::map(kRooms * kPathRoom));
  if (rooms == nullptr) return nullptr;
  char* room = rooms + next.fetch_add(1) % kRooms * kPathRoom;
  // "ufs:NAME": which file system, for ROMIO.
  size_t prefix = strcspn(name, ":/");
  prefix = name[prefix] == ':' && prefix > 1 ? prefix + 1 : 0;
  bool writes = true, creates = false, exclusive = false;
  if (!removes) backend->parts->file_mode(mode, &writes, &creates, &exclusive);
  if (leads && removes) {
    keep_path(AT_FDCWD, name + prefix);
    return nullptr;
  }
  // A copy that is fed reads and writes no file by MPI: it sees what its leader's part has made of it.
  if (part_place.fed && !removes) return nullptr;
  if (part_place.fed) {
    remove_path(AT_FDCWD, name + prefix, false);
    return nullptr;
  }
  const Use use = exclusive && creates ? Use::kNew : writes ? Use::kChange : Use::kLook;
  char path[kPathRoom];
  const char* other = path_for(AT_FDCWD, name + prefix, removes ? Use::kLook : use, path);
  if (struct stat status; removes && fstatat(AT_FDCWD, other, &status, 0) == 0)  // MPI removes a copy
    other = path_for(AT_FDCWD, name + prefix, Use::kChange, path);
  if (other == name + prefix) return nullptr;
  if (removes) will_be_gone(AT_FDCWD, name + prefix);
  memcpy(room, name, prefix);
  strcpy(room + prefix, other);
  return room;
}

}  // namespace resil::replicas
