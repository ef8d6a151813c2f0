// SPDX-License-Identifier: Apache-2.0
//
// Collectives that move bytes, and local reductions. Part of the Backend table; handles are bits. All functions call
// the PMPI_ layer on the program's own communicator, inside the program's own collective call, so that errors go to
// that communicator's error handler. Counts and displacements are bytes. All but `copy` return MPI's return code.
#pragma once

#include <cstddef>
#include <cstdint>

#include "shim/runtime/private_tags.h"

namespace resil {

struct CollectiveFunctions {
  /// Do all ranks say so? False also when MPI fails.
  bool (*agree)(uint64_t comm, bool mine);
  int (*allgather)(uint64_t comm, const void* send, int bytes, void* receive);
  /// `send` null: in place.
  int (*allgatherv)(uint64_t comm, const void* send, int bytes, void* receive, const int* counts, const int* places);
  int (*alltoall)(uint64_t comm, const void* send, int bytes, void* receive);
  int (*alltoallv)(uint64_t comm, const void* send, const int* send_counts, const int* send_places, void* receive,
                   const int* counts, const int* places);
  /// `root` as in ring_format.h (kRootSelf, kProcNull on intercommunicators).
  int (*gather)(uint64_t comm, const void* send, int bytes, void* receive, int32_t root);
  /// `send` null: in place.
  int (*gatherv)(uint64_t comm, const void* send, int bytes, void* receive, const int* counts, const int* places,
                 int32_t root);
  /// `request`: where the program wants its handle; `send` null: in place, of gathers at the root.
  int (*iallgather)(uint64_t comm, const void* send, int bytes, void* receive, void* request);
  int (*igather)(uint64_t comm, const void* send, int bytes, void* receive, int32_t root, void* request);
  int (*ialltoallv)(uint64_t comm, const void* send, const int* send_counts, const int* send_places, void* receive,
                    const int* counts, const int* places, void* request);
  /// MPI 4.0; false: the library lacks it, nothing was done.
  bool (*alltoallv_init)(uint64_t comm, const void* send, const int* send_counts, const int* send_places, void* receive,
                         const int* counts, const int* places, void* request, int* result);
  /// Is the program's request complete? Leaves it as it is; true also when MPI would not say.
  bool (*is_complete)(const void* request);
  void (*op_free)(uint64_t op);
  /// Has a message from there come on this communicator? It is this thread's alone then, to be taken with `take`.
  bool (*probe)(uint64_t comm, int source, PrivateTag tag, uint64_t* message, uint64_t* bytes);
  bool (*take)(uint64_t message, void* data, uint64_t bytes);
  /// Before the next two, once, while one thread calls MPI. `gone`: what has been tied to a communicator, when MPI
  /// frees that; on any thread inside MPI.
  bool (*keep_states)(void (*gone)(void* state));
  /// What `put_state` has tied to the communicator; null: nothing.
  void* (*state)(uint64_t comm);
  bool (*put_state)(uint64_t comm, void* state);
  /// Lets the library make progress. `comm`: resil's own.
  void (*progress)(uint64_t comm);
  /// Raises MPI_ERR_TRUNCATE on the communicator, as the library does when counts differ between ranks.
  int (*truncated)(uint64_t comm);
  /// high[i] = low[i] op high[i]; the operator is called with this very datatype handle.
  int (*reduce_local)(const void* low, void* high, int64_t count, uint64_t type, uint64_t op);
  /// Copies between buffers that the host may not touch, or whose types only the library understands, by a message to
  /// this process itself on `comm`, resil's own. Type 0: bytes. False: MPI would not.
  bool (*copy)(uint64_t comm, const void* from, int64_t from_count, uint64_t from_type, void* to, int64_t to_count,
               uint64_t to_type, int self, PrivateTag tag);
};

}  // namespace resil
