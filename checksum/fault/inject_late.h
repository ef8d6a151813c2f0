// SPDX-License-Identifier: Apache-2.0
//
// Data that lands late: the bytes of a packet that MPI called complete are put into the buffer afterwards, at the
// latest when the wrapper of the completing call ends (the program may free the buffer then). Before that: when the
// data has been looked at once or twice, so that nothing depends on how fast the machine is; or, where a delay is asked
// for, some microseconds later, by a timer signal on the application's thread.
#pragma once

#include <atomic>
#include <cstdint>

#include "checksum/fault/packet.h"
#include "checksum/fault/spec.h"

namespace resil::fault {

/// What was done to one packet, for faults-RRRRR.jsonl.
struct Injection {
  Kind kind;
  bool receiving;
  CallId id;
  int32_t peer, tag, other_peer, other_tag;  ///< other: the packet that it was exchanged with
  uint64_t bytes, position, ordinal, spec, comm, sequence;
  const char* remark;  ///< null: none
};

struct LateWrite {
  std::atomic<bool> pending;
  bool used;  ///< since the call began
  std::atomic<bool> by_timer;
  bool has_timer;
  int timer;
  uint64_t delay;  ///< microseconds; 0: `looks` decides
  uint32_t looks;  ///< lands when the data has been read so often
  bool by_look;
  Packet packet;
  char* packed;
  Injection injection;
};

/// From now on it is due; starts the clock if there is a delay. The landing is filled and not pending; application's
/// thread.
void arm(LateWrite& late_write);
/// The data at that address has been read for the Nth time.
void looked_at(LateWrite& late_write, const void* buffer, uint32_t looks);
/// Lands now if it has not yet; stops the clock. True: the timer was first.
bool force(LateWrite& late_write);
void forget_timer(LateWrite& late_write);

}  // namespace resil::fault
