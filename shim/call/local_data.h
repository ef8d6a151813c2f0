// SPDX-License-Identifier: Apache-2.0
//
// A local call that moves data of the program's, as a module sees it: MPI_Pack, MPI_Unpack, their
// external forms, and MPI_Reduce_local. They are no events: nobody else looks at them.
#pragma once

#include <cstdint>

#include "shim/model/calls.h"

namespace resil {

struct LocalArgument {
  const void* buffer;  ///< where the data begins: of packed data, at the position
  int64_t count;  ///< elements; packed: bytes from there to the end of the buffer
  uint64_t type;  ///< datatype handle; 0: packed
  char* given;  ///< what the library is given in its place; equal to it unless the module changes it
};

struct LocalData {
  CallId id;
  uint64_t comm;  ///< handle, 0: the call has none
  LocalArgument in, out;
  /// Most bytes that the elements of the typed side take when they are packed, as MPI_Pack_size or the like say;
  /// negative: MPI would not say, and has called the error handler. Null: MPI_Reduce_local, which has no packed side.
  int64_t (*packed_size)(const LocalData&);
  const char* representation;  ///< of MPI_Pack_external and the like
  void* held;  ///< the module's, until the call has returned
};

/// kAsItIs: the library is given the program's buffers. kRefused: the call is not made, local_leave() says its result.
enum class LocalWay : uint8_t { kAsItIs, kGiven, kRefused };

}  // namespace resil
