// SPDX-License-Identifier: Apache-2.0
//
// Ends of ranks and of parts. See words.h.
//
// A rank that has come to MPI_Finalize is told by a file `replicas-end-RANK` in the report directory: messages may be
// late, or lost. A part in which a rank has stopped is not waited for any more.
//
// Only a rank of the leading part drops another one, and only while it waits for it. All ranks come to the same end by
// one file in the report directory, a link `replicas-verdict` that is made once: by who drops a part first (`drop`), or
// by who learns first that all ranks have come to MPI_Finalize (`finalize`). After `drop` nobody calls the real
// MPI_Finalize, which waits for all ranks; processes end in leave_together(). Where the MPI library goes on after the
// death of a rank the verdict may be `dead`: the others of that part follow it. MPI_Finalize is left out there, too:
// that of Open MPI 5.0.7 does not return in one of four such jobs.

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cstring>

#include "detectors/replicas/input.h"
#include "detectors/replicas/messages.h"
#include "detectors/replicas/paths.h"
#include "detectors/replicas/words.h"
#include "shim/abi/backend.h"
#include "shim/base/process_state.h"
#include "shim/call/parts.h"
#include "shim/call/runtime.h"
#include "shim/config/config.h"
#include "shim/report/finding.h"
#include "shim/report/found.h"
#include "shim/ring/ring_format.h"
#include "shim/ring/segment.h"
#include "shim/runtime/mailbox.h"
#include "shim/runtime/progress.h"

