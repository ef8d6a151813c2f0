// SPDX-License-Identifier: Apache-2.0
//
// The kinds of objects that a program makes and has to free (MPI 4.1, 2.5.1). Which call makes or frees one follows
// from its row in shim/api/mpi.txt: CallInfo::makes and CallInfo::frees (calls.h).
#pragma once

#include <cstdint>

namespace resil {

enum class MpiObject : uint8_t {
  kNone,
  kCommunicator,
  kGroup,
  kDatatype,
  kOperator,
  kWindow,
  kFile,
  kInfo,
  kErrorHandler,
  kSession,
  kCommKeyval,
  kTypeKeyval,
  kWindowKeyval,
  kBuffer,  ///< attached for buffered sends; its handle is the communicator's or session's, or 0
  kCount
};

/// Are its handles ones that MPI may hand out again while they are alive: a reference more to the same object?
constexpr bool is_shared_by_handle(MpiObject kind) {
  return kind == MpiObject::kGroup || kind == MpiObject::kDatatype || kind == MpiObject::kErrorHandler;
}

}  // namespace resil
