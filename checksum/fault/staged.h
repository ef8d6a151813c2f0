// SPDX-License-Identifier: Apache-2.0
//
// Messages whose buffers are on a device and whose data goes through pinned host memory (pipeline/staging/): there it
// is damaged, between the sender's last look and the receiver's first. This part does not know that one, which asks
// here.
#pragma once

#include <cstdint>

#include "shim/model/calls.h"

namespace resil {
struct Thread;
struct TypeMap;
}

namespace resil::fault {

/// The data of one message as the host may write it.
struct StagedMessage {
  CallId call;  ///< that sent or posted it
  uint64_t comm;  ///< handle
  int32_t peer, tag;  ///< rank of the communicator; as in ring_format.h, where not known
  char* buffer;
  int64_t count;
  const TypeMap* type;
  uint64_t bytes;
};

struct StagedFaults {
  /// May sends be damaged? Then the library is given a copy of the data, for `departing` to damage.
  bool (*sends)();
  void (*departing)(Thread& thread, const StagedMessage& message);
  void (*arrived)(Thread& thread, const StagedMessage& message);
};

/// Null: RESIL_FAULT is not set. Set before MPI_Init returns.
inline constinit const StagedFaults* staged_faults = nullptr;

}  // namespace resil::fault
