// SPDX-License-Identifier: Apache-2.0
//
// What the ABI-free core needs of one MPI ABI. Handles cross this border as their bits. All functions call the next
// PMPI_ layer and may be used only where the comment allows an MPI call.
#pragma once

#include <cstddef>
#include <cstdint>

#include "shim/abi/backend_collectives.h"
#include "shim/abi/backend_failures.h"
#include "shim/abi/backend_fed.h"
#include "shim/abi/backend_messages.h"
#include "shim/abi/backend_parts.h"
#include "shim/abi/backend_replay.h"
#include "shim/abi/backend_staging.h"
#include "shim/abi/backend_types.h"
#include "shim/abi/backend_windows.h"
#include "shim/model/calls.h"
#include "shim/runtime/private_tags.h"

namespace resil {

/// Takes the place of a wrapper once its call may go the fast path with MPI_THREAD_MULTIPLE (fast_path.h).
struct ThreadedWrapper {
  CallId id;
  void* function;
};

struct Backend {
  const char* abi;  ///< "openmpi", "mpich" or "standard"
  void* const* wrappers[2];  ///< by layer (MPI_, PMPI_) and call id
  void* const* fallbacks;  ///< for names that the library lacks
  const ThreadedWrapper* threaded[2];  ///< by layer
  unsigned threaded_count;
  void* const*
      reductions[2];  ///< by layer: what the fast path calls of reductions that a module carries out (fast_path.h)
  size_t handle_bytes;  ///< 4 or 8
  size_t status_bytes;
  bool (*bind)(void* (*lookup)(const char* name));  ///< finds the library's constants; false: not this ABI after all
  uint64_t (*comm_world)();
  uint64_t (*comm_self)();
  uint64_t (*comm_null)();
  uint64_t (*request_null)();
  /// Handles that already completed operations share: request_null(), request_empty(), and a span of values that
  /// bind() and make_own_comm() write, before the program has a request.
  uint64_t (*request_empty)();  ///< 0: none
  uint64_t shared_first, shared_span;
  StatusLayout status_layout;  ///< for status_glance()
  bool (*is_in_place)(const void* buffer);
  intptr_t in_place;  ///< MPI_IN_PLACE, as a number
  bool (*initialized)();
  bool (*finalized)();
  bool (*thread_multiple)();  ///< provided level; true when it cannot be asked
  bool (*type_size)(uint64_t type, int64_t* bytes);
  bool (*comm_shape)(uint64_t comm, int* size, int* rank, int* remote_size);  ///< remote_size -1: intracommunicator
  bool (*comm_world_ranks)(uint64_t comm, bool remote, int count, const int* ranks, int* world_ranks);  ///< -1: none
  bool (*group_world_ranks)(uint64_t group, int capacity, int* world_ranks, int* size);
  bool (*comm_degree)(uint64_t comm, int* in, int* out);  ///< of a topology; false: none
  void (*comm_name)(uint64_t comm, char* text, size_t bytes);
  bool (*comm_attach)(uint64_t comm, void* info);  ///< attribute whose deletion calls comm_forget(info)
  /// A communicator of this process alone whose errors are returned: questions that need one never reach the program's
  /// error handler. After MPI_Init; once.
  void (*make_own_comm)();
  bool (*dup_world)(uint64_t* comm);  ///< collective, inside MPI_Init only
  bool (*send)(uint64_t comm, const void* data, size_t bytes, int destination, PrivateTag tag, uint64_t* request);
  bool (*receive)(uint64_t comm, void* data, size_t bytes, int source, PrivateTag tag,
                  uint64_t* request);  ///< source: or ring::kAnySource
  bool (*test)(uint64_t* request);  ///< true: complete
  const MessageFunctions* messages;
  const TypeFunctions* types;
  const WindowFunctions* windows;
  const ReplayFunctions* replay;
  const CollectiveFunctions* collectives;
  const StagingFunctions* staging;
  const FailureFunctions* failures;
  const PartFunctions* parts;
  const FedFunctions* fed;
};

const Backend* openmpi_backend();
const Backend* mpich_backend();
const Backend* standard_backend();

extern const Backend* backend;  ///< the one in use, null before the first MPI call

/// Does this job go on when a rank dies? See FailureFunctions::survives.
inline bool job_survives() { return backend->failures != nullptr && backend->failures->survives(); }

/// Source, tag and bytes of a status without a call into the backend; false: ask status_read (its layout is not fixed,
/// it is MPI_STATUS_IGNORE, or the message is not an ordinary one: cancelled, no source).
inline bool status_glance(const void* statuses, int64_t index, int32_t* source, int32_t* tag, uint64_t* bytes) {
  if (reinterpret_cast<uintptr_t>(statuses) <= 1) return false;
  if (backend->status_layout == StatusLayout::kOpenMpi) {
    const auto& status = static_cast<const OpenMpiStatus*>(statuses)[index];
    *source = status.source;
    *tag = status.tag;
    *bytes = status.bytes;
    return status.source >= 0 && status.cancelled == 0;
  }
  if (backend->status_layout == StatusLayout::kMpich) {
    const auto& status = static_cast<const MpichStatus*>(statuses)[index];
    *source = status.source;
    *tag = status.tag;
    *bytes = status.bytes_low | uint64_t{status.bytes_high >> 1} << 32;
    return status.source >= 0 && (status.bytes_high & 1) == 0;
  }
  return false;
}

/// Next function of each layer: what the wrappers call. Entry `layer * kCallCount + id`.
extern void* next_functions[2 * kCallCount];
/// Backend::threaded instead of the wrappers, from the next call on. Any thread.
void use_threaded_wrappers();

}  // namespace resil
