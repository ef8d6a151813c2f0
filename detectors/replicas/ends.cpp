// SPDX-License-Identifier: Apache-2.0
//
// Ends of ranks and of parts. See words.h.
//
// Only a rank of the leading part drops another one, and only while it waits for it; the leading one is dropped by a
// rank that waits for it, once some rank of it does not come to where its partner has long been, and only where another
// part can go on in its place. All ranks come to the same end by one file in the report directory, a link
// `replicas-verdict` that is made once: by who drops a part first (`drop`), or by who learns first that all ranks have
// come to MPI_Finalize (`finalize`). After `drop` nobody calls the real MPI_Finalize, which waits for all ranks;
// processes end in leave_together(). Where the MPI library goes on after the death of a rank the verdict may be `dead`:
// the others of that part follow it. MPI_Finalize is left out there, too: that of Open MPI 5.0.7 does not return in one
// of four such jobs.

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
#include "detectors/replicas/output.h"
#include "detectors/replicas/paths.h"
#include "detectors/replicas/words.h"
#include "shim/abi/backend.h"
#include "shim/base/process_state.h"
#include "shim/call/parts.h"
#include "shim/call/runtime.h"
#include "shim/config/config.h"
#include "shim/report/finding.h"
#include "shim/report/found.h"
#include "shim/report/log.h"
#include "shim/ring/ring_format.h"
#include "shim/ring/segment.h"
#include "shim/runtime/mailbox.h"
#include "shim/runtime/memory.h"
#include "shim/runtime/part_stream.h"
#include "shim/runtime/progress.h"

