// SPDX-License-Identifier: Apache-2.0
//
// Calls as phrases: "MPI_Recv from rank 2, tag 7, MPI_COMM_WORLD, 8 bytes". What they say of is in the ring, which may
// be half written or damaged: everything is bounded. Async-signal-safe. May touch: what it is given, read only.
#pragma once

#include <cstdint>

#include "shim/ring/ring_format.h"

namespace resil {

class SafeText;

/// Section "comms" of the ring, which records name by index.
struct Communicators {
  const ring::Comm* list;  ///< null: none yet
  uint32_t count;
};

/// "MPI_Recv", or "call 999" for an unknown id.
void put_call_name(SafeText& text, uint16_t call);

/// "rank 2", "any source", "MPI_PROC_NULL", "MPI_ROOT".
void put_peer(SafeText& text, int32_t peer);

/// ", tag 7", ", any tag"; nothing for ring::kNoTag.
void put_tag(SafeText& text, int32_t tag);

/// "MPI_COMM_WORLD", "ocean (id 0x12)"; nothing and false for no communicator.
bool put_comm(SafeText& text, const Communicators& in, uint32_t index, bool with_id);

/// "MPI_Recv from rank 2, tag 7, MPI_COMM_WORLD, 8 bytes": no age, no call site.
void put_call(SafeText& text, const ring::Record& record, const Communicators& in, bool with_id);

}  // namespace resil
