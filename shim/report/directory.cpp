// SPDX-License-Identifier: Apache-2.0
//
// See directory.h. May touch the report directory and those above it, names of directories in the working directory,
// and the start times of this process and its parent. A failure is told once by the job, through presence, not once a
// rank.

#include "shim/report/directory.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "shim/base/clock.h"
#include "shim/base/hash.h"
#include "shim/base/process_state.h"
#include "shim/base/text_file.h"
#include "shim/call/runtime.h"
#include "shim/config/config.h"
#include "shim/messages.h"
#include "shim/presence/launch.h"
#include "shim/report/directory_lock.h"
#include "shim/report/log.h"
#include "shim/report/own_files.h"
#include "shim/report/report.h"
#include "shim/ring/segment.h"

namespace resil {

namespace {

constexpr int kNodeRanks = 64, kJobRanks = 1024;
constexpr int kMostPlaces = 1000;  // of one name, numbered
constexpr int kMostEntries = 20000;  // of a directory in which a spawned world looks for its job's
constexpr int64_t kClocksApart = 60;  // seconds that the clocks of two nodes may differ by
constexpr int64_t kLongAgo = 600;  // a parent that old is no launcher of this run
constexpr char kTaken[] = ".taken";  // rank 0 has come, where reports are merged

enum class Reason { kNone, kUsed, kForeign, kShared };

char problem[1200];
char base[sizeof(Runtime::directory)];  // RESIL_DIR, or the working directory
bool given, merges;
bool shares;  // RESIL_FILES: from the end of MPI_Init on the reports of a node's ranks are in one file
int32_t world;
Reason reason;  // why it is not `base` itself, or what is wrong with that
uid_t owner;  // with kForeign
DirectoryLock wanted;  // what a claim of this rank says
int64_t since;  // a claim of this launch cannot be older
DirectoryLock claim;  // the one that holds
char place[kPlaceText];
bool claimed;  // by this rank
bool settled, moves, told;
uint64_t last_offer;
char next_place[kPlaceText];
uint64_t report_device, report_inode;

bool fail(const char* path, int error) {
  snprintf(problem, sizeof(problem), "%.900s: %s", path, strerror(error));
  return false;
}

/// When that process started, in seconds since 1970; 0: not known.
int64_t started_at(int pid) {
  const uint64_t start = process_start_time(pid);
  const long rate = sysconf(_SC_CLK_TCK);
  if (start == 0 || rate <= 0) return 0;
  return clock_now(CLOCK_REALTIME).tv_sec - clock_now(CLOCK_BOOTTIME).tv_sec +
         static_cast<int64_t>(start / static_cast<uint64_t>(rate));
}

/// The program's name; of an interpreter the script's.
void program_name(char* name, size_t bytes) {
  char words[1024] = "", path[512];
  const char* chosen = words;
  const ssize_t length = readlink("/proc/self/exe", path, sizeof(path) - 1);
  path[length > 0 ? length : 0] = 0;
  const char* slash = strrchr(path, '/');
  const char* program = slash != nullptr ? slash + 1 : path;
  const ssize_t got = read_text_file("/proc/self/cmdline", words, sizeof(words) - 1);
  words[got > 0 ? got : 0] = words[got > 0 ? got + 1 : 1] = 0;
  const char* second = words + strlen(words) + 1;
  const bool interprets =
      strncmp(program, "python", 6) == 0 || strncmp(program, "perl", 4) == 0 || strcmp(program, "julia") == 0;
  chosen = interprets && second < words + got && second[0] != 0 && second[0] != '-' ? second : program;
  slash = strrchr(chosen, '/');
  directory_lock_text(name, bytes, slash != nullptr ? slash + 1 : chosen);
}

/// resil-PROGRAM-YYYYMMDDTHHMMZ-JOB.LAUNCH. All ranks of a node find the same, those of others nearly always.
void name_place(const LaunchIdentity& identity, int64_t started, char (&name)[kPlaceText - 8]) {
  char id[160];
  tm utc = {};
  const time_t seconds = static_cast<time_t>(started);
  directory_name(identity, id, sizeof(id));
  gmtime_r(&seconds, &utc);
  snprintf(name, sizeof(name), "resil-%.24s-%04d%02d%02dT%02d%02dZ-%.56s", wanted.program, utc.tm_year + 1900,
           utc.tm_mon + 1, utc.tm_mday, utc.tm_hour, utc.tm_min, id + strlen("resil-"));
}

/// What this rank would claim a directory with, and since when its launch exists. Returns the start of the launch.
int64_t describe(const LaunchIdentity& identity) {
  const char* requeued = getenv("SLURM_RESTART_COUNT");
  char text[256];
  const int64_t own = started_at(runtime.pid), parent = identity.singleton ? own : started_at(getppid());
  const int64_t now = clock_now(CLOCK_REALTIME).tv_sec;
  wanted = {};
  wanted.id = launch_nonce();
  wanted.time = static_cast<int64_t>(realtime_ns() / 1000000);
  snprintf(text, sizeof(text), "%s.%s.%s", identity.job, identity.launch, requeued != nullptr ? requeued : "");
  directory_lock_text(wanted.name, sizeof(wanted.name), text);
  // A name that is made of a process id holds for one node and one process.
  if (identity.singleton || !identity.agreed) {
    const int named = identity.singleton ? runtime.pid : getppid();
    snprintf(text, sizeof(text), "%.63s:%llu:%llu", runtime.host, static_cast<unsigned long long>(pid_namespace()),
             static_cast<unsigned long long>(process_start_time(named)));
    directory_lock_text(wanted.origin, sizeof(wanted.origin), text);
  }
  program_name(wanted.program, sizeof(wanted.program));
  const int64_t launched = parent != 0 && parent <= own ? parent : own != 0 ? own : now;
  since = launched - kClocksApart;
  return own - launched > kLongAgo ? own : launched;
}

bool same_launch(const DirectoryLock& other) {
  if (strcmp(other.name, wanted.name) != 0) return false;
  if (world == 0) return strcmp(other.origin, wanted.origin) == 0 && other.time / 1000 >= since;
  // Spawned by that launch: its start is not this one's, but if it has a process id for a name, the node is the same.
  char here[160], text[160];
  snprintf(text, sizeof(text), "%.63s:%llu:", runtime.host, static_cast<unsigned long long>(pid_namespace()));
  directory_lock_text(here, sizeof(here), text);
  return other.origin[0] == 0 || strncmp(other.origin, here, strlen(here)) == 0;
}

/// Reports without a claim: an older version's, or copied.
bool holds_reports(int at) {
  const int copy = own_directory_open_at(at, ".");
  DIR* folder = copy >= 0 ? fdopendir(copy) : nullptr;
  if (folder == nullptr) {
    if (copy >= 0) close(copy);
    return false;
  }
  bool found = false;
  for (int i = 0; i < kMostEntries && !found; ++i) {
    const dirent* entry = readdir(folder);
    if (entry == nullptr) break;
    const char *name = entry->d_name, *dot = strrchr(name, '.');
    found = dot != nullptr &&
            ((strncmp(name, "rank-", 5) == 0 && (strcmp(dot, ".json") == 0 || strcmp(dot, ".ring") == 0)) ||
             (strncmp(name, "node-", 5) == 0 && strcmp(dot, ".jsonl") == 0) ||
             (strncmp(name, "hang-", 5) == 0 && strcmp(dot, ".json") == 0));
  }
  closedir(folder);
  return found;
}

char marker[40];  // this rank's report before MPI_Init, named by what the launcher says

void rank_file(char (&name)[40]) {
  snprintf(name, sizeof(name), "rank-%05d.json", runtime.rank >= 0 ? runtime.rank : runtime.pid);
}

/// Each rank comes once a launch: where its file is already, another launch of the same name has been. The file is a
/// report from the first moment on: readers never meet one without content. 0 or errno.
int take_rank(int at) {
  char name[40];
  rank_file(name);
  if (merges && runtime.rank != 0) return 0;
  if (shares && !merges && runtime.rank == 0) {
    const int taken = own_file_create_at(at, kTaken, 0666);  // the file below will be gone when the rank has come far
    if (taken < 0) return errno;
    close(taken);
  }
  OwnFile file;
  if (!own_file_begin_at(&file, at, merges ? kTaken : name, 0666)) return errno;
  if (!merges) {
    char text[256];
    const int length =
        snprintf(text, sizeof(text),
                 "{\"schema_version\": %d, \"rank\": %d, \"pid\": %d, \"launch\": \"%s\", \"outcome\": \"running\"}\n",
                 kReportSchema, runtime.rank, runtime.pid, runtime.launch_key);
    const ssize_t written = write(file.fd, text, static_cast<size_t>(length));
    if (written != length) {
      const int error = written < 0 ? errno : ENOSPC;
      own_file_drop(&file);
      return error;
    }
  }
  if (!own_file_commit_new(&file)) return errno;
  if (!merges) {
    strcpy(marker, name);
    directory_wrote(file.device, file.inode);
  }
  return 0;
}

/// This rank's directory in the claimed one: that itself, or world-N. 0 or errno.
int enter_place(int at, const char* path) {
  char full[sizeof(runtime.directory)];
  int inner = at, error = 0;
  snprintf(full, sizeof(full), "%s", path);
  if (world != 0) {
    snprintf(full, sizeof(full), "%s/world-%d", path, world);
    if (!own_directory_make(full) || (inner = own_directory_open(full, false)) < 0) return errno;
  }
  error = take_rank(inner);
  if (error == 0) {
    strcpy(runtime.directory, full);
    own_directory_expect(full, inner, !own_directory_path_safe(inner));
  }
  if (inner != at) close(inner);
  return error;
}

void path_of(const char* name, char (&path)[sizeof(runtime.directory)]) {
  snprintf(path, sizeof(path), "%s%s%s", base, name[0] != 0 ? "/" : "", name);
}

enum class Try { kOurs, kUsed, kFailed };  // kFailed: errno

Try try_claimed(int at, const char* path) {
  for (int tries = 0; tries < 4; ++tries) {
    DirectoryLock found;
    LockState state = directory_lock_read(at, &found);
    if (state == LockState::kNone && holds_reports(at) && (state = directory_lock_read(at, &found)) == LockState::kNone)
      return Try::kUsed;
    if (state == LockState::kOther || (state == LockState::kThere && !same_launch(found))) return Try::kUsed;
    claimed = false;
    if (state == LockState::kNone) {
      const int error = directory_lock_make(at, wanted);
      if (error == EEXIST) continue;
      if (error != 0) {
        errno = error;
        return Try::kFailed;
      }
      claimed = true;
      found = wanted;
    }
    const int error = enter_place(at, path);
    if (error == EEXIST) return Try::kUsed;
    if (error != 0 && claimed) directory_lock_remove(at);
    claim = found;
    errno = error;
    return error == 0 ? Try::kOurs : Try::kFailed;
  }
  return Try::kUsed;
}

Try try_place(const char* name) {
  char path[sizeof(runtime.directory)];
  struct stat status;
  path_of(name, path);
  if (!own_directory_make(path)) return Try::kFailed;
  const int at = own_directory_open(path, name[0] == 0);
  if (at < 0) return name[0] != 0 && (errno == ENOTDIR || errno == ELOOP) ? Try::kUsed : Try::kFailed;
  Try result = Try::kFailed;
  if (faccessat(at, ".", W_OK | X_OK, 0) == 0 && fstat(at, &status) == 0) {
    const DirectoryTrust trust = own_directory_trust(at, status);
    if (trust == DirectoryTrust::kForeign) {
      result = Try::kUsed;
      if (name[0] == 0) {
        reason = Reason::kForeign;
        owner = status.st_uid;
      }
    } else {
      if (trust == DirectoryTrust::kShared && reason == Reason::kNone) reason = Reason::kShared;
      result = try_claimed(at, path);
      if (result == Try::kUsed && reason != Reason::kForeign) reason = Reason::kUsed;
    }
  }
  const int error = errno;
  close(at);
  errno = error;
  return result;
}

/// A spawned world belongs into the directory of its job: the newest one here that this launch has claimed.
bool find_job(char (&found)[kPlaceText]) {
  DirectoryLock newest = {}, other;
  bool any = false;
  int at = own_directory_open(base, true);
  if (at < 0) return false;
  if (given && directory_lock_read(at, &other) == LockState::kThere && same_launch(other)) {
    newest = other;
    found[0] = 0;
    any = true;
  }
  DIR* folder = fdopendir(at);
  for (int i = 0; folder != nullptr && i < kMostEntries; ++i) {
    const dirent* entry = readdir(folder);
    if (entry == nullptr) break;
    if (strncmp(entry->d_name, "resil-", 6) != 0 || strlen(entry->d_name) >= kPlaceText) continue;
    const int inner = own_directory_open_at(dirfd(folder), entry->d_name);
    if (inner < 0) continue;
    if (directory_lock_read(inner, &other) == LockState::kThere && same_launch(other) &&
        (!any || other.time > newest.time)) {
      newest = other;
      strcpy(found, entry->d_name);
      any = true;
    }
    close(inner);
  }
  if (folder != nullptr) closedir(folder);
  else close(at);
  return any;
}

bool choose(const char* name) {
  char numbered[kPlaceText];
  Try result = Try::kUsed;
  if (world != 0 && find_job(numbered)) {
    strcpy(place, numbered);
    result = try_place(place);
  }
  if (result == Try::kUsed && given) result = try_place(strcpy(place, ""));
  for (int i = 1; result == Try::kUsed && i <= kMostPlaces; ++i) {
    snprintf(place, sizeof(place), i == 1 ? "%s" : "%s-%d", name, i);
    result = try_place(place);
  }
  if (result == Try::kOurs) return true;
  char path[sizeof(runtime.directory)];
  const int error = result == Try::kUsed ? EEXIST : errno;
  path_of(place, path);
  runtime.directory[0] = 0;
  return fail(path, error);
}

/// Removes what this rank has written as its report so far; another launch's file of that name stays.
void remove_marker(int at) {
  struct stat status;
  if (marker[0] != 0 && fstatat(at, marker, &status, AT_SYMLINK_NOFOLLOW) == 0 && status.st_dev == report_device &&
      status.st_ino == report_inode)
    unlinkat(at, marker, 0);
  marker[0] = 0;
}

/// Takes this rank's files, and what it alone needed, out of `directory`.
void leave(const char* directory, const char* to, bool removes_lock) {
  char name[kNodeFileText];
  const int at = own_directory_open(directory, true), next = own_directory_open(to, true);
  if (at >= 0) {
    remove_marker(at);
    if (merges && removes_lock) {
      directory_node_file(name);
      unlinkat(at, name, 0);
    }
    if ((merges && removes_lock) || (shares && runtime.rank == 0)) unlinkat(at, kTaken, 0);
    for (uint32_t i = 0; next >= 0 && i < runtime.header->dumps; ++i) {
      snprintf(name, sizeof(name), "dump-%05d-%u.txt", runtime.rank, i);
      renameat(at, name, next, name);
    }
    if (removes_lock) directory_lock_remove(at);
    rmdir(directory);  // the last one succeeds
    close(at);
  }
  if (next >= 0) close(next);
}

void say_where() {
  if (config_is_site("RESIL_DIR") && (reason == Reason::kUsed || reason == Reason::kForeign)) return;  // as it is meant
  char path[sizeof(runtime.directory)];
  path_of("", path);
  if (reason == Reason::kUsed) log_format(messages::core::directory_used, path, runtime.directory);
  else if (reason == Reason::kForeign) log_format(messages::core::directory_foreign, path, owner, runtime.directory);
  else if (reason == Reason::kShared) log_format(messages::core::directory_shared, runtime.directory);
}

}  // namespace

void directory_prepare(const LaunchIdentity& identity) {
  char name[kPlaceText - 8];
  given = !config_is_default("RESIL_DIR");
  world = identity.world;
  merges = identity.local_size > kNodeRanks || identity.size > kJobRanks;
  shares = !merges && !config_has("RESIL_FILES", "all");
  const char* directory = given ? config_text("RESIL_DIR") : "";
  char cwd[sizeof(base)] = "";
  if (directory[0] != '/' && getcwd(cwd, sizeof(cwd)) == nullptr) {
    fail("the working directory", errno);
    return;
  }
  // With the names that follow: this one's, world-N, a file's.
  if (strlen(cwd) + strlen(directory) + 1 + kPlaceText + 64 >= sizeof(base)) {
    fail("RESIL_DIR", ENAMETOOLONG);
    return;
  }
  snprintf(base, sizeof(base), "%s%s%s", cwd, directory[0] == '/' || directory[0] == 0 ? "" : "/", directory);
  for (size_t length = strlen(base); length > 1 && base[length - 1] == '/'; --length) base[length - 1] = 0;
  const int64_t started = describe(identity);
  name_place(identity, started, name);
  choose(name);
}

uint64_t directory_lock_id() { return runtime.directory[0] != 0 ? claim.id : 0; }
const char* directory_place() { return place; }

void directory_offer(uint64_t id, const char* name) {
  if (settled || id == 0 || runtime.directory[0] == 0) return;
  if (id == claim.id && strcmp(name, place) == 0) {
    settled = true;
    return;
  }
  if (id == last_offer || strlen(name) >= sizeof(next_place) || strchr(name, '/') != nullptr ||
      (name[0] == 0 && !given))
    return;
  last_offer = id;
  char path[sizeof(runtime.directory)];
  path_of(name, path);
  const int at = own_directory_open(path, name[0] == 0);
  DirectoryLock found;
  if (at < 0) return;
  if (directory_lock_read(at, &found) == LockState::kThere && found.id == id) {
    settled = moves = true;
    wanted = found;
    strcpy(next_place, name);
  }
  close(at);
}

void directory_settle() {
  if (runtime.directory[0] == 0 || told) return;
  told = true;
  if (moves) {
    char path[sizeof(runtime.directory)], from[sizeof(runtime.directory)];
    snprintf(from, sizeof(from), "%s", runtime.directory);
    path_of(next_place, path);
    if (world != 0) snprintf(path + strlen(path), sizeof(path) - strlen(path), "/world-%d", world);
    const int at = own_directory_make(path) ? own_directory_open(path, world == 0 && next_place[0] == 0) : -1;
    if (at >= 0) {
      strcpy(runtime.directory, path);
      strcpy(place, next_place);
      strncpy(runtime.header->directory, path, sizeof(runtime.header->directory) - 1);
      own_directory_expect(path, at, !own_directory_path_safe(at));
      close(at);
      leave(from, path, claimed && world == 0);
      claim = wanted;
    }
  }
  char name[40];
  rank_file(name);
  if (strcmp(name, marker) != 0)
    if (const int at = marker[0] != 0 ? own_directory_to_write(runtime.directory) : -1; at >= 0) {
      remove_marker(at);
      close(at);
    }
  if (runtime.rank <= 0 && world == 0) say_where();
  // The rank whose number is the launch key completes the claim.
  char own[kNonceText];
  launch_text(launch_nonce(), own);
  if (!runtime.launch_agreed || strcmp(own, runtime.launch_key) != 0) return;
  const int at = own_directory_to_write(runtime.directory);
  strcpy(claim.launch, runtime.launch_key);
  if (at >= 0) {
    directory_lock_replace(at, claim);
    close(at);
  }
}

void directory_wrote(uint64_t device, uint64_t inode) {
  report_device = device;
  report_inode = inode;
}

void directory_give_up(int error) {
  if (const int at = own_directory_open(runtime.directory, true); at >= 0) {
    remove_marker(at);
    close(at);
  }
  fail(runtime.directory, error);
  runtime.directory[0] = 0;
  memset(runtime.header->directory, 0, sizeof(runtime.header->directory));
}

const char* directory_problem() { return problem; }
bool directory_merges() { return merges || (shares && told); }

void directory_merged() {
  if (!shares || marker[0] == 0) return;
  if (const int at = own_directory_to_write(runtime.directory); at >= 0) {
    remove_marker(at);
    close(at);
  }
}

void directory_node_file(char* name) {
  char boot[kBootText];
  boot_identity(boot);
  const uint64_t id = hash_combine(hash_text(boot), pid_namespace());
  snprintf(name, kNodeFileText, "node-%.60s-%08x.jsonl", runtime.host, static_cast<unsigned>(id >> 32));
}

}  // namespace resil
