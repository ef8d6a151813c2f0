// SPDX-License-Identifier: Apache-2.0
//
// See writer.h. Each lane has one writer, its thread; envelopes are shared by all threads.

#include "detectors/hang/writer.h"

#include <unistd.h>

#include "detectors/hang/signature.h"
#include "detectors/hang/writer_internal.h"
#include "shim/attach.h"
#include "shim/dispatch.h"
#include "shim/log.h"
#include "shim/runtime.h"
#include "shim/segment.h"
#include "shim/spinlock.h"
#include "shim/task_list.h"

namespace resil::hang {

ThreadSlot thread_slots[kThreadSlots];
Writer writer;

namespace {

Wait private_waits[kThreadSlots];  // of lanes that nobody else sees
int32_t threads_before[256];
int threads_before_count;
SpinLock own_threads_lock;

/// A message that is about to be sent.
[[gnu::always_inline]] inline int32_t count_send(Event& e, uint32_t* ordinal) {
  *ordinal = 0;
  const int32_t world = world_of(e.comm, e.peer);
  if (world < 0) [[unlikely]] {
    if (!can_be_counted(e.comm))
      set_irregular(kLostEnvelope);
    return world;
  }
  Envelope* envelope = envelope_of(e.comm->ring->id, world, e.tag);
  if (envelope != nullptr) [[likely]] {
    const uint64_t number = count_one(envelope->sent);
    if (counts_exactly(*envelope)) [[likely]]
      *ordinal = static_cast<uint32_t>(number);
  }
  return world;
}

/// A receive that is about to be posted.
[[gnu::always_inline]] inline int32_t count_receive(Event& e, int32_t peer, int32_t tag, uint32_t* ordinal) {
  *ordinal = 0;
  const int32_t world = world_of(e.comm, peer);
  if (world < 0 && world != ring::kAnySource) [[unlikely]] {
    if (!can_be_counted(e.comm))
      set_irregular(kLostEnvelope);
    return world;
  }
  if (!can_be_counted(e.comm)) [[unlikely]] {
    set_irregular(kLostEnvelope);
    return kUnknownRank;
  }
  Envelope* envelope = envelope_of(e.comm->ring->id, world, tag);
  if (envelope != nullptr) [[likely]] {
    const uint64_t number = count_one(envelope->posted);
    if (counts_exactly(*envelope)) [[likely]]
      *ordinal = static_cast<uint32_t>(number);
  }
  return world;
}

void take_status_of_blocking(Event& e, int32_t peer, int32_t tag) {
  if (e.result != 0 || !is_wild(peer, tag) || !can_be_counted(e.comm))
    return;
  const int32_t world = world_of(e.comm, peer);
  if (world == kUnknownRank)
    return set_irregular(kUnknownSource);
  took(*e.comm, envelope_of(e.comm->ring->id, world, tag), e.given_statuses, 0, false);
}

bool is_matched_probe(CallId id) { return id == CallId::kMPI_Mprobe || id == CallId::kMPI_Improbe; }

void start_collective(Event& e, ThreadSlot& slot, Kind kind) {
  Wait& wait = *slot.wait;
  wait.peer = world_of(e.comm, e.peer);
  wait.signature = signature_of(e, kind, slot, &wait.flags);
  wait.sequence = count_collective(e.comm != nullptr ? e.comm->index : 0, wait.signature);
}

/// MPI_Finalize is the last collective on MPI_COMM_WORLD: whoever is in it will never send again, nor call another one.
void enter_finalize(Event& e, Wait& wait) {
  wait.peer = ring::kNoPeer;
  wait.flags = 0;
  wait.signature = signature_pack({static_cast<uint16_t>(CallId::kMPI_Finalize), OpKind::kNone, kNoRoot, kBytesNotCompared});
  wait.sequence = 0;
  // Attributes are set by a local call, which no module sees; on which communicator is not known.
  uint64_t attributes = 0;
  for (uint32_t lane = 0; lane < runtime.lane_count; ++lane)
    for (const CallId id : {CallId::kMPI_Comm_set_attr, CallId::kMPI_Attr_put})
      attributes += runtime.lanes[lane].counters[static_cast<unsigned>(id)].count;
  if (attributes != 0)
    set_irregular(kSelfAttribute);
  if (!runtime_has_world())
    return;
  if (const CommInfo* world = comm_lookup(*e.thread, backend->comm_world()); can_be_counted(world)) {
    wait.sequence = count_collective(world->index, wait.signature);
    __atomic_store_n(&writer.section->final_sequence, wait.sequence, __ATOMIC_RELEASE);
    __atomic_store_n(&writer.section->final_comm, world->ring->id, __ATOMIC_RELEASE);
  }
}

[[gnu::noinline]] void failed(Event& e, const CallMeaning& meaning) {
  switch (meaning.role) {
    case Role::kCollective:
    case Role::kPostCollective:
      set_irregular(kFailedCall);
      return e.comm != nullptr ? collective_failed(e.comm->index, e.comm->ring->id) : void();
    case Role::kOther:
    case Role::kOtherPoll:
    case Role::kMakeCollective:
    case Role::kMakeSend:
    case Role::kMakeReceive:
      if (!(e.attributes & (kCallActivates | kCallP2P)) || (e.attributes & kCallPersistent))
        return;
      break;
    default:
      break;
  }
  set_irregular(kFailedCall);
}

}  // namespace

size_t writer_ring_bytes(uint32_t* entry_bytes) {
  *entry_bytes = 8;
  return (section_bytes(kRingRequests) + 7) & ~size_t{7};
}

bool writer_start() {
  unsigned long bytes = 0;
  auto* section = static_cast<Section*>(segment_section("hang", &bytes));
  if (section == nullptr || bytes < section_bytes(runtime.request_count)) {
    add_note("hang detection: no room for this rank's slots");
    return false;
  }
  envelopes_prepare(*section);
  writer.pending = reinterpret_cast<Pending*>(section + 1);
  writer.pending_count = runtime.request_count;
  writer.null_key = backend->request_null();
  writer.empty_key = backend->request_empty() != 0 ? backend->request_empty() : writer.null_key;
  writer.shared_mask = backend->shared_mask;
  writer.shared_mark = backend->shared_mark;
  for (uint32_t i = 0; i < kThreadSlots; ++i) {
    const bool shown = i < kSharedLanes && i < runtime.lane_count;
    thread_slots[i].wait = shown ? &section->waits[i] : &private_waits[i];
  }
  char scratch[2048];
  threads_before_count = list_threads(0, threads_before, sizeof(threads_before) / sizeof(threads_before[0]), scratch, sizeof(scratch));
  writer.section = section;
  return true;
}

void writer_own_thread(int32_t tid) {
  if (writer.section == nullptr)
    return;
  SpinGuard guard(own_threads_lock);
  Section& section = *writer.section;
  if (section.own_thread_count >= kOwnThreads)
    return;
  section.own_threads[section.own_thread_count] = tid;
  __atomic_store_n(&section.own_thread_count, section.own_thread_count + 1, __ATOMIC_RELEASE);
}

void writer_after_init() {
  if (writer.section == nullptr)
    return;
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
    for (int k = 0; k < threads_before_count && !was_there; ++k)
      was_there = threads_before[k] == now[i];
    for (uint32_t lane = 0; lane < runtime.lane_count && !was_there; ++lane)
      was_there = runtime.lanes[lane].tid == now[i];
    if (!was_there)
      writer_own_thread(now[i]);
  }
  threads_before_count = -1;  // once: what a session finds later may be the program's
}

