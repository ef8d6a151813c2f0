// SPDX-License-Identifier: Apache-2.0
//
// Shared by the parts of the writing side. Not for others.
#pragma once

#include <cstdint>

#include "detectors/hang/slots/calls.h"
#include "detectors/hang/slots/envelopes.h"
#include "detectors/hang/slots/layout.h"
#include "shim/abi/backend.h"
#include "shim/model/event.h"
#include "shim/tables/tables.h"

namespace resil::hang {

/// What a thread keeps, by trace buffer.
struct alignas(64) ThreadSlot {
  Wait* wait;  ///< in the section; of trace buffers beyond it, private
  uint64_t op;  ///< handle last asked for
  OpKind op_kind;
  uint32_t cursor;  ///< runs of polls: which key comes next if they go round
};
constexpr uint32_t kThreadSlots = 64;
extern ThreadSlot thread_slots[kThreadSlots];

struct Writer {
  Section* section;  ///< null: nothing is written
  Pending* pending;
  uint32_t pending_count;
  size_t handle_bytes;
};
extern Writer writer;

inline ThreadSlot& slot_of(const Event& e) { return thread_slots[e.thread->trace_index % kThreadSlots]; }

/// Around the writing of a Wait: no reader takes it for that of a call while it is written.
inline void wait_begin(Wait& wait) {
  __atomic_store_n(&wait.instance, 0, __ATOMIC_RELAXED);
  __atomic_thread_fence(__ATOMIC_RELEASE);
}
inline void wait_publish(Wait& wait, uint64_t instance) {
  __atomic_store_n(&wait.instance, instance, __ATOMIC_RELEASE);
}

inline uint64_t bump(uint64_t& own_counter) {
  const uint64_t value = own_counter + 1;
  __atomic_store_n(&own_counter, value, __ATOMIC_RELAXED);
  return value;
}

inline bool is_wild(int32_t peer, int32_t tag) {
  return peer == ring::kAnySource || (tag == ring::kAnyTag && peer >= 0);
}
inline bool can_be_counted(const CommInfo* comm) { return comm != nullptr && comm->index >= 2; }  // not "others"

/// World rank, kAnySource, kProcNull, kUnknownRank or kNoPeer for a communicator rank as events have it.
inline int32_t world_of(CommInfo* comm, int32_t peer) {
  if (peer < 0)
    return peer == ring::kAnySource || peer == ring::kProcNull || peer == ring::kNoPeer ? peer : kUnknownRank;
  if (!can_be_counted(comm)) return kUnknownRank;
  const int32_t world = comm->world_ranks_are_ranks ? peer : comm_world_rank(*comm, peer);
  return world >= 0 ? world : kUnknownRank;
}

// --- writer_requests.cpp -------------------------------------------------------------------------------------------
/// After a call that started or made a request: its Pending entry, from what `wait` holds.
void note_pending(Event& e, const CallMeaning& meaning, const Wait& wait);
/// A receive with a wildcard, or a matched probe, is complete: which message it took. `wild`: null for a probe. Returns
/// the envelope of a message that has data, null if it is not known.
Envelope* took(CommInfo& comm, Envelope* wild, const void* statuses, int64_t place, bool both_ways);
/// Before MPI_Request_free.
void freeing(Event& e);
/// Completing calls: the keys that can be waited for.
void keep_keys(Event& e, Wait& wait);
void poll_enter(Event& e, ThreadSlot& slot, Handling handling);
void poll_leave(Event& e, Wait& wait);

// --- sources.cpp ---------------------------------------------------------------------------------------------------
/// These ranks, or kFromAll.
void list_sources(Event& e, Pattern pattern, Wait& wait);
/// For the request that such a call has started.
void publish_sources(const Event& e, const Wait& wait);

// --- freed.cpp -----------------------------------------------------------------------------------------------------
/// A persistent request was made.
void persistent_made(const Event& e);
/// Around MPI_Comm_free and MPI_Comm_disconnect, where they succeed.
void comm_free_enter(const Event& e, Wait& wait);
void comm_freed(const Event& e, const Wait& wait);
/// After MPI_Win_free or MPI_File_close. `uncounted`: what it had been told by others is forgotten.
void object_freed(const Event& e, const WindowSlot& slot, bool uncounted);

// --- windows.cpp ---------------------------------------------------------------------------------------------------
/// After a call that made a window, number `sequence` on its communicator.
void window_made(Event& e, uint64_t sequence);
/// Before MPI_Win_fence and MPI_Win_free.
void window_enter(Event& e, Wait& wait);
void window_freed(const Event& e);
/// Likewise of files: after MPI_File_open, before the calls that are collective over a file.
void file_made(Event& e, uint64_t sequence);
void file_enter(Event& e, Wait& wait);
/// Before MPI_File_close: another file may have its handle before that call is left.
void file_closing(const Event& e);
void file_forget(uint64_t id);
/// After MPI_File_close.
void file_freed(const Event& e, uint64_t id);
/// Index in Section::windows of the window with that handle; negative: none. Lock-free.
int window_index(uint64_t handle);

// --- epochs.cpp ----------------------------------------------------------------------------------------------------
/// A new window in that slot: no epoch is open.
void epochs_begin(uint32_t index, CommInfo& comm);
/// It is freed: no lock of it is held. True: tokens of it were counted.
bool epochs_end(uint32_t index);
/// Before and after MPI_Win_post, start, complete, wait, lock, unlock and flush, and the like.
void sync_enter(Event& e, Wait& wait);
void sync_leave(Event& e);
/// Before MPI_Win_test: what it asks for, as a probe. False: nobody can tell.
bool sync_polled(const Event& e, Probe* probe);
/// Before MPI_Put and the like.
void operate_enter(Event& e);

// --- message_types.cpp ----------------------------------------------------------------------------------------------
/// Data of another datatype than the last.
/// After a matched probe: whose message that handle is; null: of none that is counted.
void message_probed(uint64_t message, const Envelope* envelope);
/// Before MPI_Mrecv and MPI_Imrecv, while the handle is the message's.
void message_receiving(Event& e);
void note_datatype(Event& e, Envelope& envelope, bool sent, const DataArgument& data);
/// Type signature of the data of a message: kNoType where there is none, kAnyType if it is not predefined.
uint32_t message_type(Event& e, const DataArgument& data);
void note_message_type(uint32_t& of, uint32_t type);
/// A message whose type was found out before is started, or taken.
inline void note_type(Envelope& envelope, bool sent, uint32_t type) {
  uint32_t& of = sent ? envelope.types.sent : envelope.types.posted;
  if (const uint32_t known = __atomic_load_n(&of, __ATOMIC_RELAXED); known != type && known != kAnyType)
    note_message_type(of, type);
}

// --- intercomm.cpp ---------------------------------------------------------------------------------------------------
/// Collectives on an intercommunicator: the ranks of the other group that the call waits for.
void list_remote(Event& e, Pattern pattern, Wait& wait);
/// Before MPI_Intercomm_create.
void leader_enter(Event& e, Wait& wait);
/// Before MPI_Comm_create_group.
void members_enter(Event& e, Wait& wait);

// --- collective_histories.cpp --------------------------------------------------------------------------------------
uint64_t signature_of(Event& e, Pattern pattern, ThreadSlot& slot, uint8_t* flags);
/// The next collective of that communicator; returns its number, 0 when it is not numbered.
uint64_t count_collective(uint32_t comm_index, uint64_t signature, uint32_t type = 0);
/// Type signature (shim/model/datatype/signature.h) of the data that all ranks of the call must have alike; 0: none.
uint32_t common_type(Event& e, Pattern pattern, uint64_t signature);
/// A collective failed: nothing is compared on this communicator any more.
void collective_failed(uint32_t comm_index, uint64_t comm_id);

}  // namespace resil::hang
