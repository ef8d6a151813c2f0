// SPDX-License-Identifier: Apache-2.0
//
// The flight recorder: one 64-byte record a call into the thread's lane of the ring file, counters per function and
// per peer beside it. Each lane has one writer and no lock.
//
// Clock: the shim reads the counter once on entry (about 10 ns, half of what a call may cost). The way out is timed
// only where it is worth it: always, as long as the calls of this function take a microsecond or more; once in eight
// while they return at once. What hides in between is not guessed: a gap of more than 50 us after an untimed call that
// may block is put into "seconds_unattributed", and makes the next calls of that function timed.

#include "detectors/recorder/recorder.h"

#include <sys/mman.h>

#include <cstring>

#include "shim/call_info.h"
#include "shim/event.h"
#include "shim/json.h"
#include "shim/module.h"
#include "shim/registry.h"
#include "shim/runtime.h"
#include "shim/spinlock.h"
#include "shim/tables.h"
#include "shim/thread.h"

namespace resil {

namespace {

constexpr uint8_t kSkip = 7;          // untimed calls between two timed ones while a function returns at once
constexpr uint8_t kSuspicious = 255;  // timed always, for this many calls: marks a function caught hiding a wait

/// What the recorder keeps of one function in one thread.
struct Timing {
  uint8_t until_timed;  // calls to go before the next timed one
  uint8_t watch;        // calls that are timed whatever they take
  uint16_t untimed;     // since the last timed one
  float mean;           // ticks, of the short ones
};

/// Recorder's half of a thread; mapped when the thread is registered.
struct Recorder {
  ring::Lane* lane;
  uint64_t last_time;    // ticks of the last read clock
  uint64_t open_since;   // entry of the last call, if it blocks and its end was not timed; else 0
  uint16_t open_call;
  double unattributed;   // ticks
  Timing timing[kCallCount];
};

double short_ticks = 2500, gap_ticks = 125000;  // 1 us and 50 us, set from the measured rate
unsigned module_index;
double final_unattributed;
SpinLock names_lock;

Recorder* recorder_of(Thread& thread) { return static_cast<Recorder*>(thread.module_data[module_index]); }

ring::Record& append(ring::Lane& lane) { return lane.records[lane.head % ring::kRecordsPerLane]; }

/// Makes the record visible: readers trust records below `head` only.
void publish(ring::Lane& lane) { __atomic_store_n(&lane.head, lane.head + 1, __ATOMIC_RELEASE); }

ring::Record* newest(ring::Lane& lane) {
  return lane.head != 0 ? &lane.records[(lane.head - 1) % ring::kRecordsPerLane] : nullptr;
}

ring::PeerCounter& peer_of(ring::Lane& lane, int32_t rank) {
  constexpr uint32_t kPlaces = ring::kPeerEntries - 1;
  uint32_t start = static_cast<uint32_t>(rank) % kPlaces;
  for (uint32_t probe = 0; probe < 8; ++probe) {
    ring::PeerCounter& peer = lane.peers[(start + probe) % kPlaces];
    if (peer.rank == rank)
      return peer;
    if (peer.rank == -1) {
      peer.rank = rank;
      return peer;
    }
  }
  return lane.peers[kPlaces];  // all others
}

void count_peer(ring::Lane& lane, Event& e, int32_t rank, bool received, uint64_t bytes) {
  if (rank < 0 || e.comm == nullptr)
    return;  // wildcards and MPI_PROC_NULL
  int world = comm_world_rank(*e.comm, rank);
  if (world < 0)
    return;
  ring::PeerCounter& peer = peer_of(lane, world);
  (received ? peer.received_messages : peer.sent_messages) += 1;
  (received ? peer.received_bytes : peer.sent_bytes) += bytes;
}

/// Same call, place and partner as the newest record: a polling loop goes on.
bool continues(const ring::Record& record, const Event& e, uint32_t comm) {
  return (record.flags & ring::kFolded) && record.call == static_cast<uint16_t>(e.id) && record.site == e.site &&
         record.comm == comm && record.peer == e.peer && record.tag == e.tag;
}

void fill(ring::Record& record, const Event& e, uint64_t time, uint32_t comm, uint64_t sequence) {
  record.time = time;
  record.duration = 0;
  record.call = static_cast<uint16_t>(e.id);
  record.flags = e.nested ? ring::kCallback : 0;
  record.comm = comm;
  record.peer = e.peer;
  record.tag = e.tag;
  record.repeat = 1;
  record.bytes = e.bytes;
  record.site = e.site;
  record.sequence = sequence;
  record.aux = static_cast<uint64_t>(e.request_count);
  __atomic_store_n(&record.state, static_cast<uint8_t>(ring::RecordState::kOpen), __ATOMIC_RELEASE);
}

/// A call that may block ended untimed, and the next one came late: was it that call or the program?
void settle_gap(Recorder& recorder, uint64_t now) {
  if (recorder.open_since != 0 && static_cast<double>(now - recorder.open_since) > gap_ticks) {
    recorder.unattributed += static_cast<double>(now - recorder.open_since);
    recorder.timing[recorder.open_call].watch = kSuspicious;
    recorder.timing[recorder.open_call].until_timed = 0;
  }
  recorder.open_since = 0;
}

void enter(Event& e) {
  Recorder* recorder = recorder_of(*e.thread);
  e.record = nullptr;
  if (recorder == nullptr) [[unlikely]] {
    __atomic_fetch_add(&runtime.header->unrecorded_calls, 1, __ATOMIC_RELAXED);
    return;
  }
  ring::Lane& lane = *recorder->lane;
  const uint32_t attributes = call_info(e.id).attributes;
  const uint32_t comm = e.comm != nullptr ? e.comm->index : 0;
  ring::CallCounter& counter = lane.counters[static_cast<unsigned>(e.id)];
  ++lane.calls;
  ++counter.count;
  counter.bytes += e.bytes;
  if (attributes & kCallPoll) {
    ring::Record* last = newest(lane);
    if (last != nullptr && continues(*last, e, comm)) {
      e.record = last;
      e.record_number = lane.head;
      __atomic_store_n(&last->state, static_cast<uint8_t>(ring::RecordState::kOpen), __ATOMIC_RELAXED);
      __atomic_store_n(&lane.current, lane.head, __ATOMIC_RELEASE);
      return;
    }
    e.time = ticks();
  }
  if (recorder->open_since != 0)
    settle_gap(*recorder, e.time);
  recorder->last_time = e.time;
  ring::Record& record = append(lane);
  fill(record, e, e.time, comm, attributes & kCallCollective ? e.sequence : lane.calls);
  publish(lane);
  e.record = &record;
  e.record_number = lane.head;
  if (!e.nested)
    __atomic_store_n(&lane.current, lane.head, __ATOMIC_RELEASE);
  if (attributes & kCallP2P && e.comm != nullptr) {
    if (attributes & kCallReceives) {
      count_peer(lane, e, e.peer, true, e.bytes);
    } else if (e.bytes != 0 || e.peer >= 0) {
      count_peer(lane, e, e.peer, false, e.bytes);
    }
  }
}

/// Ticks spent in the call that just ended, extrapolated over the untimed ones before it.
void account(Recorder& recorder, ring::CallCounter& counter, Timing& timing, ring::Record& record, uint64_t begin) {
  uint64_t now = ticks();
  auto spent = static_cast<double>(now - begin);
  record.duration = spent > 0 ? static_cast<float>(spent) : 1.0f;
  recorder.last_time = now;
  if (spent < short_ticks) {
    counter.ticks += spent * (1 + timing.untimed);
    timing.mean = static_cast<float>(spent);
    if (timing.watch == 0)
      timing.until_timed = kSkip;
    else
      --timing.watch;
  } else {
    counter.ticks += spent + static_cast<double>(timing.mean) * timing.untimed;
  }
  timing.untimed = 0;
}

void leave(Event& e) {
  Recorder* recorder = recorder_of(*e.thread);
  if (recorder == nullptr || e.record == nullptr) [[unlikely]]
    return;
  ring::Lane& lane = *recorder->lane;
  const uint32_t attributes = call_info(e.id).attributes;
  ring::Record& record = *e.record;
  const bool own = lane.head - e.record_number < ring::kRecordsPerLane;  // not overwritten by calls from callbacks
  if (!e.nested)
    __atomic_store_n(&lane.current, 0, __ATOMIC_RELEASE);
  if (!own)
    return;
  if (attributes & kCallPoll) {
    const bool failed_poll = e.flag != nullptr && *e.flag == 0 && e.result == 0;
    __atomic_store_n(&record.state, static_cast<uint8_t>(ring::RecordState::kDone), __ATOMIC_RELEASE);
    if (record.flags & ring::kFolded) {
      if (failed_poll) {
        ++record.repeat;
        return;
      }
      // The poll that succeeds ends the run and gets its own record.
      uint64_t time = ticks();
      ring::Record& success = append(lane);
      fill(success, e, time, record.comm, lane.calls);
      __atomic_store_n(&success.state, static_cast<uint8_t>(ring::RecordState::kDone), __ATOMIC_RELEASE);
      publish(lane);
      record.duration = static_cast<float>(time - record.time);
      return;
    }
    if (failed_poll)
      record.flags |= ring::kFolded;
    if (e.result != 0)
      record.flags |= ring::kFailed;
    return;
  }
  Timing& timing = recorder->timing[static_cast<unsigned>(e.id)];
  if (timing.until_timed == 0) {
    account(*recorder, lane.counters[static_cast<unsigned>(e.id)], timing, record, e.time);
  } else {
    --timing.until_timed;
    ++timing.untimed;
    if (attributes & kCallBlocking) {
      recorder->open_since = e.time;
      recorder->open_call = static_cast<uint16_t>(e.id);
    }
  }
  if (e.request_key != 0)
    record.aux = e.request_key;
  if (e.result != 0) [[unlikely]]
    record.flags |= ring::kFailed;
  __atomic_store_n(&record.state, static_cast<uint8_t>(ring::RecordState::kDone), __ATOMIC_RELEASE);
}

void local(Thread& thread, uint16_t call, uint64_t site) {
  Recorder* recorder = recorder_of(thread);
  if (recorder == nullptr) [[unlikely]] {
    __atomic_fetch_add(&runtime.header->unrecorded_calls, 1, __ATOMIC_RELAXED);
    return;
  }
  ring::Lane& lane = *recorder->lane;
  ++lane.calls;
  ++lane.counters[call].count;
  ring::Record* last = newest(lane);
  if (last != nullptr && last->call == call && last->site == site && (last->flags & ring::kFolded)) {
    ++last->repeat;
    return;
  }
  ring::Record& record = append(lane);
  record = {};
  record.time = recorder->last_time;
  record.call = call;
  record.state = static_cast<uint8_t>(ring::RecordState::kDone);
  record.flags = ring::kFolded | ring::kUntimed;
  record.peer = ring::kNoPeer;
  record.tag = ring::kNoTag;
  record.repeat = 1;
  record.site = site;
  record.sequence = lane.calls;
  publish(lane);
}

void thread_start(Thread& thread) {
  if (thread.lane == nullptr)
    return;
  void* memory = mmap(nullptr, sizeof(Recorder), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED)
    return;
  auto* recorder = static_cast<Recorder*>(memory);
  recorder->lane = thread.lane;
  recorder->last_time = ticks();
  if (thread.lane->head == 0) {
    for (ring::PeerCounter& peer : thread.lane->peers)
      peer.rank = -1;
    thread.lane->peers[ring::kPeerEntries - 1].rank = -2;
  }
  thread.module_data[module_index] = recorder;
}

void thread_end(Thread& thread) {
  Recorder* recorder = recorder_of(thread);
  if (recorder == nullptr)
    return;
  SpinGuard guard(names_lock);
  final_unattributed += recorder->unattributed;
  munmap(recorder, sizeof(Recorder));
}

void before_init() {
  short_ticks = runtime.header->ticks_per_second * 1e-6;
  gap_ticks = runtime.header->ticks_per_second * 50e-6;
}

void before_finalize() {
  if (current_thread != nullptr && recorder_of(*current_thread) != nullptr) {
    Recorder& recorder = *recorder_of(*current_thread);
    settle_gap(recorder, ticks());
    final_unattributed += recorder.unattributed;
    recorder.unattributed = 0;
  }
}

uint32_t intern(const char* name) {
  SpinGuard guard(names_lock);
  for (uint32_t i = 1; i < runtime.name_count; ++i) {
    if (runtime.names[i].name[0] == 0)
      strncpy(runtime.names[i].name, name, sizeof(runtime.names[i].name) - 1);
    if (strncmp(runtime.names[i].name, name, sizeof(runtime.names[i].name) - 1) == 0)
      return i;
  }
  return 0;
}

void report(JsonWriter& json);

const Module kModule = {
    "recorder", "flight recorder: the last calls of every thread, counters per function and peer", ModuleKind::kWatch,
    nullptr, 0, nullptr, nullptr, before_init, nullptr, before_finalize, nullptr, nullptr, thread_start, thread_end,
    enter, leave, local, nullptr, report};
RESIL_MODULE(kModule);

void report(JsonWriter& json) {
  const double seconds = 1 / runtime.header->ticks_per_second;
  json.begin_object("calls");
  for (unsigned id = 0; id < kCallCount; ++id) {
    ring::CallCounter total = {};
    for (uint32_t lane = 0; lane < runtime.lane_count; ++lane) {
      const ring::CallCounter& counter = runtime.lanes[lane].counters[id];
      total.count += counter.count;
      total.ticks += counter.ticks;
      total.bytes += counter.bytes;
    }
    if (total.count == 0)
      continue;
    json.begin_object(kCallInfo[id].name);
    json.integer("count", static_cast<int64_t>(total.count));
    json.number("seconds", total.ticks * seconds);
    json.integer("bytes", static_cast<int64_t>(total.bytes));
    json.end_object();
  }
  json.end_object();
  json.number("seconds_unattributed", final_unattributed * seconds);
  json.begin_array("peers");
  for (uint32_t first = 0; first < runtime.lane_count; ++first) {
    for (const ring::PeerCounter& peer : runtime.lanes[first].peers) {
      if (runtime.lanes[first].head == 0 || peer.rank == -1 || (peer.rank == -2 && peer.sent_messages + peer.received_messages == 0))
        continue;
      ring::PeerCounter total = {peer.rank, 0, 0, 0, 0, 0};
      bool earlier = false;
      for (uint32_t lane = 0; lane < runtime.lane_count; ++lane) {
        for (const ring::PeerCounter& same : runtime.lanes[lane].peers) {
          if (runtime.lanes[lane].head == 0 || same.rank != peer.rank)
            continue;
          earlier = earlier || lane < first;
          total.sent_messages += same.sent_messages;
          total.sent_bytes += same.sent_bytes;
          total.received_messages += same.received_messages;
          total.received_bytes += same.received_bytes;
        }
      }
      if (earlier)
        continue;
      json.begin_object();
      json.integer("rank", total.rank);
      json.integer("sent_messages", static_cast<int64_t>(total.sent_messages));
      json.integer("sent_bytes", static_cast<int64_t>(total.sent_bytes));
      json.integer("received_messages", static_cast<int64_t>(total.received_messages));
      json.integer("received_bytes", static_cast<int64_t>(total.received_bytes));
      json.end_object();
    }
  }
  json.end_array();
}

}  // namespace

void record_user(ring::RecordState state, const char* name, uint64_t value) {
  Thread* thread = thread_register();
  if (thread == nullptr || thread->disabled || recorder_of(*thread) == nullptr)
    return;
  Recorder& recorder = *recorder_of(*thread);
  ring::Lane& lane = *recorder.lane;
  uint32_t name_index = intern(name);
  ring::Record& record = append(lane);
  record = {};
  record.time = recorder.last_time = ticks();
  record.call = 0;
  record.state = static_cast<uint8_t>(state);
  record.comm = name_index;
  record.peer = ring::kNoPeer;
  record.tag = ring::kNoTag;
  record.repeat = 1;
  record.sequence = lane.calls;
  record.aux = state == ring::RecordState::kStep ? name_index : value;
  if (state == ring::RecordState::kStep) {
    record.sequence = ++lane.step;
    lane.step_name = name_index;
  }
  publish(lane);
}

}  // namespace resil