void writer_thread_start(Thread& thread) {
  if (writer.section != nullptr && thread.lane_index >= kSharedLanes)
    set_irregular(kLostThread);
}

void writer_enter(Event& e) {
  if (writer.section == nullptr)
    return;
  ThreadSlot& slot = slot_of(e);
  Wait& wait = *slot.wait;
  const CallMeaning meaning = meaning_of(e.id);
  if (is_poll(meaning.role))
    return poll_enter(e, slot, meaning.role);
  bump(wait.steps);
  wait_begin(wait);
  switch (meaning.role) {
    case Role::kSend:
      wait.peer = count_send(e, &wait.send_ordinal);
      wait.mode = meaning.mode;
      break;
    case Role::kPostSend:
      wait.peer = count_send(e, &wait.send_ordinal);
      return;
    case Role::kReceive:
      wait.peer = count_receive(e, e.peer, e.tag, &wait.receive_ordinal);
      if (is_wild(e.peer, e.tag))
        give_statuses(e);
      break;
    case Role::kPostReceive:
      wait.peer = count_receive(e, e.peer, e.tag, &wait.receive_ordinal);
      return;
    case Role::kSendReceive:
    case Role::kPostBoth:
      wait.peer = count_send(e, &wait.send_ordinal);
      wait.mode = SendMode::kStandard;
      wait.receive_peer = count_receive(e, e.receive_peer, e.receive_tag, &wait.receive_ordinal);
      wait.receive_tag = e.receive_tag;
      if (meaning.role == Role::kPostBoth)
        return;
      if (is_wild(e.receive_peer, e.receive_tag))
        give_statuses(e);
      break;
    case Role::kProbe:
      wait.peer = world_of(e.comm, e.peer);
      if (is_matched_probe(e.id))
        give_statuses(e);
      break;
    case Role::kMakeSend:
    case Role::kMakeReceive:
      wait.peer = world_of(e.comm, e.peer);
      return;
    case Role::kWait:
      keep_keys(e, wait);
      if (__atomic_load_n(&writer.wild_requests, __ATOMIC_RELAXED) != 0)
        give_statuses(e);
      break;
    case Role::kFree:
      return freeing(e);
    case Role::kCollective:
      start_collective(e, slot, meaning.kind);
      break;
    case Role::kPostCollective:
      start_collective(e, slot, meaning.kind);
      return;
    case Role::kMakeCollective:
      wait.peer = world_of(e.comm, e.peer);
      wait.signature = signature_of(e, meaning.kind, slot, &wait.flags);
      return;
    case Role::kForeign:
      set_irregular(kOtherWorld);
      if (e.comm != nullptr)
        start_collective(e, slot, meaning.kind);
      break;
    case Role::kFinalize:
      enter_finalize(e, wait);
      break;
    case Role::kCancel:
      set_irregular(kCancelled);
      return;
    case Role::kPartitioned:
      set_irregular(kPartitionedUse);
      return;
    default:
      return;
  }
  wait_publish(wait, e.record_number);
}