namespace resil::replicas {

namespace text = messages::replicas;

namespace {

constexpr int kMostParts = 3;
constexpr double kLongerThanOwn = 4;  ///< a partner may be that many times slower than this rank

// In ticks. Silence is time in which this rank has looked: not that in which it was stopped itself.
uint64_t second, pulse, silent[kMostParts], last_look, last_call, longest;
uint64_t next_file_look;
bool survives;  // this job goes on after the death of a rank
bool looking;  // inside of a look: publishing may wait, and look again
bool ended_by_death;  // the verdict
volatile int exit_status_of_program;

void path_of(char (&path)[1200], const char* name, int number = -1) {
  if (number < 0) snprintf(path, sizeof(path), "%s/%s", runtime.directory, name);
  else snprintf(path, sizeof(path), "%s/%s-%d", runtime.directory, name, number);
}

bool is_there(const char* name, int number) {
  char path[1200];
  path_of(path, name, number);
  return access(path, F_OK) == 0;
}

void make(const char* name, int number, const char* contents) {
  char path[1200];
  path_of(path, name, number);
  const int file = openat(AT_FDCWD, path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  if (file < 0) return;
  if (write(file, contents, strlen(contents)) < 0) {}
  close(file);
}

/// Who comes first decides. True: it is `verdict`.
bool decide(const char* verdict) {
  char path[1200], there[16] = "";
  path_of(path, "replicas-verdict");
  if (symlinkat(verdict, AT_FDCWD, path) == 0) return true;
  if (readlink(path, there, sizeof(there) - 1) <= 0) return strcmp(verdict, "finalize") == 0;  // no links here
  return strcmp(there, verdict) == 0;
}

/// What others have dropped.
void look_at_files() {
  for (int part = 1; part < place.parts; ++part)
    if ((parts_dropped.load() & 1u << part) == 0 && is_there("replicas-dropped", part)) parts_dropped |= 1u << part;
}

enum class Seen : uint8_t { kNothing, kInMpi, kOutside, kStopped, kGone };

/// What a rank of this node is at, by its ring. `calls`: how many it has made.
Seen look_at(const ring::Header& header, uint64_t size, uint64_t* calls) {
  *calls = 0;
  if (header.magic != ring::kMagic || header.version != ring::kVersion ||
      header.pid_namespace != runtime.header->pid_namespace)
    return Seen::kNothing;
  const uint64_t started = static_cast<uint64_t>(header.pid_start_hi) << 32 | header.pid_start_lo;
  const int state = process_state(header.pid, started);
  if (state == 0 || state == 'Z') return Seen::kGone;
  if (state == 'T' || state == 't') return Seen::kStopped;
  for (uint32_t i = 0; i < header.section_count && i < 16; ++i) {
    const ring::Section& section = header.sections[i];
    if (strncmp(section.name, "lanes", sizeof(section.name)) != 0 || section.offset > size ||
        sizeof(ring::TraceBuffer) > size - section.offset)
      continue;
    const auto& trace =
        *reinterpret_cast<const ring::TraceBuffer*>(reinterpret_cast<const char*>(&header) + section.offset);
    *calls = __atomic_load_n(&trace.calls, __ATOMIC_RELAXED) + __atomic_load_n(&trace.head, __ATOMIC_RELAXED);
    return __atomic_load_n(&trace.current, __ATOMIC_RELAXED) != 0 ? Seen::kInMpi : Seen::kOutside;
  }
  return Seen::kNothing;
}

/// Three looks within 60 ms: a rank that goes on is outside of MPI now and then, too.
Seen see(int world_rank) {
  char path[1200];
  segment_path_of(world_rank, path, sizeof(path));
  const int file = openat(AT_FDCWD, path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  struct stat status;
  if (file < 0) return Seen::kNothing;
  void* mapped = MAP_FAILED;
  if (fstat(file, &status) == 0 && status.st_size >= static_cast<off_t>(sizeof(ring::Header)))
    mapped = mmap(nullptr, static_cast<size_t>(status.st_size), PROT_READ, MAP_SHARED, file, 0);
  close(file);
  if (mapped == MAP_FAILED) return Seen::kNothing;
  const auto size = static_cast<uint64_t>(status.st_size);
  const auto& header = *static_cast<const ring::Header*>(mapped);
  uint64_t calls, calls_before;
  Seen seen = look_at(header, size, &calls_before);
  for (int again = 0; again < 2 && seen == Seen::kOutside; ++again) {
    const timespec pause = {0, 30000000};
    nanosleep(&pause, nullptr);
    seen = look_at(header, size, &calls);
    if (calls != calls_before) seen = Seen::kInMpi;
  }
  munmap(mapped, size);
  return seen;
}

void publish(int part, int dead, double seconds) {
  Finding finding;
  finding.start("part_dropped", Confidence::kVerified);
  if (dead >= 0) {
    finding.culprit(dead);
    finding.say(text::part_died, part, dead, host_of(dead));
    finding.to_do(text::part_died_to_do, dead);
    finding_publish(finding);
    return;
  }
  int named = place.partner(part), others = 0;
  constexpr const char* kWords[] = {"", "", "outside of MPI", "stopped by a signal", "ended"};
  char seen_ranks[5][100] = {};
  bool any = false;
  for (int i = 0; i < place.count_of(part); ++i) {
    const int rank = place.first_of(part) + i;
    const auto seen = static_cast<int>(see(rank));
    if (seen <= static_cast<int>(Seen::kInMpi)) continue;
    const size_t length = strlen(seen_ranks[seen]);
    snprintf(seen_ranks[seen] + length, sizeof(seen_ranks[seen]) - length, "%s%d", length != 0 ? ", " : "", rank);
    finding.culprit(rank);
    if (!any) named = rank;
    else ++others;
    any = true;
  }
  if (!any) finding.victim(named);
  const char* also = others > 0 ? " (and others)" : "";
  finding.say(text::part_dropped, part, named, also, host_of(named), seconds);
  finding.to_do(text::part_dropped_to_do, named);
  for (int seen = static_cast<int>(Seen::kOutside); seen <= static_cast<int>(Seen::kGone); ++seen)
    if (seen_ranks[seen][0] != 0) finding.add(kWords[seen], "rank %s", seen_ranks[seen]);
  finding.add("waited by", "rank %d, for what rank %d sends", runtime.rank, place.partner(part));
  finding_publish(finding);
}

void drop(int part, int dead) {
  if (!decide(dead >= 0 ? "dead" : "drop")) {
    silent[part] = 0;  // all ranks are in MPI_Finalize by now
    return;
  }
  char path[1200];
  path_of(path, "replicas-drops", part);
  const int file = openat(AT_FDCWD, path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (file < 0) return;  // another rank says so
  close(file);
  publish(part, dead, static_cast<double>(silent[part]) / static_cast<double>(second));
  found_mark();
  parts_dropped |= 1u << part;
  make("replicas-dropped", part, "");  // now the others go on, which may end the job
}

/// What MPI says of ranks that have died.
void look_for_dead() {
  int ranks[64];
  const int count = mailbox::acknowledge_dead(64, ranks);
  for (int i = 0; i < count; ++i) {
    const int part = place.part_of(ranks[i]);
    if (part != 0 && !is_dropped(part)) drop(part, ranks[i]);
  }
}

/// The rank's part has lost a rank, and the job goes on without it. A process that ended otherwise would be waited for.
void follow_the_dead() {
  if (place.part != 0) raise(SIGKILL);
}

uint64_t patience() {
  // Twice what a follower itself waits, at most, before it goes on by itself.
  const auto least = 2 * config_real("RESIL_REPLICAS_SECONDS") * static_cast<double>(second);
  const double own = kLongerThanOwn * static_cast<double>(longest);
  return static_cast<uint64_t>(least > own ? least : own);
}

}  // namespace

void dropped_begin() {
  second = static_cast<uint64_t>(runtime.header->ticks_per_second);
  last_call = ticks();
  survives = job_survives() && backend->parts->on_death != nullptr;
  if (survives) backend->parts->on_death(follow_the_dead);
  const double tenth = config_real("RESIL_REPLICAS_SECONDS") / 10;
  pulse = static_cast<uint64_t>((tenth < 1 ? tenth : 1) * static_cast<double>(second));
}

uint64_t dropped_pulse() { return pulse; }

void dropped_heard(int part) { silent[part] = 0; }

void dropped_call(uint64_t now) {
  if (now - last_call > longest) longest = now - last_call;
  last_call = now;
}

void dropped_look() {
  const uint64_t now = ticks(), passed = now - last_look;
  if (second == 0 || looking || passed < second / 50) return;
  looking = true;
  last_look = now;
  if (now > next_file_look) {
    next_file_look = now + second / 2;
    look_at_files();
    if (survives && place.part == 0) look_for_dead();
  }
  if (place.part != 0) words_progress(now);  // says something
  for (int part = 1; place.part == 0 && place.has_partner() && part < place.parts; ++part) {
    if ((parts_dropped.load(std::memory_order_relaxed) & 1u << part) != 0) continue;
    silent[part] += passed < second / 4 ? passed : second / 4;
    if (silent[part] > patience()) drop(part, -1);
  }
  looking = false;
}

bool is_dropped(int part) { return (parts_dropped.load(std::memory_order_relaxed) & 1u << part) != 0; }

bool dropped_end(Thread& thread) {
  // Who has heard, by way of others, from all ranks: a barrier in which nobody blocks.
  static uint64_t requests[2];
  static char sent, received;
  bool under_way = false, failed = false;
  int distance = 1;
  uint64_t look = ticks() + second / 2;
  bool dropped = parts_dropped.load() != 0;
  wait_until(
      thread,
      [&] {
        parts_waiting();
        if (const uint64_t now = ticks(); !dropped && now > look) {
          look = now + second / 2;
          look_at_files();
        }
        if (parts_dropped.load(std::memory_order_relaxed) != 0) dropped = true;
        if (dropped) return true;
        for (;;) {
          if (distance >= runtime.size || failed) return true;
          const int to = (runtime.rank + distance) % runtime.size;
          const int from = (runtime.rank + runtime.size - distance) % runtime.size;
          if (!under_way) {
            failed = !mailbox::receive(&received, 1, from, tags::kPartsEnd[0], &requests[0]) ||
                     !mailbox::send(&sent, 1, to, tags::kPartsEnd[0], &requests[1]);
            under_way = true;
            continue;
          }
          for (uint64_t& request : requests) {
            bool lost = false;
            if (request != 0 && mailbox::is_over(&request, &lost) && !lost) request = 0;
          }
          if (requests[0] != 0 || requests[1] != 0) return false;
          under_way = false;
          distance *= 2;
        }
      },
      kForOthers);
  if (!dropped && decide("finalize")) return true;
  look_at_files();
  ended_by_death = decide("dead");
  if (ended_by_death && is_dropped(place.part)) follow_the_dead();
  parts_without_finalize = true;
  return false;
}

namespace {

void remove_marks() {
  char path[1200];
  for (int part = 1; part < place.parts; ++part)
    for (const char* name : {"replicas-drops", "replicas-dropped"}) {
      path_of(path, name, part);
      unlink(path);
    }
  path_of(path, "replicas-left", 0);
  unlink(path);
  path_of(path, "replicas-verdict");
  unlink(path);
}

}  // namespace

void dropped_at_exit(int status) {
  exit_status_of_program = status;
  if (runtime.rank == 0 && !parts_without_finalize) remove_marks();
}

namespace {

/// What libraries of languages still hold of the program's output: they write it when they are unloaded, later.
void flush_output() {
  const auto flush_all = reinterpret_cast<int (*)(void*)>(dlsym(RTLD_DEFAULT, "fflush"));
  if (auto* flush = reinterpret_cast<void (*)(void*)>(dlsym(RTLD_DEFAULT, "_gfortran_flush_i4"))) flush(nullptr);
  auto* flush = reinterpret_cast<void (*)(void*)>(dlsym(RTLD_DEFAULT, "_ZNSo5flushEv"));
  if (void* cout = dlsym(RTLD_DEFAULT, "_ZSt4cout"); flush != nullptr && cout != nullptr) flush(cout);
  if (flush_all != nullptr) flush_all(nullptr);
}

int status_of(int rank) {
  char path[1200], number[16] = "";
  path_of(path, "replicas-gone", rank);
  const int file = openat(AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return 0;
  const ssize_t bytes = read(file, number, sizeof(number) - 1);
  close(file);
  unlink(path);
  return bytes > 0 ? atoi(number) : 0;
}

/// The last that a process does, when MPI_Finalize has been left out: launchers kill a job when a process ends that has
/// not called it. So all wait here for each other. Rank 0 ends the job then, with the program's exit status; where it
/// goes on after a death (the launcher of Open MPI 5.0 does not end after an MPI_Abort there) each process ends itself.
[[gnu::destructor]] void leave_at_end() { leave_together(); }

}  // namespace

void leave_together() {
  if (!parts_without_finalize || runtime.pid != getpid()) return;
  flush_output();
  char number[16];
  snprintf(number, sizeof(number), "%d", exit_status_of_program);
  make("replicas-gone", runtime.rank, number);
  const timespec pause = {0, 20000000};
  if (runtime.rank != 0) {
    while (!is_there("replicas-left", 0)) nanosleep(&pause, nullptr);
    status_of(runtime.rank);  // its file goes: rank 0 sees that
    return;
  }
  int status = exit_status_of_program;
  // Those that follow write nothing that anybody needs: ten seconds.
  for (int rank = 1, left = 500; rank < runtime.size && left > 0;) {
    const int part = place.part_of(rank);
    if (is_dropped(part) || is_there("replicas-gone", rank)) ++rank;
    else if (nanosleep(&pause, nullptr) == 0 && part != 0) --left;
  }
  if (ended_by_death) {
    make("replicas-left", 0, "");
    status_of(0);
    for (int rank = 1, left = 250; rank < runtime.size && left > 0;)
      if (!is_there("replicas-gone", rank)) ++rank;
      else if (nanosleep(&pause, nullptr) == 0) --left;
  }
  for (int rank = 0; rank < runtime.size; ++rank) {
    const int of_rank = status_of(rank);
    if (status == 0 && rank < place.members) status = of_rank;
  }
  for (int part = 0; part < place.parts; ++part)
    if (!is_dropped(part)) trees_end(part);
  input_end();
  remove_marks();
  if (!ended_by_death) backend->messages->abort(status);
}

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
