// SPDX-License-Identifier: Apache-2.0
//
// Messages with another buffer than the program's, and completion calls on other arrays of handles: for staging. Part
// of the Backend table; handles are bits, `tag` and ranks as in ring_format.h, counts of any size (the library's `_c`
// functions where an int is too short). On the program's thread, inside one of its calls, on its own communicators, so
// that errors go to their error handlers. All that return int return MPI's code.
#pragma once

#include <cstdint>

#include "shim/abi/backend_types.h"
#include "shim/model/calls.h"

namespace resil {

struct Event;

/// What a message is made of.
struct MessagePart {
  void* buffer;
  int64_t count;
  uint64_t type;
};

/// To whom it goes, or from where it comes.
struct MessageEnvelope {
  uint64_t comm;
  int32_t peer, tag;
};

enum class Peeked : uint8_t { kNotAsked, kPending, kComplete };

struct StagingFunctions {
  /// Can a message of so many elements be posted? False: more than an int, and the library has no large counts.
  bool (*countable)(int64_t count);
  int (*send)(SendMode mode, const MessagePart& part, const MessageEnvelope& to);
  int (*isend)(SendMode mode, const MessagePart& part, const MessageEnvelope& to, uint64_t* request);
  /// MPI_Send_init and the like: a handle for the program now, a message when `start` says so.
  int (*send_init)(SendMode mode, const MessagePart& part, const MessageEnvelope& to, uint64_t* request);
  int (*start)(uint64_t* request);
  int (*recv)(const MessagePart& part, const MessageEnvelope& from, void* status);
  int (*irecv)(const MessagePart& part, const MessageEnvelope& from, uint64_t* request);
  /// A receive from MPI_PROC_NULL with a request of its own, which MPI_Irecv would not give; complete.
  int (*receive_nothing)(const MessageEnvelope& from, uint64_t* request);
  /// `message`: the program's handle, which the library sets to null.
  int (*mrecv)(const MessagePart& part, void* message, void* status);
  int (*imrecv)(const MessagePart& part, void* message, uint64_t* request);
  /// May the library be asked about a message on that communicator? False: an error that the message had would reach a
  /// handler of the program's, or end a job that may go on. The answer changes with the program's handlers.
  bool (*askable)(uint64_t comm);
  /// Is the request complete? It stays as it is; an error that the message had (`status->error`; 0: none) is raised
  /// again by the call that completes the request. But MPICH makes a persistent request inactive from 4.2 on, and knows
  /// nothing of its message afterwards. Not asked if it may not be, unless `regardless`. `status`: of a receive; 0
  /// bytes when it was cancelled.
  Peeked (*peek)(uint64_t request, uint64_t comm, bool regardless, StatusInfo* status);
  int (*free)(uint64_t* request);
  /// The event's own completion call on `handles` in place of the program's array...
  int (*wait_as)(const Event& event, void* handles);
  /// ...and as a test: MPI_Testany for MPI_Waitany and so on. `flag`: whether the call would return now.
  int (*test_as)(const Event& event, void* handles, int* flag);
  void (*set_request)(void* handles, int64_t index, uint64_t handle);
  /// That code through the communicator's error handler; returns it.
  int (*raise)(uint64_t comm, int code);
  /// Status `index` of the event's (if it has any) says that code; the others are left alone.
  void (*mark)(const Event& event, int64_t index, int code);
  /// It says that so many bytes have been received.
  void (*set_bytes)(const Event& event, int64_t index, uint64_t bytes);
  /// It says that source and tag (as in ring_format.h), and whether the message was cancelled.
  void (*set_envelope)(const Event& event, int64_t index, int32_t source, int32_t tag, bool cancelled);
  /// A predefined datatype of that kind and width; 0: none.
  uint64_t (*basic_handle)(const BasicType& basic);
  uint64_t (*byte_type)();  ///< MPI_BYTE
  /// MPI_Pack of as many elements as it takes: the first `bytes` bytes of the data. False: MPI would not, or no memory.
  bool (*pack_first)(const MessagePart& part, uint64_t bytes, void* to);
  int error_other;  ///< MPI_ERR_OTHER
  int error_truncate;  ///< MPI_ERR_TRUNCATE
};

}  // namespace resil
