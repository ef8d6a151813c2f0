// SPDX-License-Identifier: Apache-2.0
//
// What clocks say, recorded and given back: MPI_Wtime and MPI_Wtick by default, with RESIL_RECORD_TIME=all the
// program's own clocks of libc, too (by the stubs' slots, source_slots.cpp). A value belongs to the place between two
// calls of its thread. Where the recording has none (the program asks more often there, or there were too many), time
// goes on from the last value that was given.
//
// Context: any thread, and signal handlers for clocks of libc: what interrupts this file, or a call, gets the truth.
// No lock, no allocation; reading ahead may read a block of the recording.

#include <sys/time.h>
#include <time.h>

#include <cstring>

#include "checksum/record/sources.h"
#include "checksum/record/state.h"
#include "shim/base/bit_cast.h"
#include "shim/call/thread.h"

namespace resil::record {

namespace {

bool is_time(const Item& item) {
  return item.kind == ItemKind::kTime || (item.kind == ItemKind::kLogged && item.logged == LoggedKind::kTime);
}

/// Of MPI's two, by the function's name.
uint8_t clock_named(const char* name) { return strstr(name, "tick") != nullptr ? kClockWtick : kClockWtime; }

/// In format 1 it is a logged value of that name.
uint8_t clock_of(const Item& item) { return item.kind == ItemKind::kTime ? item.clock : clock_named(item.text); }

/// The recorded value of that clock that comes next, if one stands before the next call.
bool next_time(PerThread& t, uint8_t clock, uint64_t* bits) {
  if (t.over || t.depth != 0 || t.run_left != 0) return false;
  const Item* item;
  while (t.cursor->peek(&item) == Reading::kItem && is_time(*item)) {
    const uint8_t of = clock_of(*item);
    if (of == clock) {
      *bits = item->bits;
      t.cursor->skip();
      return true;
    }
    if (of <= kClockWtick || mode.clocks == Clocks::kAll) return false;  // it will be asked for
    t.cursor->skip();
  }
  return false;
}

/// From the last value that was given, as much later as it is.
uint64_t carried_on(const LastTime& last, uint8_t clock, uint64_t now) {
  if (!last.given || clock == kClockWtick) return now;
  if (clock != kClockWtime) return last.value + (now - last.real);
  return bit_cast<uint64_t>(bit_cast<double>(last.value) + (bit_cast<double>(now) - bit_cast<double>(last.real)));
}

/// What the program is told instead of `now`. `from_recording`: it is a recorded value (verify).
uint64_t told(PerThread& t, uint8_t clock, uint64_t now, bool* from_recording) {
  *from_recording = false;
  if (t.reads_clock) return now;
  t.reads_clock = true;
  if (mode.recording) {
    if (t.depth == 0) t.stream->time(clock, now);
  } else {
    LastTime& last = t.last_times[clock];
    uint64_t bits;
    if (next_time(t, clock, &bits)) {
      *from_recording = true;
      last = {bits, now, true};
      now = bits;
    } else {
      now = carried_on(last, clock, now);
    }
  }
  t.reads_clock = false;
  return now;
}

/// A clock of libc. `row`: of the table of sources, which counts what the program got and no recording has.
uint64_t told_by_libc(const char* name, uint8_t clock, uint64_t now, uint64_t site) {
  static_assert(kClocks > kClockGettime + 12);
  Thread* thread = current_thread;
  bool from_recording = false;
  if (thread != nullptr && thread->depth == 0 && !thread->disabled && recording_is_open()) {
    if (PerThread* t = per_thread(*thread)) now = told(*t, clock, now, &from_recording);
  }
  if (from_recording) counts.libc_times.fetch_add(1, std::memory_order_relaxed);
  else source_read(name, site);
  return now;
}

template <class Function>
Function* real_clock(const char* name) {
  return reinterpret_cast<Function*>(source_real(name));
}

int stand_in_clock_gettime(clockid_t id, timespec* to) {
  const int result = real_clock<int(clockid_t, timespec*)>("clock_gettime")(id, to);
  if (result != 0 || id < 0 || id > 11) return result;
  const uint64_t now =
      told_by_libc("clock_gettime", static_cast<uint8_t>(kClockGettime + id),
                   static_cast<uint64_t>(to->tv_sec) * 1000000000u + static_cast<uint64_t>(to->tv_nsec),
                   reinterpret_cast<uint64_t>(__builtin_return_address(0)));
  *to = {static_cast<time_t>(now / 1000000000u), static_cast<long>(now % 1000000000u)};
  return result;
}

int stand_in_gettimeofday(timeval* to, void* zone) {
  const int result = real_clock<int(timeval*, void*)>("gettimeofday")(to, zone);
  if (result != 0 || to == nullptr) return result;
  const uint64_t now =
      told_by_libc("gettimeofday", kClockOfDay,
                   static_cast<uint64_t>(to->tv_sec) * 1000000000u + static_cast<uint64_t>(to->tv_usec) * 1000u,
                   reinterpret_cast<uint64_t>(__builtin_return_address(0)));
  *to = {static_cast<time_t>(now / 1000000000u), static_cast<suseconds_t>(now % 1000000000u / 1000u)};
  return result;
}

time_t stand_in_time(time_t* to) {
  const auto now = static_cast<time_t>(told_by_libc("time", kClockSeconds,
                                                    static_cast<uint64_t>(real_clock<time_t(time_t*)>("time")(nullptr)),
                                                    reinterpret_cast<uint64_t>(__builtin_return_address(0))));
  if (to != nullptr) *to = now;
  return now;
}

clock_t stand_in_clock() {
  return static_cast<clock_t>(told_by_libc("clock", kClockCpu, static_cast<uint64_t>(real_clock<clock_t()>("clock")()),
                                           reinterpret_cast<uint64_t>(__builtin_return_address(0))));
}

}  // namespace

double told_by_mpi(PerThread& t, CallId id, double value) {
  bool from_recording;
  const uint8_t clock = clock_named(call_info(id).name);
  const uint64_t bits = told(t, clock, bit_cast<uint64_t>(value), &from_recording);
  if (from_recording) counts.times.fetch_add(1, std::memory_order_relaxed);
  return bit_cast<double>(bits);
}

void* clock_stand_in(const char* name) {
  if (strcmp(name, "clock_gettime") == 0) return reinterpret_cast<void*>(stand_in_clock_gettime);
  if (strcmp(name, "gettimeofday") == 0) return reinterpret_cast<void*>(stand_in_gettimeofday);
  if (strcmp(name, "time") == 0) return reinterpret_cast<void*>(stand_in_time);
  if (strcmp(name, "clock") == 0) return reinterpret_cast<void*>(stand_in_clock);
  return nullptr;
}

}  // namespace resil::record