namespace resil::replicas {

namespace text = messages::replicas;

namespace {

constexpr int kMostParts = 3;
constexpr double kLongerThanOwn = 4;  ///< a partner may be that many times slower than this rank

// In ticks. Silence is time in which this rank has looked: not that in which it was stopped itself.
uint64_t second, pulse, silent[kMostParts], last_look, last_call, longest;
uint64_t last_left, longest_outside;  // of MPI, waits of resil's not counted
uint64_t next_file_look;
bool survives;  // this job goes on after the death of a rank
bool looking;  // inside of a look: publishing may wait, and look again
bool ended_by_death;  // the verdict
bool replaceable;  // another part may come to lead
bool has_led;  // this one does, or did
// A rank that waits for the leading part: for how long, since its last call; what it has seen of the others.
uint64_t waited, next_evaluation, limit_of_wait;
bool asked, healthy, refused;  // healthy: all of them are, as far as this rank has seen
bool early;  // its own partner lives, and is not past the place where this rank waits for what it says
struct Pair {
  At last, ours;
  uint64_t beat_at, place_at;
};
Pair* pairs;
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

bool is_verdict(const char* verdict) {
  char path[1200], there[16] = "";
  path_of(path, "replicas-verdict");
  if (readlink(path, there, sizeof(there) - 1) <= 0) return strcmp(verdict, "finalize") == 0;  // no links here
  return strcmp(there, verdict) == 0;
}

bool is_decided() {
  char path[1200], there[16] = "";
  path_of(path, "replicas-verdict");
  return readlink(path, there, sizeof(there) - 1) > 0;
}

/// Who comes first decides whether MPI_Finalize is called. True: it is as `verdict` has it.
bool decide(const char* verdict) {
  char path[1200];
  path_of(path, "replicas-verdict");
  if (symlinkat(verdict, AT_FDCWD, path) == 0) return true;
  return is_verdict("finalize") == (strcmp(verdict, "finalize") == 0);
}

bool is_there_plain(const char* name) {
  char path[1200];
  path_of(path, name);
  return access(path, F_OK) == 0;
}

/// True: this rank is the first to make it.
bool mark_once(const char* name) {
  char path[1200];
  path_of(path, name);
  const int file = openat(AT_FDCWD, path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (file >= 0) close(file);
  return file >= 0;
}

/// This part leads, but standard output cannot go on where it was.
[[noreturn]] void stop_without_output(const char* why) {
  log_format(text::output_lost, why);
  add_note_format(text::output_lost, why);
  stop_job(90);
}

/// What others have dropped.
void look_at_files() {
  for (int part = 0; part < place.parts; ++part)
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

/// `lags`: a rank that does not come to where its partner is; -1: none is known.
void publish(int part, int dead, int lags, double seconds) {
  Finding finding;
  finding.start("part_dropped", Confidence::kVerified);
  uint32_t left = ~parts_dropped.load() & ~(1u << part);
  const int leads = __builtin_ctz(left);
  if (part < leads) finding.add("leads from here on", "part %d", leads);
  if (dead >= 0) {
    finding.culprit(dead);
    finding.say(text::part_died, part, dead, host_of(dead));
    finding.to_do(text::part_died_to_do, dead);
    finding_publish(finding);
    return;
  }
  int named = lags >= 0 ? lags : place.partner(part), others = 0;
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

/// Why no other part may take the place of the leading one. Null: one may.
const char* irreplaceable() {
  if (!replaceable) return "not all that MPI chooses and clocks say is followed, or standard output is not";
  if ((~parts_dropped.load() & ((1u << place.parts) - 1) & ~(1u << part_that_leads())) == 0) return "none is left";
  if (may_anything_differ()) return "something was asked that may differ from part to part";
  return is_there_plain("replicas-differ") ? "parts have diverged" : nullptr;
}

void drop(int part, int dead, int lags = -1) {
  if (part == part_that_leads()) {
    const char* why = irreplaceable();
    if (why != nullptr && !refused && mark_once("replicas-not-replaced")) {
      log_format(text::not_replaced, part, dead >= 0 ? dead : lags, why);
      add_note_format(text::not_replaced, part, dead >= 0 ? dead : lags, why);
    }
    refused = why != nullptr;
    if (refused) return;
  }
  if (!decide(dead >= 0 ? "dead" : "drop")) {
    silent[part] = 0;  // all ranks are in MPI_Finalize by now
    return;
  }
  if (char name[40]; snprintf(name, sizeof(name), "replicas-drops-%d", part), !mark_once(name))
    return;  // another says so
  publish(part, dead, lags, static_cast<double>(silent[part]) / static_cast<double>(second));
  found_mark();
  parts_dropped |= 1u << part;
  make("replicas-dropped", part, "");  // now the others go on, which may end the job
}

/// What MPI says of ranks that have died.
void look_for_dead() {
  int ranks[64];
  const int count = mailbox::acknowledge_dead(64, ranks);
  for (int i = 0; i < count; ++i) {
    const int part = place.part_of(ranks[i]), lead = part_that_leads();
    // The leading part says so of the others, and the others of it.
    if (part != place.part && !is_dropped(part) && (part == lead || place.part == lead)) drop(part, ranks[i]);
  }
}

void nap() {
  const timespec pause = {0, 20000000};
  nanosleep(&pause, nullptr);
}

/// The rank's part has lost a rank, and the job goes on without it. A process that ended otherwise would be waited for.
void follow_the_dead() {
  if (place.part == part_that_leads() && !is_dropped(place.part))
    for (; !is_there("replicas-dropped", place.part); nap())
      if (irreplaceable() != nullptr) return;  // the job ends
  raise(SIGKILL);
}

/// Another part leads in the place of this one, whose files and output are its own from now on: nothing may be written
/// here any more. A process that ended would end the job.
void look_for_own_end() {
  if (!has_led || !is_dropped(place.part)) [[likely]]
    return;
  if (survives) raise(SIGKILL);
  for (;;) nap();
}

}  // namespace

void dropped_look_for_own() {
  if (has_led && (is_there("replicas-dropped", place.part) || output_is_void())) parts_dropped |= 1u << place.part;
  look_for_own_end();
}

namespace {

uint64_t patience(double longest_call) {
  // Twice what a follower itself waits, at most, before it goes on by itself.
  const auto least = 2 * config_real("RESIL_REPLICAS_SECONDS") * static_cast<double>(second);
  const double own = kLongerThanOwn * longest_call;
  return static_cast<uint64_t>(least > own ? least : own);
}

/// This rank waits for the leading part. Is some rank there not where its partner in this part has been for too long,
/// or does it say nothing, as one that is stopped?
void look_at_lead(uint64_t now, uint64_t passed) {
  const auto whole = static_cast<uint64_t>(config_real("RESIL_REPLICAS_SECONDS") * static_cast<double>(second));
  static int lead_before = 0;
  const int lead = part_that_leads();
  if (lead != lead_before) early = false;
  waited = lead == lead_before ? waited + (passed < second / 4 ? passed : second / 4) : 0;
  for (int i = 0; lead != lead_before && pairs != nullptr && i < place.members; ++i)
    pairs[i].beat_at = pairs[i].place_at = now;
  lead_before = lead;
  if (!replaceable || refused || waited < whole / 2 || now < next_evaluation) return;
  next_evaluation = now + whole / 10;
  if (!asked) make("replicas-ask", 0, "");
  asked = true;
  part_streams_are_short.store(true, std::memory_order_relaxed);
  if (pairs == nullptr) {
    pairs = memory::map_array<Pair>(static_cast<size_t>(place.members));
    if (pairs == nullptr) return;
    for (int i = 0; i < place.members; ++i) pairs[i].beat_at = pairs[i].place_at = now;
  }
  bool all = waited > whole;
  double slowest = 0;
  for (int i = 0; i < place.members; ++i) {
    Pair& pair = pairs[i];
    if (!output_at(place.first_of(place.part) + i, &pair.ours)) pair.ours = {};
    if (pair.ours.longest > slowest) slowest = pair.ours.longest;
  }
  const uint64_t limit = limit_of_wait = patience(slowest * static_cast<double>(second));
  for (int i = 0; i < place.members; ++i) {
    At theirs = {};
    Pair& pair = pairs[i];
    const At& ours = pair.ours;
    if (ours.beat == 0) all = false;  // it says nothing yet
    if (ours.beat == 0) continue;
    if (!output_at(place.first_of(lead) + i, &theirs)) theirs = {};
    if (theirs.beat != pair.last.beat) pair.beat_at = now;
    // Not there yet; or it has gone another way, and has not asked for a clock that its partner asks for.
    const bool lags = theirs.place < ours.place || ((ours.place & 1) != 0 && theirs.place > ours.place);
    if (theirs.place != pair.last.place || !lags) pair.place_at = now;
    pair.last = theirs;
    if (i == place.rank) {  // a rank that waits for a choice has not counted that call yet
      const uint64_t here = ours.place + ((ours.place & 1) == 0 ? 2 : 0);
      early = theirs.beat != 0 && theirs.place <= here && now - pair.beat_at < whole / 4;
    }
    all = all && !lags && theirs.beat != 0 && now - pair.beat_at < whole / 4;
    if (now - pair.place_at <= limit && now - pair.beat_at <= limit) continue;
    silent[lead] = limit;
    drop(lead, -1, place.first_of(lead) + i);
    return;
  }
  healthy = all;
}

}  // namespace

void dropped_begin(bool followed) {
  replaceable = followed;
  has_led = place.part == 0;
  second = static_cast<uint64_t>(runtime.header->ticks_per_second);
  last_call = last_left = ticks();
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
  if (const uint64_t outside = now - last_left; outside > longest_outside && outside - longest_outside > waited) {
    longest_outside = outside - waited;
    output_longest(static_cast<double>(longest_outside) / static_cast<double>(second));
  }
  waited = 0;
  healthy = early = false;
  look_for_own_end();
  if (const char* why = output_fails(); why != nullptr && part_that_leads() == place.part) [[unlikely]]
    stop_without_output(why);
}

void dropped_left(uint64_t now) {
  last_left = now;
  waited = 0;
}

// Until it is known that nobody lags; somebody who does is dropped by the end of `limit_of_wait`. What the partner has
// not come to, or is waiting in as well, as a master for its workers, it may say in an hour.
bool dropped_hopeful() {
  if (!replaceable || refused) return false;
  return early || (!healthy && (asked ? waited < 3 * limit_of_wait : true));
}

void dropped_look() {
  const uint64_t now = ticks(), passed = now - last_look;
  if (second == 0 || looking || passed < second / 50) return;
  looking = true;
  last_look = now;
  if (now > next_file_look) {
    next_file_look = now + second / 2;
    look_at_files();
    if (survives) look_for_dead();
  }
  look_for_own_end();
  const bool leads = place.part == part_that_leads();
  has_led = has_led || leads;
  if (!leads) {
    words_progress(now);  // says something
    look_at_lead(now, passed);
  }
  for (int part = 0; leads && place.has_partner() && part < place.parts; ++part) {
    if (part == place.part || (parts_dropped.load(std::memory_order_relaxed) & 1u << part) != 0) continue;
    silent[part] += passed < second / 4 ? passed : second / 4;
    if (silent[part] > patience(static_cast<double>(longest))) drop(part, -1);
  }
  if (const char* why = output_fails(); why != nullptr && leads) stop_without_output(why);
  looking = false;
}

bool is_dropped_by_now() { return is_there("replicas-dropped", place.part); }

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
  ended_by_death = is_verdict("dead");
  if (ended_by_death && is_dropped(place.part)) follow_the_dead();
  look_for_own_end();
  parts_without_finalize = true;
  return false;
}

namespace {

void remove_marks() {
  char path[1200];
  for (int part = 0; part < place.parts; ++part)
    for (const char* name : {"replicas-drops", "replicas-dropped"}) {
      path_of(path, name, part);
      unlink(path);
    }
  for (const char* name : {"replicas-left", "replicas-ask"}) {
    path_of(path, name, 0);
    unlink(path);
  }
  path_of(path, "replicas-verdict");
  unlink(path);
}

}  // namespace

void dropped_at_exit(int status) {
  exit_status_of_program = status;
  if (runtime.rank == 0 && !parts_without_finalize) remove_marks();
}

namespace {

int status_of(int rank) {
  char path[1200], number[16] = "";
  path_of(path, "replicas-gone", rank);
  const int file = openat(AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return 0;
  const ssize_t bytes = read(file, number, sizeof(number) - 1);
  close(file);
  return bytes > 0 ? atoi(number) : 0;
}

void unlink_status(int rank) {
  char path[1200];
  path_of(path, "replicas-gone", rank);
  unlink(path);
}

/// The last that a process does, when MPI_Finalize has been left out: launchers kill a job when a process ends that has
/// not called it. So all wait here for each other. The first rank of the leading part ends the job then, with the
/// program's exit status; where it goes on after a death (the launcher of Open MPI 5.0 does not end after an MPI_Abort
/// there) each process ends itself.
[[gnu::destructor]] void leave_at_end() { leave_together(); }

}  // namespace

void leave_together() {
  if (!parts_without_finalize || runtime.pid != getpid()) return;
  flush_output();
  const int lead = part_that_leads(), first = place.first_of(lead);
  const char* lost = place.part == lead ? output_fails() : nullptr;
  if (lost != nullptr) {
    log_format(text::output_lost, lost);
    exit_status_of_program = 90;
    mark_once("replicas-output-lost");
  }
  char number[16];
  snprintf(number, sizeof(number), "%d", exit_status_of_program);
  make("replicas-gone", runtime.rank, number);
  const timespec pause = {0, 20000000};
  if (runtime.rank != first) {
    // A part that has been dropped is not waited for, and may find nobody any more.
    while (!is_there("replicas-left", 0) && !(ended_by_death && (is_dropped(place.part) || !is_decided())))
      nanosleep(&pause, nullptr);
    unlink_status(runtime.rank);  // its file goes: the first rank sees that
    if (exit_status_of_program != 0)
      _exit(0);  // the launcher would end the others: the first rank tells it, as the last
    return;
  }
  int status = exit_status_of_program;
  // Those that follow write nothing that anybody needs: ten seconds.
  for (int rank = 0, left = 500; rank < runtime.size && left > 0;) {
    const int part = place.part_of(rank);
    if (is_dropped(part) || is_there("replicas-gone", rank)) ++rank;
    else if (nanosleep(&pause, nullptr) == 0 && part != lead) --left;
  }
  const bool whole = !is_there_plain("replicas-output-lost");
  const bool in_place = lead == 0 || (whole && paths_put_in_place(runtime.directory, lead));
  if (!in_place) {
    log_format(text::not_in_place, lead);
    add_note_format(text::not_in_place, lead);
  }
  for (int rank = 0; rank < runtime.size; ++rank) {
    if (status == 0 && place.part_of(rank) == lead) status = status_of(rank);
    output_forget(rank);
    goodbye_forget(rank);
  }
  if (ended_by_death) {
    make("replicas-left", 0, "");
    unlink_status(first);
    for (int rank = 0, left = 250; rank < runtime.size && left > 0;)
      if (!is_there("replicas-gone", rank)) ++rank;
      else if (nanosleep(&pause, nullptr) == 0) --left;
  }
  for (int rank = 0; rank < runtime.size; ++rank) unlink_status(rank);
  for (int part = 0; part < place.parts; ++part)
    if (part == 0 || (!is_dropped(part) && (part != lead || in_place))) trees_end(part);
  input_end();
  for (int rank = 0; rank < runtime.size; ++rank)  // once more: of a part that has been dropped, one may come late
    if (is_dropped(place.part_of(rank))) goodbye_forget(rank);
  remove_marks();
  if (!ended_by_death) backend->messages->abort(status);
  if (status != exit_status_of_program || lost != nullptr) _exit(status);
}

}  // namespace resil::replicas