void writer_leave(Event& e) {
  if (writer.section == nullptr)
    return;
  const CallMeaning meaning = meaning_of(e.id);
  if (e.result != 0) [[unlikely]]
    failed(e, meaning);
  Wait& wait = *slot_of(e).wait;
  switch (meaning.role) {
    case Role::kReceive:
      return take_status_of_blocking(e, e.peer, e.tag);
    case Role::kSendReceive:
      return take_status_of_blocking(e, e.receive_peer, e.receive_tag);
    case Role::kProbe:
      if (is_matched_probe(e.id) && e.result == 0 && can_be_counted(e.comm))
        took(*e.comm, nullptr, e.given_statuses, 0, false);
      return;
    case Role::kProbePoll:
      if (is_matched_probe(e.id) && e.result == 0 && *e.flag != 0 && can_be_counted(e.comm))
        took(*e.comm, nullptr, e.given_statuses, 0, false);
      return poll_leave(e, wait);
    case Role::kTest:
    case Role::kOtherPoll:
      return poll_leave(e, wait);
    case Role::kPostSend:
    case Role::kPostReceive:
    case Role::kPostBoth:
    case Role::kPostMatched:
    case Role::kMakeSend:
    case Role::kMakeReceive:
    case Role::kPostCollective:
    case Role::kMakeCollective:
      if (e.result == 0) [[likely]]
        note_pending(e, meaning, wait);
      return;
    default:
      return;
  }
}

}  // namespace resil::hang
