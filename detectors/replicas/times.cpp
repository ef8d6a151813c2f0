// SPDX-License-Identifier: Apache-2.0
//
// See times.h. The leader never waits: it sends what there is whenever it makes a call that may block, so that whoever
// waits for a value waits for nothing but the leader's own way.

#include "detectors/replicas/times.h"

#include <errno.h>

#include <cstring>

#include "detectors/replicas/words.h"
#include "shim/base/bit_cast.h"
#include "shim/call/parts.h"
#include "shim/call/runtime.h"
#include "shim/call/thread.h"
#include "shim/config/config.h"
#include "shim/report/json.h"
#include "shim/runtime/memory.h"
#include "shim/runtime/part_stream.h"
#include "shim/runtime/progress.h"

namespace resil::replicas {

namespace {

constexpr uint32_t kMostBetween = 4096;  ///< values between two calls

/// An item of the stream.
struct Time {
  uint64_t call;  ///< and in the upper byte the clock; 0: MPI_Wtime
  uint64_t value;  ///< of kComplete none: all that was asked for before this many calls has been sent
};
constexpr unsigned kClockShift = 56;
constexpr uint64_t kCallMask = (uint64_t{1} << kClockShift) - 1;
constexpr uint64_t kComplete = uint64_t{0xff} << kClockShift;
static_assert(kClockCount < 0xff);
bool open;
bool leading;  // what clocks say here is told to the others
uint64_t calls, given, missed;
bool awaits;  // outside of MPI, what the leading part is told
constinit PartStream stream = {};

// The leader's.
uint32_t between;
uint64_t last_flush;
bool again;  // how far it is, once more: partners wait for two calls

// A follower's.
Time* queue;
uint32_t queue_room, head, tail;
uint64_t complete;
struct Last {
  uint64_t value, real;
  uint64_t ahead;  ///< what this rank has been told where the leading part had not asked
  bool any;
} lasts[kClockCount];
Thread* own_thread;

uint64_t patience() {
  return static_cast<uint64_t>(config_real("RESIL_REPLICAS_SECONDS") * runtime.header->ticks_per_second);
}

void put(uint64_t call, uint64_t value) {
  const Time time = {call, value};
  stream.put(&time, sizeof(time));
}

void take_what_came() {
  stream.take([](const unsigned char* at, size_t left) -> size_t {
    Time time;
    if (left < sizeof(time)) return 0;
    memcpy(&time, at, sizeof(time));
    if (time.call >= kComplete) {
      complete = time.call & kCallMask;
      return sizeof(time);
    }
    if (head == tail) head = tail = 0;
    if (!memory::grow_array(&queue, &queue_room, tail + 1, 4096u)) return stream.stop(), sizeof(time);
    queue[tail++] = time;
    return sizeof(time);
  });
}

}  // namespace

void times_begin() {
  own_thread = current_thread;
  open = stream.begin(tags::kReplicas[1], "clocks");
  leading = stream.leads();
}

namespace {

/// A follower waits until it is known what the leading part was told here, or whether it has asked. False: it will not
/// be. It may come to lead meanwhile.
bool find_out(Thread& thread) {
  // One call more, for a leader that is in the wrong call, and stays there: who comes to lead says what the clock is.
  const auto is_told = [] {
    while (head < tail && (queue[head].call & kCallMask) < calls) ++head;
    return head < tail || complete > calls + 1;
  };
  const auto is_known = [&] {
    if (is_told()) return true;  // a test may offer the processor to others, and cost a time slice
    take_what_came();
    stream.look();
    if (is_told()) return true;
    leading = stream.leads();
    return leading || stream.has_ended();
  };
  if (is_known()) return true;
  const uint64_t limit = ticks() + patience();
  __atomic_store_n(&awaits, true, __ATOMIC_RELAXED);
  wait_until(
      thread, [&] { return parts_waiting(), is_known() || (ticks() > limit && !parts_hopeful()); }, kForOthers);
  __atomic_store_n(&awaits, false, __ATOMIC_RELAXED);
  return is_known();
}

/// No clock goes back behind what was told without the leading part. Those of MPI are positive, too.
uint64_t no_earlier(const Last& last, unsigned clock, uint64_t value) {
  return clock != kRandom && value < last.ahead ? last.ahead : value;
}

/// The leader: as it is, and kept. A follower: what the leader kept. `add`: a value and how much later it is asked.
template <class Add>
uint64_t told(Thread& thread, unsigned clock, uint64_t value, Add add) {
  if (!leading && !find_out(thread)) {
    open = false;  // the leader is stuck, or the parts have come apart
    may_differ("a clock that the leading part has not asked");
  }
  Last& last = lasts[clock];
  if (leading) {
    if (last.any) value = add(last.value, last.real, value);  // as it went on in the part that led before
    value = no_earlier(last, clock, value);
    if (between++ >= kMostBetween || !stream.has_room(2 * sizeof(Time))) {
      if (between <= kMostBetween) may_differ("clocks that the leading part could not hand over");
      ++missed;
      return value;
    }
    put(calls | uint64_t{clock} << kClockShift, value);
    ++given;
    return value;
  }
  if (head < tail && queue[head].call == (calls | uint64_t{clock} << kClockShift)) {
    last = {queue[head++].value, value, last.ahead, true};
    ++given;
    return no_earlier(last, clock, last.value);
  }
  ++missed;
  return last.ahead = no_earlier(last, clock, last.any ? add(last.value, last.real, value) : value);
}

}  // namespace

double times_told(Thread& thread, CallId id, double value) {
  if (!open || &thread != own_thread) return value;
  static CallId first = id;  // there are two, and partners ask them in the same order
  return bit_cast<double>(told(
      thread, id == first ? 0 : kOtherOfMpi, bit_cast<uint64_t>(value), [](uint64_t last, uint64_t real, uint64_t now) {
        return bit_cast<uint64_t>(bit_cast<double>(last) + (bit_cast<double>(now) - bit_cast<double>(real)));
      }));
}

int64_t times_told_by_libc(Clock clock, int64_t value) {
  Thread* thread = current_thread;
  if (!open || thread == nullptr || thread != own_thread || thread->depth != 0) return value;
  const int error = errno;
  const uint64_t told_value = told(*thread, clock, static_cast<uint64_t>(value),
                                   [](uint64_t last, uint64_t real, uint64_t now) { return last + (now - real); });
  errno = error;
  return static_cast<int64_t>(told_value);
}

void random_told(void* bytes, size_t count) {
  Thread* thread = current_thread;
  const bool follows = open && thread != nullptr && thread == own_thread && thread->depth == 0 &&
                       config_integer("RESIL_REPLICAS_FOLLOW") > 1;
  const int error = errno;
  const uint64_t missed_before = missed;
  auto* at = static_cast<unsigned char*>(bytes);
  for (size_t left = follows ? count : 0; left != 0;) {
    const size_t piece = left < 8 ? left : 8;
    uint64_t value = 0;
    memcpy(&value, at, piece);
    value = told(*thread, kRandom, value, [](uint64_t, uint64_t, uint64_t now) { return now; });
    memcpy(at, &value, piece);
    at += piece;
    left -= piece;
  }
  if (!follows || missed != missed_before) may_differ("random numbers");
  errno = error;
}

namespace {

/// Inside a call.
void flush() {
  const bool news = stream.has_news();
  if ((news || again) && stream.has_room(sizeof(Time))) {
    put(calls | kComplete, 0);
    again = news;
  }
  stream.send();
}

}  // namespace

void times_call(Thread& thread, bool poll, uint64_t now) {
  if (!poll) __atomic_store_n(&calls, calls + 1, __ATOMIC_RELAXED);
  if (!open) return;
  if (!stream.leads()) {
    if (part_that_leads() != 0) [[unlikely]]
      times_look();
    if (!stream.leads()) return;
  }
  if (!poll) between = 0;
  // A follower that is stuck is dropped within that time, one that is slow catches up.
  if (!stream.has_room(kMostBetween * sizeof(Time))) [[unlikely]]
    stream.make_room(thread, kMostBetween * sizeof(Time), 4 * patience());
  if (stream.is_empty() && (!again || poll)) return;
  if (poll && now - last_flush < runtime.header->ticks_per_second / 5000) return;
  last_flush = now;
  flush();
}

void times_pass_over() {
  if (own_thread != nullptr) take_what_came();
}

void times_end(Thread& thread) {
  if (!open) return;
  open = false;
  __atomic_store_n(&calls, calls + 2, __ATOMIC_RELAXED);
  uint64_t limit = UINT64_MAX;
  if (!stream.leads())
    wait_until(
        thread,
        [&] {
          times_look();
          parts_waiting();
          if (part_that_leads() != 0 && limit == UINT64_MAX) limit = ticks() + 4 * patience();
          return stream.leads() || stream.has_ended() || ticks() > limit;
        },
        kForOthers);
  if (stream.leads()) stream.end(thread);
  stream.close();
}

void times_look() {
  if (stream.leads()) {
    if (part_streams_are_awaited.load(std::memory_order_relaxed)) flush();
    return;
  }
  take_what_came();
  stream.look();
}

uint64_t times_place() {
  return 2 * __atomic_load_n(&calls, __ATOMIC_RELAXED) + (__atomic_load_n(&awaits, __ATOMIC_RELAXED) ? 1 : 0);
}

void times_report(JsonWriter& json) {
  json.integer("times", static_cast<int64_t>(given));
  json.integer("times_left_out", static_cast<int64_t>(missed));
}

}  // namespace resil::replicas
