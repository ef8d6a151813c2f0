// SPDX-License-Identifier: Apache-2.0
//
// Data that lands late: the bytes of a packet that MPI called complete are put into the buffer some microseconds
// afterwards, by a timer signal on the application's thread, at the latest when the wrapper of the completing call
// ends (the program may free the buffer then).
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

struct Landing {
  std::atomic<bool> pending;
  bool used;                     ///< since the call began
  std::atomic<bool> by_timer;
  bool has_timer;
  int timer;
  uint64_t delay;                ///< microseconds
  Packet packet;
  char* packed;
  Injection injection;
};

/// Starts the clock. The landing is filled and not pending; application's thread.
void arm(Landing& landing);
/// Lands now if it has not yet; stops the clock. True: the timer was first.
bool force(Landing& landing);
void forget_timer(Landing& landing);

}  // namespace resil::fault
