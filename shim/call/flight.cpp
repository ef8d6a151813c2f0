// SPDX-License-Identifier: Apache-2.0
//
// The less frequent half of flight.h. Each trace buffer has one writer, its thread, and no lock.

#include "shim/call/flight.h"

#include <cstring>

#include "shim/base/spinlock.h"
#include "shim/runtime/memory.h"
#include "shim/tables/tables.h"

namespace resil::flight {

uint64_t short_ticks = 2500, tight_ticks = 20000, gap_ticks = 125000;

namespace {

SpinLock names_lock;

ring::Record* newest(ring::TraceBuffer& trace) {
  return trace.head != 0 ? &trace.records[(trace.head - 1) & trace.last_place] : nullptr;
}

ring::Record& append(ring::TraceBuffer& trace) { return *flight::place_for_next(trace, trace.head); }

/// Makes the record visible: readers trust records below `head` only.
void publish(ring::TraceBuffer& trace) { __atomic_store_n(&trace.head, trace.head + 1, __ATOMIC_RELEASE); }

void set_state(ring::Record& record, ring::RecordState state) {
  __atomic_store_n(&record.state, static_cast<uint8_t>(state), __ATOMIC_RELEASE);
}

ring::PeerCounter& peer_of(ring::TraceBuffer& trace, int32_t rank) {
  constexpr uint32_t kPlaces = ring::kPeerEntries - 1;
  uint32_t place = static_cast<uint32_t>(rank) % kPlaces;
  for (uint32_t probe = 0; probe < 8; ++probe, place = place + 1 != kPlaces ? place + 1 : 0) {
    ring::PeerCounter& peer = trace.peers[place];
    if (peer.rank == rank) return peer;
    if (peer.rank == -1) {
      peer.rank = rank;
      return peer;
    }
  }
  return trace.peers[kPlaces];  // all others
}

/// Messages and bytes of the partner, two words; a dummy for wildcards and MPI_PROC_NULL. Persistent requests count
/// when they are started, which has no envelope: not here.
uint64_t* counter_of_peer(ring::TraceBuffer& trace, Event& e) {
  if (!(e.attributes & kCallP2P) || e.peer < 0 || e.comm == nullptr || !(e.attributes & kCallHasData) ||
      (e.attributes & (kCallPoll | kCallPersistent)))
    return e.thread->no_traffic;
  int world = comm_world_rank(*e.comm, e.peer);
  if (world < 0) return e.thread->no_traffic;
  ring::PeerCounter& peer = peer_of(trace, world);
  return e.attributes & kCallReceives ? &peer.received_messages : &peer.sent_messages;
}

}  // namespace

void prepare(Event& e, SiteEntry& site) {
  ring::Record& record = site.record;
  record.duration = 0;
  record.call = static_cast<uint16_t>(e.id);
  record.state = static_cast<uint8_t>(ring::RecordState::kOpen);
  record.flags = (e.nested ? ring::kCallback : 0);
  record.comm = e.comm != nullptr ? e.comm->index : 0;
  record.peer = e.peer;
  record.tag = e.tag;
  record.repeat = 1;
  record.bytes = e.bytes;
  record.site = e.site;
  record.aux = 0;
  site.traffic = counter_of_peer(*e.thread->trace, e);
}

[[gnu::always_inline]] inline Received received_of(Event& e) {
  if (e.receive_peer < 0 || e.comm == nullptr) return {};
  int world = comm_world_rank(*e.comm, e.receive_peer);
  if (world < 0) return {};
  // MPI_Sendrecv_replace receives into the buffer it sends: same count and type.
  const bool replaces = class_of(e.id) == CallClass::kSendReceiveReplace;
  ring::PeerCounter& peer = peer_of(*e.thread->trace, world);
  return {&peer.received_messages, replaces ? e.bytes : argument_bytes(e, e.receive)};
}

Received received_by(Event& e) { return received_of(e); }

void count_receive(Event& e) {
  const Received received = received_of(e);
  if (received.traffic == nullptr) return;
  received.traffic[0] += 1;
  received.traffic[1] += received.bytes;
}

void enter_poll(Event& e, SiteEntry& site) {
  Thread& thread = *e.thread;
  ring::TraceBuffer& trace = *thread.trace;
  ring::Record* last = newest(trace);
  const ring::Record& made = site.record;
  ++trace.calls;
  ++trace.counters[static_cast<unsigned>(e.id)].count;
  if (last != nullptr && (last->flags & ring::kFolded) && last->call == made.call && last->site == made.site &&
      last->comm == made.comm && last->peer == made.peer && last->tag == made.tag) {
    set_state(*last, ring::RecordState::kOpen);
    e.record = last;
  } else {
    constexpr Timing kNeverTimed = {.until_timed = 1, .watch = 0, .untimed = 0, .mean = 0};
    stamp(e, kNeverTimed);
    ring::Record& record = append(trace);
    record = made;
    record.time = e.time;
    record.flags |= e.untimed;
    record.sequence = trace.calls;
    publish(trace);
    e.record = &record;
  }
  e.record_number = trace.head;
  __atomic_store_n(&trace.current, trace.head, __ATOMIC_RELEASE);
}

void end_run(Thread& thread, ring::Record& record, int64_t request_count) {
  ring::TraceBuffer& trace = *thread.trace;
  ring::Record& success = append(trace);
  success = record;
  success.time = thread.last_time = ticks();
  success.duration = 0;
  success.flags = static_cast<uint8_t>(record.flags & ~ring::kFolded);
  success.repeat = 1;
  success.sequence = trace.calls;
  success.aux = static_cast<uint64_t>(request_count);
  publish(trace);
  record.duration = static_cast<float>(success.time - record.time);
}

void leave_poll(Event& e) {
  Thread& thread = *e.thread;
  ring::Record& record = *e.record;
  // MPI_Testsome says so with a count, the others with a flag.
  const int* told = e.flag != nullptr ? e.flag : e.outcount;
  const bool failed_poll = e.result == 0 && told != nullptr && *told == 0;
  set_state(record, ring::RecordState::kDone);
  if (e.result != 0) record.flags |= ring::kFailed;
  if (!(record.flags & ring::kFolded)) {
    if (failed_poll) record.flags |= ring::kFolded;
  } else if (failed_poll) {
    ++record.repeat;
  } else {
    end_run(thread, record, e.request_count);
  }
}

void settle_gap(Thread& thread, uint64_t gap) {
  thread.unattributed += gap;
  thread.open_timing->watch = kSuspicious;
  thread.open_timing->until_timed = 0;
}

void account(Thread& thread, ring::Record& record, Timing& timing, CallId id) {
  ring::CallCounter& counter = thread.trace->counters[static_cast<unsigned>(id)];
  const uint64_t now = ticks();
  auto whole = static_cast<int64_t>(now - record.time);  // signed ones are converted by one instruction
  if (whole < 1) whole = 1;
  const auto spent = static_cast<double>(whole);
  record.duration = static_cast<float>(spent);
  thread.last_time = now;
  const unsigned untimed = timing.untimed;
  double ticks_spent = counter.ticks + spent;
  if (whole < static_cast<int64_t>(short_ticks)) {
    ticks_spent += spent * untimed;
    timing.mean = static_cast<float>(spent);
    if (timing.watch == 0) timing.until_timed = kSkip;
    else --timing.watch;
  } else if (untimed != 0) {
    ticks_spent += static_cast<double>(timing.mean) * untimed;
  }
  counter.ticks = ticks_spent;
  timing.untimed = 0;
}

double measure_cost() {
  struct Rehearsal {
    Thread thread;
    ring::TraceBuffer trace;
  };
  constexpr int kRounds = 500;
  auto* mapped = memory::map_array<Rehearsal>();
  if (mapped == nullptr) return 0;
  Rehearsal& rehearsal = *mapped;
  rehearsal.thread.trace = &rehearsal.trace;
  rehearsal.trace.last_place = 63;  // a page of records
  SiteEntry& site = rehearsal.thread.sites[0];
  Event e;
  clear_event<CallId::kMPI_Barrier>(e);
  e.thread = &rehearsal.thread;
  e.timing = &rehearsal.thread.timing[static_cast<unsigned>(e.id)];
  e.comm = nullptr;
  e.bytes = e.site = 0;
  e.result = 0;
  prepare(e, site);
  uint64_t begin = 0;
  for (int round = -kRounds / 4; round < kRounds; ++round) {
    if (round == 0) begin = ticks();
    stamp(e, *e.timing);
    enter(e, site);
    leave(e);
  }
  double cost = static_cast<double>(ticks() - begin) / kRounds;
  memory::unmap_array(mapped);
  return cost;
}

void local(Thread& thread, CallId id, uint64_t site) { count_local(thread, id, site); }

uint32_t intern(const char* name) {
  SpinGuard guard(names_lock);
  for (uint32_t i = 1; i < runtime.name_count; ++i) {
    if (runtime.names[i].name[0] == 0) strncpy(runtime.names[i].name, name, sizeof(runtime.names[i].name) - 1);
    if (strncmp(runtime.names[i].name, name, sizeof(runtime.names[i].name) - 1) == 0) return i;
  }
  return 0;
}

void hop(Thread& thread, uint32_t name, int32_t peer, uint64_t bytes) {
  ring::TraceBuffer& trace = *thread.trace;
  ring::Record& record = append(trace);
  record = {};
  record.time = ticks();
  record.state = static_cast<uint8_t>(ring::RecordState::kStep);
  record.comm = name;
  record.peer = peer;
  record.tag = ring::kNoTag;
  record.repeat = 1;
  record.bytes = bytes;
  record.sequence = trace.step;
  record.aux = name;
  publish(trace);
}

}  // namespace resil::flight
