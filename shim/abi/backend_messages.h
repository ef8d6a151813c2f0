// SPDX-License-Identifier: Apache-2.0
//
// Statuses, and messages that the core or a module posts itself. Part of the Backend table; handles are bits.
#pragma once

#include <cstddef>
#include <cstdint>

namespace resil {

struct Event;

struct StatusInfo {
  int32_t source, tag;  ///< source as in ring_format.h: communicator rank, kProcNull
  int32_t error;  ///< MPI_ERROR as it stands there; meaningful after MPI_ERR_IN_STATUS only
  bool cancelled;
  uint64_t bytes;  ///< received
};

/// The statuses that are fixed by an ABI, as status_glance() reads them.
enum class StatusLayout : uint8_t { kOpaque, kOpenMpi, kMpich };
struct OpenMpiStatus {
  int32_t source, tag, error, cancelled;
  uint64_t bytes;
};
struct MpichStatus {
  uint32_t bytes_low, bytes_high;  ///< lowest bit of bytes_high: cancelled
  int32_t source, tag, error;
};

/// What a return code means to a receive.
enum class ErrorKind : uint8_t { kNone, kTruncated, kPending, kInStatus, kOther };

struct MessageFunctions {
  bool (*status_ignored)(const void* statuses);  ///< MPI_STATUS_IGNORE or MPI_STATUSES_IGNORE
  void (*status_read)(const void* statuses, int64_t index, StatusInfo* info);
  ErrorKind (*error_kind)(int code);
  /// Posts the nonblocking twin of MPI_Send, Ssend, Rsend or Recv as the event says, with the given buffer and count.
  /// False: there is none for this call; nothing was done. `result`: its return code.
  bool (*post)(const Event& event, uint64_t* request, int* result);
  /// Completes it; `status` (may be null) is filled as the call itself would. The return code.
  int (*wait)(uint64_t* request, void* status);
  int (*test)(uint64_t* request, int* flag, void* status);
  /// Test on the application's own request (the event's first), Testall on its array.
  int (*test_one)(const Event& event, int* flag);
  int (*test_all)(const Event& event, int* flag);
  bool (*cancel)(uint64_t* request);  ///< a receive of resil's own; then completes it
  /// Neighbours of a topology in the order of MPI's buffers.
  bool (*neighbors)(uint64_t comm, int in, int out, int* sources, int* destinations);
  void (*abort)(int status);  ///< MPI_Abort on MPI_COMM_WORLD
  /// After an MPI_Waitall that was carried out by test_all, without an error: MPI_SUCCESS in each status, as both
  /// libraries' MPI_Waitall says. MPICH's MPI_Testall leaves there what it finds.
  void (*all_succeeded)(const Event& event);
};

}  // namespace resil
