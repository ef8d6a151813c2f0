// SPDX-License-Identifier: Apache-2.0
//
// Carrying out the program's call with another matching than MPI would choose: for replays. Part of the Backend table;
// source as in ring_format.h (communicator rank, kAnySource). All functions are for the thread and the time of the
// call.
#pragma once

#include <cstdint>

#include "shim/runtime/private_tags.h"

namespace resil {

struct Event;

struct ReplayFunctions {
  /// The call itself (MPI_Irecv, MPI_Recv_init, MPI_Sendrecv, MPI_Isendrecv and the like) with that source and tag in
  /// place of its own. False: no such call; nothing was done. `result`: its return code.
  bool (*receive)(const Event& event, int32_t source, int32_t tag, int* result);
  /// A receive like that of MPI_Recv or of MPI_Sendrecv, not blocking; its request is the caller's.
  bool (*post_receive)(const Event& event, int32_t source, int32_t tag, uint64_t* request, int* result);
  /// The send of MPI_Sendrecv, not blocking.
  bool (*post_send)(const Event& event, uint64_t* request, int* result);
  /// A receive that takes no message, ever, in place of the call's (MPI_Irecv): on that communicator, with that tag.
  bool (*receive_nothing)(const Event& event, uint64_t comm, PrivateTag tag, int* result);
  /// MPI_Iprobe on the call's communicator; `status` may be null.
  int (*probe)(const Event& event, int32_t source, int32_t tag, int* flag, void* status);
  /// MPI_Improbe into the call's message.
  int (*matched_probe)(const Event& event, int32_t source, int32_t tag, int* flag, void* status);
  /// MPI_Test on one of the call's requests; `status` may be null.
  int (*test)(const Event& event, int64_t index, int* flag, void* status);
  /// MPI_Request_get_status as the call asked for it.
  int (*get_status)(const Event& event, int* flag);
  int (*arrived)(const Event& event, int* flag);  ///< MPI_Parrived, as the call asked
  int (*window_test)(const Event& event, int* flag);  ///< MPI_Win_test
  /// MPI_ERROR of a status that `test` has filled.
  void (*set_error)(void* status, int code);
  /// A datatype that lives on although the program frees its own; drop_type gives it back.
  bool (*keep_type)(uint64_t type, uint64_t* kept);
  void (*drop_type)(uint64_t kept);
  /// A receive as a persistent one would be, once; its request is the caller's. The return code.
  int (*post)(uint64_t comm, void* buffer, int64_t count, uint64_t type, int32_t source, int32_t tag,
              uint64_t* request);
  /// MPI_Start on one of the call's requests.
  int (*start)(const Event& event, int64_t index);
  /// MPI_Cancel; the request is still to be completed.
  int (*cancel)(uint64_t* request);
  /// Lets MPI make progress; completes and matches nothing.
  void (*progress)();
  int error_in_status;  ///< MPI_ERR_IN_STATUS
  int undefined;  ///< MPI_UNDEFINED
};

}  // namespace resil
