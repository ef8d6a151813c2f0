// SPDX-License-Identifier: Apache-2.0
//
// The writing side of the flight recorder: what every call leaves in its thread's trace buffer of the ring file. Inline
// in the call path (dispatch.cpp); the reading side and the user's own records are in detectors/recorder/.
//
// Clock. One read of the counter costs about 10 ns, half of what a call may cost. A call is stamped on entry unless the
// thread is in a tight loop of calls: when the time since the last stamp is under 8 us, the next seven calls take over
// that stamp (kUntimed: the time is a bound, at most that long ago). The way out is timed always while the calls of
// this function take a microsecond or more, and once in eight while they return at once. What hides in between is not
// guessed: a gap of more than 50 us between two stamps with an untimed call in it that may block goes into
// "seconds_unattributed", and makes the next 255 calls of that function timed. Polls: see enter_poll.
#pragma once

#include "shim/call/runtime.h"
#include "shim/call/thread.h"
#include "shim/model/event.h"

namespace resil::flight {

constexpr uint8_t kSkip = 7;  ///< untimed calls between two timed ones while a function returns at once
constexpr uint8_t kSuspicious = 255;  ///< calls that are timed after a function was caught hiding a wait

constexpr uint8_t kUnstamped = 7;  ///< calls without a stamp of their own between two stamps of a tight loop

extern uint64_t short_ticks, tight_ticks, gap_ticks;  ///< 1, 8 and 50 us

/// Makes the site's template for this envelope: record, counters and peer that an equal call will use again.
void prepare(Event& e, SiteEntry& site);
/// The receiving half of a call that sends and receives.
struct Received {
  uint64_t* traffic;  ///< messages and bytes of the partner; null: none is counted
  uint64_t bytes;
};
Received received_by(Event& e);
void count_receive(Event& e);
/// A poll on entry and exit: runs of failing polls share one record.
void enter_poll(Event& e, SiteEntry& site);
void leave_poll(Event& e);
/// A poll that succeeds ends the run `record` of failing ones, and gets its own record.
void end_run(Thread& thread, ring::Record& record, int64_t request_count);
/// An untimed call that may block, and a long time between the stamps around it.
void settle_gap(Thread& thread, uint64_t gap);
/// Ticks that one recorded call costs on this machine now, measured on memory of its own. Once, in MPI_Init; 0.1 ms.
double measure_cost();
/// The end of a timed call.
void account(Thread& thread, ring::Record& record, Timing& timing, CallId id);
/// Index of a name in the ring's table (at most 63 bytes are kept); 0 when that is full. Any thread; a short lock.
uint32_t intern(const char* name);
/// A step inside the open call, of resil's own making: `name` as interned, `peer` a world rank.
void hop(Thread& thread, uint32_t name, int32_t peer, uint64_t bytes);
/// A local query: counted, folded, never timed. count_local() is inline.
void local(Thread& thread, CallId id, uint64_t site);

/// Reads the clock for this call, or not: see above. Polls are never timed on the way out and ask for themselves.
[[gnu::always_inline]] inline void stamp(Event& e, const Timing& timing) {
  Thread& thread = *e.thread;
  e.time = thread.last_time;
  e.untimed = 0;
  if (timing.until_timed != 0 && thread.unstamped != 0) {
    --thread.unstamped;
    e.untimed = ring::kUntimed;
    return;
  }
  const uint64_t now = ticks(), gap = now - e.time;
  thread.unstamped = gap < tight_ticks ? kUnstamped : 0;
  if (gap > gap_ticks && thread.open_timing != nullptr) [[unlikely]]
    settle_gap(thread, gap);
  thread.open_timing = nullptr;
  e.time = thread.last_time = now;
}

/// Where the next record goes. Who sees anything of it sees `head` at its present value or later, and so does not take
/// a copy of the one that lies there for whole. On x86-64 nothing but an order for the compiler.
[[gnu::always_inline]] inline ring::Record* place_for_next(ring::TraceBuffer& trace, uint64_t head) {
  __atomic_thread_fence(__ATOMIC_RELEASE);
  return &trace.records[head & trace.last_place];
}

[[gnu::always_inline]] inline void enter(Event& e, SiteEntry& site) {
  Thread& thread = *e.thread;
  ring::TraceBuffer& trace = *thread.trace;
  ring::CallCounter& counter = trace.counters[static_cast<unsigned>(e.id)];
  counter.count += 1;
  counter.bytes += site.record.bytes;
  site.traffic[0] += 1;
  site.traffic[1] += site.record.bytes;
  const uint64_t calls = trace.calls + 1, head = trace.head;
  trace.calls = calls;
  ring::Record* place = place_for_next(trace, head);
  asm("" : "+r"(place));  // one register, not an address worked out again at each store
  ring::Record& record = *place;
  record = site.record;
  record.time = e.time;
  record.sequence = calls;
  record.flags |= e.untimed;
  e.record = &record;
  e.record_number = head + 1;
  __atomic_store_n(&trace.current, head + 1, __ATOMIC_RELEASE);
  __atomic_store_n(&trace.head, head + 1, __ATOMIC_RELEASE);
}

[[gnu::always_inline]] inline void leave(Event& e) {
  Thread& thread = *e.thread;
  ring::Record& record = *e.record;
  Timing& timing = *e.timing;
  if (timing.until_timed == 0) [[unlikely]] {
    account(thread, record, timing, e.id);
  } else {
    --timing.until_timed;
    ++timing.untimed;
    if (e.attributes & kCallBlocking) thread.open_timing = &timing;
  }
  if (e.result != 0) [[unlikely]]
    record.flags |= ring::kFailed;
  __atomic_store_n(&record.state, static_cast<uint8_t>(ring::RecordState::kDone), __ATOMIC_RELEASE);
}

[[gnu::always_inline]] inline void count_local(Thread& thread, CallId id, uint64_t site) {
  ring::TraceBuffer& trace = *thread.trace;
  const auto call = static_cast<uint16_t>(id);
  const uint64_t calls = trace.calls + 1, head = trace.head;
  trace.calls = calls;
  ++trace.counters[call].count;
  ring::Record& last = trace.records[(head - 1) & trace.last_place];  // of a new trace buffer: zeros, no call's site
  if (last.call == call && last.site == site && (last.flags & ring::kFolded)) {
    ++last.repeat;
    return;
  }
  ring::Record* place = place_for_next(trace, head);
  asm("" : "+r"(place));  // one register, not an address worked out again at each store
  place->time = thread.last_time;  // each field once: cleared as a whole before, it would be stored twice
  place->duration = 0;
  place->call = call;
  place->state = static_cast<uint8_t>(ring::RecordState::kDone);
  place->flags = ring::kFolded | ring::kUntimed;
  place->comm = 0;
  place->peer = ring::kNoPeer;
  place->tag = ring::kNoTag;
  place->repeat = 1;
  place->bytes = 0;
  place->site = site;
  place->sequence = calls;
  place->aux = 0;
  __atomic_store_n(&trace.head, head + 1, __ATOMIC_RELEASE);  // readers trust records below it only
}

}  // namespace resil::flight
