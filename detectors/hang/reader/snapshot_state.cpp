// SPDX-License-Identifier: Apache-2.0
//
// See snapshot.h: the whole state of one rank, from its open calls, what they wait for, and its pending requests.

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <initializer_list>

#include "detectors/hang/reader/builder.h"
#include "detectors/hang/reader/snapshot.h"
#include "detectors/hang/slots/signature.h"
#include "shim/base/clock.h"
#include "shim/base/task_list.h"
#include "shim/base/text_file.h"

namespace resil::hang {

namespace {

constexpr uint64_t kEagerAtMost = 256 << 10;  // no MPI buffers larger standard sends
constexpr int kTries = 4;
static_assert(sizeof(RankState) + kMaxThreads * sizeof(ThreadWait) + kMaxParts * sizeof(Part) +
                  kMaxMemberships * sizeof(Membership) <=
              kStateRoom);

}  // namespace

Part* add_part(Builder& b, ThreadWait& thread) {
  if (b.state.part_count == kMaxParts) {
    thread.truncated = 1;
    return nullptr;
  }
  Part& part = b.parts[b.state.part_count++];
  part = {};
  part.peer = kUnknownRank;
  part.tag = ring::kNoTag;
  ++thread.part_count;
  return &part;
}

void add_other(Builder& b, ThreadWait& thread, uint16_t call) {
  if (Part* part = add_part(b, thread); part != nullptr) {
    part->kind = PartKind::kOther;
    part->call = call;
  }
}

namespace {

void add_receive(Builder& b, ThreadWait& thread, const Source& from, PartKind kind) {
  if (from.peer == ring::kProcNull) return;
  if (from.comm == 0 || (from.peer < 0 && from.peer != ring::kAnySource)) return add_other(b, thread, from.call);
  Part* part = add_part(b, thread);
  if (part == nullptr) return;
  *part = {kind, from.flags, from.call, from.peer, from.comm, from.tag, from.ordinal, from.bytes, 0, 0, from.site};
  if (is_wild_envelope(from.peer, from.tag) || has_other_tags(b.section, from.comm, from.peer)) return;
  const Envelope counts = envelope_read(b.section, from.comm, from.peer, from.tag);
  if (kind == PartKind::kProbe) part->needed = counts.posted + counts.taken + 1;
  else if (from.ordinal != 0) part->needed = from.ordinal + counts.taken;
}

void add_send(Builder& b, ThreadWait& thread, const Source& from, SendMode mode) {
  if (from.peer == ring::kProcNull || mode == SendMode::kBuffered) return;  // never waits
  if (from.comm == 0 || from.peer < 0) return add_other(b, thread, from.call);
  Part* part = add_part(b, thread);
  if (part == nullptr) return;
  const bool waits = mode == SendMode::kSynchronous || from.bytes > kEagerAtMost;
  *part = {PartKind::kSend,
           static_cast<uint8_t>(from.flags | (waits ? 0 : int{kMayBuffer})),
           from.call,
           from.peer,
           from.comm,
           from.tag,
           from.ordinal,
           from.bytes,
           0,
           0,
           from.site};
  if (!has_other_tags(b.section, from.comm, from.peer)) part->needed = from.ordinal;
}

/// The pending request with that key; false: not in the table.
bool find_request(const Watched& watched, uint64_t key, ring::Request* request, Pending* pending) {
  const uint32_t buckets = watched.request_count / ring::kRequestBucket, home = ring::request_home(key, buckets);
  for (uint32_t step = 0; step < ring::kRequestReach; ++step) {
    const uint32_t first = ((home + step) & (buckets - 1)) * ring::kRequestBucket;
    for (uint32_t i = first; i < first + ring::kRequestBucket; ++i) {
      if (load(watched.requests[i].key) != key) continue;
      *request = copy_of(watched.requests[i]);
      *pending = copy_of(watched.pending[i]);
      if (request->key == key && load(watched.requests[i].key) == key) return true;
    }
  }
  return false;
}

void add_request(Builder& b, ThreadWait& thread, uint64_t key) {
  ring::Request request;
  Pending pending;
  if (!find_request(b.watched, key, &request, &pending) || request.call >= kCallCount ||
      (request.flags & ring::kPartitioned))
    return add_other(b, thread, thread.call);
  if ((request.flags & ring::kPersistent) && !(request.flags & ring::kActive))
    return;  // inactive: as good as MPI_REQUEST_NULL
  Source from = {request.call,
                 comm_of(b.watched, request).id,
                 pending.peer,
                 request.tag,
                 pending.ordinal,
                 request.bytes,
                 static_cast<uint8_t>(kNonblocking | (request.flags & ring::kPersistent ? kPersistentPart : 0)),
                 request.site};
  switch (static_cast<ring::RequestKind>(request.kind)) {
    case ring::RequestKind::kReceive: return add_receive(b, thread, from, PartKind::kReceive);
    case ring::RequestKind::kSend:
      add_send(b, thread, from, static_cast<SendMode>(pending.mode));
      if (pending.both) {
        from.peer = static_cast<int32_t>(pending.sequence >> 32);
        from.tag = pending.receive_tag;
        from.ordinal = static_cast<uint32_t>(pending.sequence);
        add_receive(b, thread, from, PartKind::kReceive);
      }
      return;
    case ring::RequestKind::kCollective:
      if (request.flags & ring::kPersistent) return add_persistent(b, thread, from, request, pending);
      [[fallthrough]];
    case ring::RequestKind::kCommunicator:
      return add_collective(b, thread, from, comm_of(b.watched, request), request.peer, pending.ordinal, pending.flags,
                            sources_of(b.watched, request, pending), pending.sequence);
    default: return add_other(b, thread, request.call);
  }
}

/// The requests of a completing call, or of a run of polls.
void add_requests(Builder& b, ThreadWait& thread, const Wait& wait) {
  const uint32_t kept = wait.kept < kWaitedKeys ? wait.kept : kWaitedKeys;
  for (uint32_t i = 0; i < kept; ++i) add_request(b, thread, wait.keys[i]);
  if (wait.count > kept) thread.truncated = 1;
}

/// A run of MPI_Win_test alone: the completes of all ranks for which the window was ever exposed. Those of earlier
/// epochs have come.
void add_exposure(Builder& b, ThreadWait& thread, uint64_t window) {
  for (const Envelope& place : b.section.envelopes) {
    if (load(place.comm) != token_comm(window)) continue;
    const Envelope token = copy_of(place);
    if (token.comm != token_comm(window) || (token.tag != kCompleteToken && token.tag != kOtherTags)) continue;
    Part* part = token.tag == kCompleteToken ? add_part(b, thread) : nullptr;
    if (part == nullptr) return add_other(b, thread, thread.call);
    const auto number = static_cast<uint32_t>(token.posted);
    *part = {PartKind::kToken,
             0,
             static_cast<uint16_t>(CallId::kMPI_Win_complete),
             token.peer,
             window,
             token.tag,
             number,
             0,
             number,
             0,
             0};
  }
}

void add_run(Builder& b, ThreadWait& thread, const Wait& wait) {
  if (wait.probe_count == 1 && wait.probes[0].tag == kCompleteToken && wait.kept == 0 && wait.flags == 0) {
    thread.kind = WaitKind::kAll;
    return add_exposure(b, thread, wait.probes[0].comm);
  }
  thread.kind = wait.flags & kTestAll ? WaitKind::kAll : WaitKind::kAny;
  add_requests(b, thread, wait);
  for (uint32_t i = 0; i < wait.probe_count && i < kProbes; ++i)
    if (wait.probes[i].tag <= kFirstToken) add_other(b, thread, thread.call);
    else
      add_receive(b, thread, {thread.call, wait.probes[i].comm, wait.probes[i].peer, wait.probes[i].tag, 0, 0, 0, 0},
                  PartKind::kProbe);
  if ((wait.flags & kUnjudged) || wait.probe_count > kProbes) add_other(b, thread, thread.call);
}

bool waits_for_any(Completion of) { return of == Completion::kAny || of == Completion::kSome; }

/// MPI_Win_start, complete, wait, lock, unlock, flush and the like.
void add_sync(Builder& b, ThreadWait& thread, uint16_t call, const Wait& wait) {
  const auto id = static_cast<CallId>(call);
  const WindowCall of = call_info(id).window;
  const bool posts = of == WindowCall::kStart || of == WindowCall::kComplete, completes = of == WindowCall::kWait;
  const bool group = meaning_of(id).pattern == Pattern::kGroup;
  const uint32_t kept = kept_of(wait);
  if (wait.keys[0] == 0) return add_other(b, thread, call);
  for (uint32_t i = 1; i <= kept; ++i) {
    Part* part = add_part(b, thread);
    if (part == nullptr) return;
    const auto value = static_cast<uint32_t>(wait.keys[i]);
    const auto peer = static_cast<int32_t>(wait.keys[i] >> 32);
    const auto flags = static_cast<uint8_t>(value & kSyncStrict ? 0 : kMayBuffer | kPermitted);
    const uint32_t number = value & ~uint32_t{kSyncStrict};
    if (group || posts || completes)
      *part = {PartKind::kToken,
               group ? uint8_t{0} : flags,
               group ? call : static_cast<uint16_t>(posts ? CallId::kMPI_Win_post : CallId::kMPI_Win_complete),
               peer,
               wait.keys[0],
               group   ? wait.receive_tag
               : posts ? kPostToken
                       : kCompleteToken,
               number,
               0,
               number,
               0,
               0};
    else
      *part = {PartKind::kLock,
               flags,
               call,
               peer,
               wait.keys[0],
               static_cast<int32_t>(number & kSyncExclusive),
               0,
               0,
               0,
               0,
               0};
  }
  if (wait.count > kept) thread.truncated = 1;
}

/// Not from the entry of MPI_COMM_WORLD: MPI_Finalize may delete that first.
void add_finalize(Builder& b, ThreadWait& thread, const ring::Record& record) {
  const uint64_t world = load(b.section.final_comm);
  if (world == 0) return add_other(b, thread, record.call);
  if (Part* part = add_part(b, thread); part != nullptr)
    *part = {PartKind::kCollective,          0, record.call, ring::kNoPeer, world, ring::kNoTag, 0, 0, 0,
             load(b.section.final_sequence), 0};
}

/// A transfer in order needs the amounts of the ranks below, if it has data and is whole; all others may wait.
uint8_t transfer_flags(Pattern pattern, CallId id, const Wait& wait) {
  constexpr uint32_t kWhole = kCallHasData | kCallBlocking;
  const bool must =
      pattern == Pattern::kOrdered && (wait.flags & kEmptyHere) == 0 && (call_info(id).attributes & kWhole) == kWhole;
  return static_cast<uint8_t>(kTransfer | (pattern == Pattern::kOrdered ? int{kLowerOnly} : 0) |
                              (must ? 0 : int{kMayBuffer}));
}

void add_call(Builder& b, ThreadWait& thread, const ring::Record& record, const Wait& wait) {
  const auto id = static_cast<CallId>(record.call);
  const CallMeaning meaning = meaning_of(id);
  Source from = {record.call, comm_at(b.watched, record.comm).id, wait.peer, record.tag, 0, record.bytes, 0, 0};
  switch (meaning.handling) {
    case Handling::kSend: from.ordinal = wait.send_ordinal; return add_send(b, thread, from, wait.mode);
    case Handling::kReceive:
      from.ordinal = wait.receive_ordinal;
      return add_receive(b, thread, from, PartKind::kReceive);
    case Handling::kSendReceive:
      from.ordinal = wait.send_ordinal;
      add_send(b, thread, from, SendMode::kStandard);
      from.peer = wait.receive_peer;
      from.tag = wait.receive_tag;
      from.ordinal = wait.receive_ordinal;
      return add_receive(b, thread, from, PartKind::kReceive);
    case Handling::kProbe: return add_receive(b, thread, from, PartKind::kProbe);
    case Handling::kWait:
      thread.kind = waits_for_any(call_info(id).completion) ? WaitKind::kAny : WaitKind::kAll;
      if (thread.kind == WaitKind::kAny && (wait.flags & kSatisfied)) {
        thread.kind = WaitKind::kAll;  // of nothing: it is about to return
        return;
      }
      add_requests(b, thread, wait);
      if (thread.part_count == 0) thread.kind = WaitKind::kAll;
      return;
    case Handling::kMakeCollective:  // MPI lets it wait for the others, and return without
      from.flags = kMayBuffer;
      return add_collective(b, thread, from, comm_at(b.watched, record.comm), record.peer,
                            signature_unpack(wait.signature).bytes, 0, {}, wait.sequence);
    case Handling::kCollective:
      if (comm_at(b.watched, record.comm).remote_size >= 0 && from.comm != 0 && wait.sequence != 0 &&
          sources_of(record.call, wait).count == 0 && add_remote(b, thread, from, wait))
        return;
      add_collective(b, thread, from, comm_at(b.watched, record.comm), record.peer,
                     signature_unpack(wait.signature).bytes, wait.flags, sources_of(record.call, wait), wait.sequence);
      if (meaning.pattern == Pattern::kIntercomm && wait.keys[0] != 0)  // the leader also for the other one
        if (Part* part = add_part(b, thread); part != nullptr) {
          const auto number = static_cast<uint32_t>(wait.keys[1]);
          *part = {PartKind::kToken,
                   0,
                   record.call,
                   static_cast<int32_t>(wait.keys[1] >> 32),
                   wait.keys[0],
                   wait.receive_tag,
                   number,
                   0,
                   number,
                   0,
                   0};
        }
      return;
    case Handling::kWindow:
      if (wait.keys[0] == 0) return add_other(b, thread, record.call);
      if (Part* part = add_part(b, thread); part != nullptr)
        *part = {PartKind::kCollective,
                 static_cast<uint8_t>(wait.flags & kEmptyHere ? kMayBuffer : 0),
                 record.call,
                 ring::kNoPeer,
                 wait.keys[0],
                 ring::kNoTag,
                 0,
                 0,
                 0,
                 wait.sequence,
                 0};
      return;
    case Handling::kFile:  // collective transfers may be made without waiting, those in order need to know what comes
                           // before
      if (wait.keys[0] == 0) return add_other(b, thread, record.call);
      if (Part* part = add_part(b, thread); part != nullptr)
        *part = {PartKind::kCollective,
                 transfer_flags(meaning.pattern, id, wait),
                 record.call,
                 ring::kNoPeer,
                 wait.keys[0],
                 ring::kNoTag,
                 0,
                 record.bytes,
                 0,
                 wait.sequence,
                 0};
      return;
    case Handling::kSync: return add_sync(b, thread, record.call, wait);
    case Handling::kFinalize: b.state.in_finalize = 1; return add_finalize(b, thread, record);
    default: return add_other(b, thread, record.call);
  }
}

uint32_t module_of(const Watched& watched, uint64_t site) {
  for (uint32_t i = 0; i < watched.module_count; ++i)
    if (const uint64_t start = load(watched.modules[i].start);
        start != 0 && site >= start && site < load(watched.modules[i].end))
      return i;
  return ~0u;
}

enum class Read { kOutside, kInside, kMoving };

/// One thread at one instant. kMoving: it entered or left a call meanwhile; nothing was added.
Read read_trace(Builder& b, uint32_t index) {
  const ring::TraceBuffer& trace = b.watched.traces[index];
  const Wait& slot = b.section.waits[index];
  const uint64_t current = load(trace.current), head = load(trace.head), steps = load(slot.steps),
                 instance = load(slot.instance);
  const uint64_t run = instance == (kRun | steps) ? instance : 0;
  const uint64_t polls = load(slot.polls);
  const bool polling = run != 0 && run == b.watched.trace_run[index] &&
                       (b.watched.trace_polling[index] || polls != b.watched.trace_polls[index]);
  if ((current == 0 && !polling) || (current == 0 && head == 0)) return Read::kOutside;
  const Wait wait = copy_of(slot);
  ring::Record record = copy_of(ring::record_at(trace, (current != 0 ? current : head) - 1));
  // Between two polls of a run, local queries may have been recorded.
  for (uint64_t back = 1; current == 0 && back < 16 && back < head && record.call < kCallCount &&
                          !is_poll(meaning_of(static_cast<CallId>(record.call)).handling);
       ++back)
    record = copy_of(ring::record_at(trace, head - 1 - back));
  if (record.call >= kCallCount) return Read::kMoving;
  const uint32_t parts_before = b.state.part_count;
  ThreadWait& thread = b.threads[b.state.thread_count];
  thread = {};
  thread.instance = run != 0 ? run : current;
  thread.polls = polling ? polls : 0;
  thread.entered_ns = realtime_of(*b.watched.header, record.time);
  thread.site = record.site;
  thread.site_module = module_of(b.watched, record.site);
  thread.tid = load(trace.tid);
  thread.call = record.call;
  thread.kind = WaitKind::kAll;
  thread.first_part = parts_before;
  if (polling) add_run(b, thread, wait);
  else if (run == 0 && instance == current) add_call(b, thread, record, wait);
  else {  // a call that is not expected to wait, a poll that does not come back, a call around one of a callback
    add_other(b, thread, record.call);
    if (thread.part_count != 0) b.parts[parts_before].bytes = record.bytes;
  }
  __atomic_thread_fence(__ATOMIC_ACQUIRE);
  const bool same =
      load(slot.steps) == steps && load(slot.instance) == instance && (run != 0 || load(trace.current) == current);
  if (!same) {
    b.state.part_count = parts_before;
    return Read::kMoving;
  }
  ++b.state.thread_count;
  if (polling) b.state.activity = RankActivity::kPolling;
  return Read::kInside;
}

/// May every other thread of the process call MPI, or end a wait? Those of MPI and of resil may not.
bool threads_are_known(const Builder& b) {
  int32_t tids[512];
  char scratch[2048];
  const int count = list_threads(b.watched.pid, tids, 512, scratch, sizeof(scratch));
  if (count <= 0 || count > 512) return false;
  const uint32_t own = load(b.section.own_thread_count) < kOwnThreads ? load(b.section.own_thread_count) : kOwnThreads;
  for (int i = 0; i < count; ++i) {
    bool known = false;
    for (uint32_t k = 0; k < b.state.thread_count && !known; ++k) known = b.threads[k].tid == tids[i];
    for (uint32_t k = 0; k < own && !known; ++k) known = b.section.own_threads[k] == tids[i];
    if (!known) return false;
  }
  return true;
}

void read_threads(Builder& b) {
  uint32_t outside = 0;
  for (uint32_t i = 0; i < b.watched.trace_count; ++i) {
    const uint64_t polls = load(b.section.waits[i].polls);
    b.state.polls += polls;
    b.state.calls += load(b.section.waits[i].steps) + polls;
    if (load(b.watched.traces[i].state) != static_cast<uint32_t>(ring::TraceState::kLive)) continue;
    Read read = Read::kMoving;
    for (int tries = 0; tries < kTries && read == Read::kMoving; ++tries) read = read_trace(b, i);
    outside += read != Read::kInside;
  }
  const bool multiple = load(b.section.thread_level) == 3;
  // Below MPI_THREAD_MULTIPLE nobody else may call MPI while one thread is inside.
  if (b.state.thread_count == 0 || (multiple && outside != 0)) b.state.activity = RankActivity::kComputing;
  else if (b.state.activity != RankActivity::kPolling) b.state.activity = RankActivity::kBlocked;
  b.state.provable = !(b.state.irregular & kLostThread) && load(b.section.hidden_receives) == 0 &&
                     (!multiple || (outside == 0 && threads_are_known(b)));
}

bool has_persistent(const Builder& b) {
  for (uint32_t i = 0; i < b.state.part_count; ++i)
    if (b.parts[i].flags & kPersistentPart) return true;
  return false;
}

/// Locks that are held for certain: parts of no thread.
void add_holds(Builder& b) {
  for (const Hold& place : b.section.holds) {
    const uint64_t window = load(place.window);
    if (window == 0 || b.state.part_count == kMaxParts) continue;
    const Hold held = copy_of(place);
    if (held.window == window && load(place.window) == window)
      b.parts[b.state.part_count++] = {
          PartKind::kHold, 0, 0, held.target, window, static_cast<int32_t>(held.exclusive), 0, 0, 0, 0, 0};
  }
}

/// What of the communicators that somebody waits on, here or on another rank, this rank has freed: parts of no thread.
void add_freed(Builder& b, WantedComms wanted) {
  if (load(b.section.freed_count) == 0) return;
  const uint32_t own = b.state.part_count;
  auto add = [&](uint64_t id) {
    for (uint32_t i = own; i < b.state.part_count; ++i)
      if (b.parts[i].comm == id) return;
    if (id != 0 && b.state.part_count < kMaxParts && read_freed(b.watched, id, &b.parts[b.state.part_count]))
      ++b.state.part_count;
  };
  for (uint32_t i = 0; i < own; ++i) add(b.parts[i].comm);
  for (uint32_t i = 0; i < wanted.count; ++i) add(wanted.ids[i]);
}

/// Processor time that the thread has used, ms; 0: not known.
uint32_t thread_cpu_ms(int32_t pid, int32_t tid) {
  char text[64];
  read_thread_file(pid, tid, "schedstat", text, sizeof(text));
  return static_cast<uint32_t>(strtoull(text, nullptr, 10) / 1000000);
}

void add_processor_time(Builder& b) {
  for (uint32_t i = 0; i < b.state.thread_count; ++i)
    for (uint32_t k = 0; k < b.threads[i].part_count; ++k)
      if (b.parts[b.threads[i].first_part + k].flags & kPermitted) {
        b.threads[i].cpu_ms = thread_cpu_ms(b.watched.pid, b.threads[i].tid);
        break;
      }
}

}  // namespace

namespace {

/// Of the rank's accelerator, what it has waited for longest.
void read_device(const Section& section, DeviceSeen* seen) {
  const uint64_t now = monotonic_ns();
  for (const DeviceWork& entry : section.device) {
    DeviceWork work;
    if (!device_work_read(entry, &work) || work.since_ns > now || now - work.since_ns < kDeviceLate ||
        now - work.since_ns <= seen->age_ns)
      continue;
    *seen = {now - work.since_ns, work.bytes, work.peer, work.tag, work.kind, work.done, {}, {}};
    memcpy(seen->call, work.call, sizeof(seen->call));
  }
}

}  // namespace

uint32_t snapshot(Watched& watched, void* room, uint32_t room_bytes, WantedComms wanted) {
  if (watched.header == nullptr || watched.section == nullptr) return 0;
  Builder b = {watched, *watched.section, {}, {}, {}};
  b.state.rank = watched.rank;
  b.state.pid = watched.pid;
  b.state.irregular = load(watched.section->irregular);
  const auto phase = static_cast<ring::Phase>(load(watched.header->phase));
  b.state.in_finalize = phase == ring::Phase::kFinalizing;
  const bool fed = load(watched.header->fed) != 0;  // it waits for nobody, and nobody for it
  if (!fed) read_threads(b);
  if (live_threads(watched) > 1 || has_persistent(b)) forget_order(watched, b.parts, b.state.part_count);
  add_holds(b);
  add_freed(b, wanted);
  add_processor_time(b);
  read_device(*watched.section, &b.state.device);
  if (phase == ring::Phase::kFinished || fed) b.state.activity = RankActivity::kFinished;
  const uint32_t fixed = static_cast<uint32_t>(sizeof(RankState) + b.state.thread_count * sizeof(ThreadWait) +
                                               b.state.part_count * sizeof(Part));
  if (room_bytes < fixed) return 0;
  const uint32_t left = static_cast<uint32_t>((room_bytes - fixed) / sizeof(Membership));
  char* to = static_cast<char*>(room);
  auto* memberships = reinterpret_cast<Membership*>(to + fixed);
  if (!fed)
    b.state.comm_count = read_memberships(watched, b.parts, b.state.part_count, memberships,
                                          left < kMaxMemberships ? left : kMaxMemberships);
  b.state.bytes = static_cast<uint32_t>(fixed + b.state.comm_count * sizeof(Membership));
  memcpy(to, &b.state, sizeof(RankState));
  memcpy(to + sizeof(RankState), b.threads, b.state.thread_count * sizeof(ThreadWait));
  memcpy(to + sizeof(RankState) + b.state.thread_count * sizeof(ThreadWait), b.parts,
         b.state.part_count * sizeof(Part));
  return b.state.bytes;
}

}  // namespace resil::hang
