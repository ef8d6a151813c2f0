// SPDX-License-Identifier: Apache-2.0
//
// What a copy that is fed by its leader needs of one MPI ABI (shim/call/fed_comms.h): handles that stand for the
// leader's, and functions in the place of local calls about communicators and files. Part of the Backend table.
#pragma once

#include <cstdint>

#include "shim/model/calls.h"

namespace resil {

struct FedFunctions {
  /// What the slot of that call holds, in a copy or in its leader; null: what it held.
  void* (*answer)(CallId id, bool copy);
  /// Makes a communicator of this process alone, where the program wants the handle: a duplicate of `parent`, with its
  /// attributes, or one that is split from it.
  bool (*communicator)(uint64_t parent, bool duplicate, void* place);
  void (*no_communicator)(void* place);
  /// A request that MPI never completes, likewise; it looks persistent and inactive to MPI.
  bool (*request)(void* place);
  /// Frees it: the program's handle is null then.
  void (*request_free)(void* requests, int64_t index);
  /// A matched message of no bytes, from this process; `none`: MPI_MESSAGE_NO_PROC. Takes it: the handle is null then.
  bool (*message)(void* place, bool none);
  bool (*message_take)(void* place);
  bool (*message_is_none)(const void* place);
  /// A file with nothing in it, where the program wants the handle.
  bool (*file)(const char* name, void* place);
  /// As if the call had met that error.
  void (*raise)(uint64_t comm, int code);
};

}  // namespace resil
