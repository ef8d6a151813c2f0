// SPDX-License-Identifier: Apache-2.0
//
// See writer.h. Each trace buffer has one writer, its thread; envelopes are shared by all threads.

#include "detectors/hang/slots/writer.h"

#include <unistd.h>

#include <initializer_list>

#include "detectors/hang/slots/signature.h"
#include "detectors/hang/slots/writer_internal.h"
#include "detectors/hang/verdict/note.h"
#include "shim/base/helper_thread.h"
#include "shim/base/spinlock.h"
#include "shim/base/task_list.h"
#include "shim/call/attach.h"
#include "shim/call/dispatch.h"
#include "shim/call/fast_path.h"
#include "shim/call/runtime.h"
#include "shim/ring/segment.h"

namespace resil::hang {

ThreadSlot thread_slots[kThreadSlots];
Writer writer;

namespace {

using Hook = void (*)(Event& e);
Hook enter_of[kCallCount], leave_of[kCallCount];  // by call: as little as each needs
Wait private_waits[kThreadSlots];  // of trace buffers that nobody else sees
int32_t threads_before[256];
int threads_before_count;
SpinLock own_threads_lock;

/// Not in the fast path's registers: a partner that is not a rank of this world, or a communicator without a number.
[[gnu::noinline]] int32_t no_partner(CommInfo* comm, int32_t peer) {
  if (!can_be_counted(comm)) set_irregular(kLostEnvelope);
  return peer >= 0 ? world_of(comm, peer) : peer == ring::kProcNull ? peer : kUnknownRank;
}

/// World rank of a partner that messages are counted for; negative: none, what `no_partner` says.
[[gnu::always_inline]] inline int32_t partner_of(CommInfo* comm, int32_t peer) {
  if (peer < 0 || !can_be_counted(comm)) [[unlikely]]
    return no_partner(comm, peer);
  if (comm->world_ranks_are_ranks) [[likely]]
    return peer;
  const int32_t world = comm_world_rank(*comm, peer);
  return world >= 0 ? world : no_partner(comm, peer);
}

/// Counts a message that is about to be sent, or a receive that is about to be posted.
template <uint64_t Envelope::*counter>
[[gnu::always_inline]] inline int32_t count(Event& e, const DataArgument& data, int32_t peer, int32_t tag,
                                            uint32_t* ordinal) {
  CommInfo* comm = e.comm;
  int32_t world = peer;
  *ordinal = 0;
  if (counter == &Envelope::sent || peer != ring::kAnySource || !can_be_counted(comm)) [[likely]]
    if (world = partner_of(comm, peer); world < 0) [[unlikely]]
      return world;
  Envelope* envelope = envelope_of(comm->ring->id, world, tag);
  if (envelope != nullptr) [[likely]] {
    const uint64_t number = count_one(envelope->*counter);
    if (counts_exactly(*envelope)) [[likely]]
      *ordinal = static_cast<uint32_t>(number);
    constexpr bool kSent = counter == &Envelope::sent;
    const uint32_t& last = kSent ? envelope->handles.sent : envelope->handles.posted;
    if (__atomic_load_n(&last, __ATOMIC_RELAXED) != static_cast<uint32_t>(data.type)) [[unlikely]]
      note_datatype(e, *envelope, kSent, data);
  }
  return world;
}

[[gnu::always_inline]] inline Wait& begin(Event& e) {
  Wait& wait = *slot_of(e).wait;
  bump(wait.steps);
  wait_begin(wait);
  return wait;
}

[[gnu::noinline]] void take_status_of_blocking(Event& e, int32_t peer, int32_t tag) {
  if (e.result != 0 || !can_be_counted(e.comm)) return;
  const int32_t world = world_of(e.comm, peer);
  if (world == kUnknownRank) return set_irregular(kUnknownSource);
  took(*e.comm, envelope_of(e.comm->ring->id, world, tag), e.given_statuses, 0, false);
}

bool is_matched_probe(CallId id) { return class_of(id) == CallClass::kMatchedProbe; }

void start_collective(Event& e, ThreadSlot& slot, Pattern pattern) {
  Wait& wait = *slot.wait;
  wait.peer = world_of(e.comm, e.peer);
  wait.signature = signature_of(e, pattern, slot, &wait.flags);
  __atomic_store_n(&e.record->aux, wait.signature,
                   __ATOMIC_RELAXED);  // a call that starts a request puts its key there
  wait.sequence =
      count_collective(e.comm != nullptr ? e.comm->index : 0, wait.signature, common_type(e, pattern, wait.signature));
}

/// MPI_Finalize is the last collective on MPI_COMM_WORLD: whoever is in it will never send again, nor call another one.
void enter_finalize(Event& e, Wait& wait) {
  wait.peer = ring::kNoPeer;
  wait.flags = 0;
  wait.signature = signature_pack({static_cast<uint16_t>(e.id), OpKind::kNone, kNoRoot, kBytesNotCompared});
  wait.sequence = 0;
  // Attributes are set by a local call, which no module sees; on which communicator is not known.
  uint64_t attributes = 0;
  for (uint32_t trace = 0; trace < runtime.trace_count; ++trace)
    for (const CallId id : {CallId::kMPI_Comm_set_attr, CallId::kMPI_Attr_put})
      attributes += runtime.traces[trace].counters[static_cast<unsigned>(id)].count;
  if (attributes != 0) set_irregular(kSelfAttribute);
  if (!runtime_has_world()) return;
  if (const CommInfo* world = comm_lookup(*e.thread, backend->comm_world()); can_be_counted(world)) {
    wait.sequence = count_collective(world->index, wait.signature);
    __atomic_store_n(&writer.section->final_sequence, wait.sequence, __ATOMIC_RELEASE);
    __atomic_store_n(&writer.section->final_comm, world->ring->id, __ATOMIC_RELEASE);
  }
}

[[gnu::noinline]] void failed(Event& e, const CallMeaning& meaning) {
  switch (meaning.handling) {
    case Handling::kCollective:
    case Handling::kPostCollective:
    case Handling::kMakeCollective:
      set_irregular(kFailedCall);
      return e.comm != nullptr ? collective_failed(e.comm->index, e.comm->ring->id) : void();
    case Handling::kSync:
    case Handling::kSyncPoll:
    case Handling::kOperate: return set_irregular(kLostWindow);
    case Handling::kOther:
    case Handling::kOtherPoll:
    case Handling::kMakeSend:
    case Handling::kMakeReceive:
      if (!(e.attributes & (kCallActivates | kCallP2P)) || (e.attributes & kCallPersistent)) return;
      break;
    default: break;
  }
  set_irregular(kFailedCall);
}

/// A thread that is not the program's and will never call MPI, or the end of one: its number may come again.
void own_thread(int32_t tid, bool begins) {
  SpinGuard guard(own_threads_lock);
  Section& section = *writer.section;
  const uint32_t count = section.own_thread_count;
  uint32_t place = 0, free_place = count;
  for (; place < count && section.own_threads[place] != tid; ++place)
    if (section.own_threads[place] == 0) free_place = place;
  if (place == count) {
    place = free_place;
    if (!begins || place == kOwnThreads) return;
    if (place == count) __atomic_store_n(&section.own_thread_count, count + 1, __ATOMIC_RELEASE);
  }
  __atomic_store_n(&section.own_threads[place], begins ? tid : 0, __ATOMIC_RELEASE);
}

// --- On the way in, by handling -------------------------------------------------------------------------------------

void enter_nothing(Event&) {}
void enter_other(Event& e) { begin(e); }
void enter_matched_receive(Event& e) {
  begin(e);
  message_receiving(e);
}

template <SendMode mode, bool published>
void enter_send(Event& e) {
  Wait& wait = begin(e);
  wait.peer = count<&Envelope::sent>(e, e.send, e.peer, e.tag, &wait.send_ordinal);
  if (!published) return;
  wait.mode = mode;
  wait_publish(wait, e.record_number);
}

template <bool published>
void enter_receive(Event& e) {
  Wait& wait = begin(e);
  wait.peer = count<&Envelope::posted>(e, e.receive, e.peer, e.tag, &wait.receive_ordinal);
  if (!published) return;
  if (is_wild(e.peer, e.tag)) [[unlikely]]
    give_statuses(e);
  wait_publish(wait, e.record_number);
}

template <bool published, bool replaces>
void enter_both(Event& e) {
  Wait& wait = begin(e);
  wait.peer = count<&Envelope::sent>(e, e.send, e.peer, e.tag, &wait.send_ordinal);
  wait.mode = SendMode::kStandard;
  wait.receive_peer =
      count<&Envelope::posted>(e, replaces ? e.send : e.receive, e.receive_peer, e.receive_tag, &wait.receive_ordinal);
  wait.receive_tag = e.receive_tag;
  if (!published) return;
  if (is_wild(e.receive_peer, e.receive_tag)) [[unlikely]]
    give_statuses(e);
  wait_publish(wait, e.record_number);
}

void enter_probe(Event& e) {
  Wait& wait = begin(e);
  wait.peer = world_of(e.comm, e.peer);
  if (is_matched_probe(e.id)) give_statuses(e);
  wait_publish(wait, e.record_number);
}

void enter_make(Event& e) { begin(e).peer = world_of(e.comm, e.peer); }

void enter_wait(Event& e) {
  Wait& wait = begin(e);
  keep_keys(e, wait);
  if (__atomic_load_n(&fast::statuses_wanted, __ATOMIC_RELAXED) != 0) [[unlikely]]
    give_statuses(e);
  wait_publish(wait, e.record_number);
}

void enter_free(Event& e) {
  begin(e);
  freeing(e);
}

void enter_collective(Event& e) {
  Wait& wait = begin(e);
  start_collective(e, slot_of(e), meaning_of(e.id).pattern);
  wait_publish(wait, e.record_number);
}

void enter_vector(Event& e) {
  Wait& wait = begin(e);
  start_collective(e, slot_of(e), meaning_of(e.id).pattern);
  list_sources(e, meaning_of(e.id).pattern, wait);
  if (meaning_of(e.id).handling == Handling::kPostCollective) return;
  wait_publish(wait, e.record_number);
}

void enter_release(Event& e) {
  Wait& wait = begin(e);
  start_collective(e, slot_of(e), Pattern::kRelease);
  comm_free_enter(e, wait);
  wait_publish(wait, e.record_number);
}

void enter_intercomm(Event& e) {
  Wait& wait = begin(e);
  start_collective(e, slot_of(e), Pattern::kIntercomm);
  leader_enter(e, wait);
  wait_publish(wait, e.record_number);
}

/// `waits`: writes what it waits for.
template <void (*waits)(Event&, Wait&)>
void enter_waiting(Event& e) {
  Wait& wait = begin(e);
  waits(e, wait);
  wait_publish(wait, e.record_number);
}

void enter_post_collective(Event& e) {
  begin(e);
  start_collective(e, slot_of(e), meaning_of(e.id).pattern);
}

void enter_foreign(Event& e) {
  Wait& wait = begin(e);
  set_irregular(kOtherWorld);
  if (e.comm != nullptr) start_collective(e, slot_of(e), Pattern::kNone);
  wait_publish(wait, e.record_number);
}

void enter_file(Event& e) {
  Wait& wait = begin(e);
  file_enter(e, wait);
  if (call_info(e.id).file == FileCall::kClose) file_closing(e);
  wait_publish(wait, e.record_number);
}

void enter_operate(Event& e) {
  begin(e);
  operate_enter(e);
}

template <IrregularFlag flag>
void enter_irregular(Event& e) {
  begin(e);
  set_irregular(flag);
}

void enter_test(Event& e) { poll_enter(e, slot_of(e), Handling::kTest); }
void enter_probe_poll(Event& e) { poll_enter(e, slot_of(e), Handling::kProbePoll); }
void enter_sync_poll(Event& e) { poll_enter(e, slot_of(e), Handling::kSyncPoll); }
void enter_other_poll(Event& e) { poll_enter(e, slot_of(e), Handling::kOtherPoll); }

Hook enter_hook(CallId id) {
  const CallMeaning& meaning = meaning_of(id);
  const bool replaces = class_of(id) == CallClass::kSendReceiveReplace;
  if (has_sources(meaning.pattern)) return enter_vector;
  if (class_of(id) == CallClass::kMatchedReceive) return enter_matched_receive;
  switch (meaning.handling) {
    case Handling::kSend:
      switch (call_info(id).mode) {
        case SendMode::kStandard: return enter_send<SendMode::kStandard, true>;
        case SendMode::kSynchronous: return enter_send<SendMode::kSynchronous, true>;
        case SendMode::kBuffered: return enter_send<SendMode::kBuffered, true>;
        case SendMode::kReady: return enter_send<SendMode::kReady, true>;
      }
      return enter_other;
    case Handling::kPostSend: return enter_send<SendMode::kStandard, false>;
    case Handling::kReceive: return enter_receive<true>;
    case Handling::kPostReceive: return enter_receive<false>;
    case Handling::kSendReceive: return replaces ? enter_both<true, true> : enter_both<true, false>;
    case Handling::kPostBoth: return replaces ? enter_both<false, true> : enter_both<false, false>;
    case Handling::kProbe: return enter_probe;
    case Handling::kMakeSend:
    case Handling::kMakeReceive: return enter_make;
    case Handling::kWait: return enter_wait;
    case Handling::kFree: return enter_free;
    case Handling::kTest: return enter_test;
    case Handling::kProbePoll: return enter_probe_poll;
    case Handling::kOtherPoll: return enter_other_poll;
    case Handling::kSyncPoll: return enter_sync_poll;
    case Handling::kSync:
      return meaning.pattern == Pattern::kGroup ? enter_waiting<members_enter> : enter_waiting<sync_enter>;
    case Handling::kFile: return enter_file;
    case Handling::kOperate: return enter_operate;
    case Handling::kCollective:
      return meaning.pattern == Pattern::kIntercomm ? enter_intercomm
             : meaning.pattern == Pattern::kRelease ? enter_release
                                                    : enter_collective;
    case Handling::kMakeCollective: return enter_collective;  // persistent ones match by this call: it has the number
    case Handling::kPostCollective: return enter_post_collective;
    case Handling::kForeign: return enter_foreign;
    case Handling::kFinalize: return enter_waiting<enter_finalize>;
    case Handling::kWindow: return enter_waiting<window_enter>;
    case Handling::kCancel: return enter_irregular<kCancelled>;
    case Handling::kPartitioned: return enter_irregular<kPartitionedUse>;
    case Handling::kPostMatched:
    case Handling::kOther: break;
  }
  return enter_other;
}

// --- On the way out -------------------------------------------------------------------------------------------------

[[gnu::noinline]] void leave_failed(Event& e) { failed(e, meaning_of(e.id)); }

void leave_plain(Event& e) {
  if (e.result != 0) [[unlikely]]
    leave_failed(e);
}

void leave_receive(Event& e) {
  if (e.result != 0 || is_wild(e.peer, e.tag)) [[unlikely]] {
    leave_plain(e);
    if (is_wild(e.peer, e.tag)) take_status_of_blocking(e, e.peer, e.tag);
  }
}

void leave_both(Event& e) {
  if (e.result != 0 || is_wild(e.receive_peer, e.receive_tag)) [[unlikely]] {
    leave_plain(e);
    if (is_wild(e.receive_peer, e.receive_tag)) take_status_of_blocking(e, e.receive_peer, e.receive_tag);
  }
}

void leave_matched_probe(Event& e) {
  leave_plain(e);
  if (e.result == 0 && (!(e.attributes & kCallPoll) || *e.flag != 0)) {
    const bool counted = can_be_counted(e.comm);
    message_probed(request_handle(e.message, 0),
                   counted ? took(*e.comm, nullptr, e.given_statuses, 0, false) : nullptr);
  }
  if (e.attributes & kCallPoll) poll_leave(e, *slot_of(e).wait);
}

void leave_poll(Event& e) {
  leave_plain(e);
  poll_leave(e, *slot_of(e).wait);
}

void leave_request(Event& e) {
  if (e.result != 0) [[unlikely]]
    return leave_failed(e);
  note_pending(e, meaning_of(e.id), *slot_of(e).wait);
}

void leave_window(Event& e) {
  if (e.result != 0) return set_irregular(kUnknownOrder);
  if (call_info(e.id).window == WindowCall::kFree) window_freed(e);
}

void leave_sync(Event& e) {
  if (e.result != 0) return leave_failed(e);
  sync_leave(e);
}

void leave_release(Event& e) {
  if (e.result != 0) [[unlikely]]
    return leave_failed(e);
  comm_freed(e, *slot_of(e).wait);
}

void leave_window_made(Event& e) {
  if (e.result != 0) [[unlikely]]
    return leave_failed(e);
  const Wait& wait = *slot_of(e).wait;
  if (wait.instance == e.record_number)  // no callback has used it meanwhile
    window_made(e, wait.sequence);
}

void leave_file_made(Event& e) {
  if (e.result != 0) [[unlikely]]
    return leave_failed(e);
  const Wait& wait = *slot_of(e).wait;
  if (wait.instance == e.record_number) file_made(e, wait.sequence);
}

/// Files return errors to the program, and whether such a call counts nobody knows: the file is not judged any more.
void leave_file(Event& e) {
  const Wait& wait = *slot_of(e).wait;
  if (e.result == 0 && call_info(e.id).file == FileCall::kClose && wait.instance == e.record_number)
    file_freed(e, wait.keys[0]);
  if ((e.result != 0 || call_info(e.id).file == FileCall::kClose) && wait.instance == e.record_number)
    file_forget(wait.keys[0]);
  else if (e.result != 0) file_closing(e);
}

void leave_vector_request(Event& e) {
  leave_request(e);
  publish_sources(e, *slot_of(e).wait);
}

/// The usual nonblocking messages; what else there is: note_pending.
template <SendMode mode>
void leave_post_send(Event& e) {
  const int64_t index = e.result == 0 && e.cookies != nullptr ? request_index(e.cookies) : -1;
  if (index < 0) [[unlikely]]
    return leave_request(e);
  const Wait& wait = *slot_of(e).wait;
  Pending& pending = writer.pending[index];
  pending.peer = wait.peer;
  pending.ordinal = wait.send_ordinal;
  pending.mode = static_cast<uint8_t>(mode);
  pending.both = 0;
}

void leave_post_receive(Event& e) {
  const int64_t index =
      e.result == 0 && e.cookies != nullptr && !is_wild(e.peer, e.tag) ? request_index(e.cookies) : -1;
  if (index < 0) [[unlikely]]
    return leave_request(e);
  const Wait& wait = *slot_of(e).wait;
  Pending& pending = writer.pending[index];
  pending.peer = wait.peer;
  pending.ordinal = wait.receive_ordinal;
}

Hook leave_hook(CallId id) {
  const Handling handling = meaning_of(id).handling;
  if (has_sources(meaning_of(id).pattern) && handling != Handling::kCollective) return leave_vector_request;
  if (is_matched_probe(id)) return leave_matched_probe;
  if (call_info(id).file == FileCall::kOpen) return leave_file_made;
  if (handling == Handling::kCollective && (call_info(id).attributes & kCallRma)) return leave_window_made;
  if (handling == Handling::kCollective && meaning_of(id).pattern == Pattern::kRelease) return leave_release;
  switch (handling) {
    case Handling::kReceive: return leave_receive;
    case Handling::kWindow: return leave_window;
    case Handling::kSync: return meaning_of(id).pattern == Pattern::kGroup ? leave_plain : leave_sync;
    case Handling::kFile: return leave_file;
    case Handling::kSendReceive: return leave_both;
    case Handling::kProbePoll:
    case Handling::kTest:
    case Handling::kSyncPoll:
    case Handling::kOtherPoll: return leave_poll;
    case Handling::kPostSend:
      switch (call_info(id).mode) {
        case SendMode::kStandard: return leave_post_send<SendMode::kStandard>;
        case SendMode::kSynchronous: return leave_post_send<SendMode::kSynchronous>;
        case SendMode::kBuffered: return leave_post_send<SendMode::kBuffered>;
        case SendMode::kReady: return leave_post_send<SendMode::kReady>;
      }
      return leave_request;
    case Handling::kPostReceive: return leave_post_receive;
    case Handling::kPostBoth:
    case Handling::kPostMatched:
    case Handling::kMakeSend:
    case Handling::kMakeReceive:
    case Handling::kPostCollective:
    case Handling::kMakeCollective: return leave_request;
    default: return leave_plain;
  }
}

}  // namespace

size_t writer_ring_bytes(uint32_t* entry_bytes) {
  *entry_bytes = 8;
  return (section_bytes(kRingRequests) + 7) & ~size_t{7};
}

bool writer_start() {
  for (unsigned id = 0; id < kCallCount; ++id) enter_of[id] = leave_of[id] = enter_nothing;
  unsigned long bytes = 0;
  auto* section = static_cast<Section*>(segment_section("hang", &bytes));
  if (section == nullptr || bytes < section_bytes(runtime.request_count)) {
    note(Message::kNoSlots);
    return false;
  }
  envelopes_prepare(*section);
  writer.pending = reinterpret_cast<Pending*>(section + 1);
  writer.pending_count = runtime.request_count;
  writer.handle_bytes = backend->handle_bytes;
  for (uint32_t i = 0; i < kThreadSlots; ++i) {
    const bool shown = i < kSharedTraces && i < runtime.trace_count;
    thread_slots[i].wait = shown ? &section->waits[i] : &private_waits[i];
  }
  char scratch[2048];
  threads_before_count =
      list_threads(0, threads_before, sizeof(threads_before) / sizeof(threads_before[0]), scratch, sizeof(scratch));
  writer.section = section;
  fast::pending = writer.pending;
  device_work = section->device;
  __atomic_store_n(&helper_thread_told, &own_thread, __ATOMIC_RELEASE);
  for (unsigned id = 0; id < kCallCount; ++id) {
    enter_of[id] = enter_hook(static_cast<CallId>(id));
    leave_of[id] = leave_hook(static_cast<CallId>(id));
  }
  return true;
}

void writer_after_init() {
  if (writer.section == nullptr) return;
  const bool multiple = !runtime_has_world() || backend->thread_multiple();
  envelopes.concurrent = multiple;
  __atomic_store_n(&writer.section->thread_level, multiple ? 3 : 0, __ATOMIC_RELAXED);
  // What was there before MPI_Init is the program's; what came meanwhile is MPI's.
  constexpr int kRoom = sizeof(threads_before) / sizeof(threads_before[0]);
  static int32_t now[kRoom];
  char scratch[2048];
  const int count = list_threads(0, now, kRoom, scratch, sizeof(scratch));
  for (int i = 0; threads_before_count >= 0 && threads_before_count <= kRoom && i < count && i < kRoom; ++i) {
    bool was_there = now[i] == getpid();
    for (int k = 0; k < threads_before_count && !was_there; ++k) was_there = threads_before[k] == now[i];
    for (uint32_t trace = 0; trace < runtime.trace_count && !was_there; ++trace)
      was_there = __atomic_load_n(&runtime.traces[trace].tid, __ATOMIC_RELAXED) == now[i];
    if (!was_there) own_thread(now[i], true);
  }
  threads_before_count = -1;  // once: what a session finds later may be the program's
}

void writer_thread_start(Thread& thread) {
  if (writer.section != nullptr && thread.trace_index >= kSharedTraces) set_irregular(kLostThread);
}

void writer_enter(Event& e) { enter_of[static_cast<unsigned>(e.id)](e); }
void writer_leave(Event& e) { leave_of[static_cast<unsigned>(e.id)](e); }

}  // namespace resil::hang
