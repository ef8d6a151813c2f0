// SPDX-License-Identifier: Apache-2.0
//
// The communicator, request and datatype tables. What readers of the ring file may see lies there; the rest is
// private memory. No table holds a lock across an MPI call; lookups hold none at all.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "shim/abi/backend.h"
#include "shim/call/module.h"
#include "shim/call/runtime.h"
#include "shim/call/thread.h"
#include "shim/model/event.h"
#include "shim/model/transfers.h"

namespace resil {

/// Private half of one communicator; the public half is its ring::Comm.
struct CommInfo {
  uint64_t handle;
  ring::Comm* ring;
  uint32_t index;  ///< in section "comms"
  int32_t size, rank, remote_size;
  ring::CollectiveHistory* history;  ///< of calls that go the fast path: who lets one go it sets this
  bool world_ranks_are_ranks;  ///< the group is MPI_COMM_WORLD's in its order
  int32_t degree_in, degree_out;  ///< of a topology; -1: not asked yet, -2: none
  std::atomic<uint64_t> children;  ///< creating calls on it so far, part of the children's ids
  std::atomic<uint64_t> world_rank_cache[64];  ///< (rank + 1) << 32 | world rank + 1
};

/// Before any lookup: makes the tables over the ring's sections. Allocates.
bool tables_create();
bool request_table_create();
/// Whether several threads may call MPI at the same time; known once MPI_Init has returned.
void request_table_threads(bool multiple);
bool request_table_has_threads();
/// After MPI_Init: MPI_COMM_WORLD and MPI_COMM_SELF.
void comm_register_predefined();
/// The communicator of a part of the world (shim/call/parts.h).
void comm_register_part(uint64_t handle, int part);

/// The communicator behind a handle; registers one that was made where resil could not see it. Never null, but for
/// MPI_COMM_NULL and when the table is full of live communicators: then the shared entry "others".
CommInfo* comm_lookup_slow(Thread& thread, uint64_t handle);
/// The program has given the communicator a name: the ring tells it from now on. Inside MPI_Comm_set_name.
void comm_renamed(uint64_t handle);
/// Goes up whenever a communicator or datatype handle may be reused; what was cached before holds no longer.
/// Inline: who only raises it does not need the tables.
inline std::atomic<uint32_t> handle_generation;
/// Goes up whenever what call sites remember holds no longer, and the threads' caches of communicators. Not with each
/// datatype that is freed: forget_type takes it from the call sites.
inline std::atomic<uint32_t> call_generation;
inline void forget_calls() { call_generation.fetch_add(1, std::memory_order_relaxed); }
/// Before MPI_Type_free, in the thread that calls it: no other one can have the handle again until the real call has
/// begun. Sizes and call sites of reused handles must not survive.
void forget_type(Thread* thread, uint64_t type);

inline CommInfo* comm_lookup(Thread& thread, uint64_t handle) {
  const CommCacheEntry& entry = thread.comms[(handle ^ (handle >> 7)) % kCommCache];
  if (entry.handle == handle && thread.comm_generation == call_generation.load(std::memory_order_relaxed)) [[likely]]
    return entry.info;
  return comm_lookup_slow(thread, handle);
}

/// Job-wide id of the communicator that this call is about to create; called on entry, so that ordinals follow the
/// order of the calls. Communication-free (design: The event and the tables).
uint64_t comm_derive_id(Event& event);
/// After the call: ids that need what only a successful call proves to be valid.
void comm_creation_succeeded(Event& event);
/// The call has failed and made none: it does not count. Either it failed on all ranks, or on this one before the
/// others could know of it, and will be repeated.
void comm_creation_failed(Event& event);
/// After the call (or at the completion of MPI_Comm_idup): enters the new communicator under that id.
void comm_register_new(Thread& thread, uint64_t handle, uint64_t derived, const CommInfo* parent, CallId how,
                       uint64_t site);
/// From the attribute's delete callback, any thread inside MPI.
void comm_forget(CommInfo* info);
/// World rank of a communicator rank (remote group of an intercommunicator); -1 when it has none. May ask MPI once.
int comm_world_rank(CommInfo& comm, int rank);
/// Job-wide id of MPI_COMM_WORLD of that world (0, or N for a spawned one).
uint64_t world_comm_id(int world);

/// Handles that operations share which were complete at once: nothing to remember. Asked of the backend once.
struct SharedRequests {
  uint64_t null_key, empty_key;
};
extern SharedRequests shared_requests;
/// Such a handle has no entry.
inline bool request_is_shared(uint64_t key) {
  return key == shared_requests.null_key || key == shared_requests.empty_key ||
         key - backend->shared_first < backend->shared_span;
}

/// Requests. Keys are handle bits.
void request_started(Event& event);
void request_activating(Event& event);
void request_activated(Event& event);
/// Requests that the program has neither completed nor freed, one after the other. Returns how many more there are, of
/// which nothing is known.
uint64_t requests_left(void (*visit)(const ring::Request&, void* context), void* context);
/// On entry to a completing call: keeps the handles that the call will overwrite.
void request_remember(Event& event);
/// After it, before the modules' leave hooks: their `completed` hook for each request that is complete.
void request_completed(Event& event);
/// Last of all: gives back the copy of the handles.
inline void request_forget(Event& event) {
  if (event.request_count > 1 && event.scratch != nullptr) [[unlikely]]
    scratch_release(*event.thread, event.scratch);
}
/// The modules' words beside a request that is not complete yet; null: untracked.
uint64_t* request_cookies(const Thread& thread, uint64_t key);
/// Words from one request's to the next one's: a power of two, so that an index is a shift.
constexpr unsigned kRequestStride = 8;
static_assert(kRequestWords <= kRequestStride && (kRequestStride & (kRequestStride - 1)) == 0);
extern uint64_t* request_words;  ///< of the request with index 0 in the ring's section "requests", then of the next
/// Index there of the request with those words (Event::cookies, or what a hook is given of a persistent one); -1: it
/// found no place there.
inline int64_t request_index(const uint64_t* words) {
  const auto place =
      static_cast<uint64_t>(reinterpret_cast<const char*>(words) - reinterpret_cast<const char*>(request_words)) /
      (kRequestStride * sizeof(uint64_t));
  return place < runtime.request_count ? static_cast<int64_t>(place) : -1;
}
/// A persistent request that has not been started, or has been completed since.
bool request_is_inactive(const Thread& thread, uint64_t key);
bool request_is_persistent(const Thread& thread, uint64_t key);

/// Size of a datatype in bytes. May ask MPI once per handle.
int64_t type_size_slow(Thread& thread, uint64_t type);
inline int64_t type_size(Thread& thread, uint64_t type) {
  const TypeCacheEntry& entry = thread.types[(type ^ (type >> 9)) % kTypeCache];
  if (entry.handle == type && thread.type_generation == handle_generation.load(std::memory_order_relaxed)) [[likely]]
    return entry.size;
  return type_size_slow(thread, type);
}

/// A communicator as shim/model/transfers.h wants it, without a topology.
inline Members members_of(const CommInfo& comm) { return {comm.rank, comm.size, comm.remote_size, 0, 0}; }
/// With its topology, which MPI is asked about once.
Members neighbors_of(CommInfo& comm);

/// Bytes of one argument with a single count and type.
uint64_t argument_bytes(Event& event, const DataArgument& side);

/// Bytes named by the call, from the arguments that are significant on this rank.
uint64_t compute_bytes(Event& event);

}  // namespace resil
